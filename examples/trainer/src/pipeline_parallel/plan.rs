//! Pipeline schedules as data: the list of passes of each rank, made before anything runs.
//!
//! What it does: layers are divided into stages, stage `s` on rank `s % ranks`; a batch into
//! micro-batches, so that ranks work at the same time. A plan is each rank's list of operations;
//! [`crate::pipeline_parallel::execute`] executes it, [`crate::pipeline_parallel::trace::simulate`]
//! times it, [`crate::pipeline_parallel::draw`] draws it.
//!
//! ```text
//! GPipe        all forwards, then all backwards       idle (p-1)/(m+p-1)      rank 0 holds m micro-batches
//! 1F1B         one forward, one backward, in turn     idle (p-1)/(m+p-1)      rank 0 holds min(p, m)
//! interleaved  1F1B over v stages a rank              idle (p-1)/(v*m+p-1)    rank 0 holds p(1 + (p-1)/(pv))
//! ```
//!
//! The idle share is of the whole time, at `p` ranks and `m` micro-batches of equal stages;
//! Megatron quotes idle over busy, `(p-1)/m`. Every schedule runs the backwards of a stage in the
//! order of the micro-batches, so all of them add gradients in one order and end in the same bits.
//!
//! What is sharded: layers. Which collective runs where: none here; each boundary between stages is
//! one send and one receive a micro-batch and pass. Cost: the idle share above, and the activations
//! that wait for their backward.
//!
//! Sources: Huang et al., "GPipe" (2019); Narayanan et al., "PipeDream" (2019) and "Efficient
//! Large-Scale Language Model Training on GPU Clusters Using Megatron-LM" (2021), whose order of
//! interleaving this is.

/// The direction of a pass through a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PassKind {
    /// Activations in, activations out.
    Forward,
    /// Gradients of the output in, of the input out; those of the parameters accumulate.
    Backward,
}

/// One piece of work of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StagePass {
    /// Forward or backward.
    pub pass: PassKind,
    /// The number of the micro-batch.
    pub micro: usize,
    /// The number of the stage among those of the rank: stage `chunk * ranks + rank` of the pipeline.
    pub chunk: usize,
}

/// The most passes of a plan, of all ranks together.
const MOST_PASSES: usize = 1 << 20;

/// The schedules there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipelineSchedule {
    /// All forwards, then all backwards.
    GPipe,
    /// One forward, one backward.
    OneForwardOneBackward,
    /// One forward, one backward, over so many stages a rank.
    Interleaved(usize),
}

impl PipelineSchedule {
    /// Reads `gpipe`, `1f1b` or `interleaved:2`.
    ///
    /// # Errors
    /// A sentence that says what there is.
    pub fn parse(text: &str) -> Result<Self, String> {
        let chunks = text.strip_prefix("interleaved:").and_then(|chunks| chunks.parse().ok());
        match (text, chunks) {
            ("gpipe", _) => Ok(Self::GPipe),
            ("1f1b", _) => Ok(Self::OneForwardOneBackward),
            (_, Some(chunks)) if chunks > 0 => Ok(Self::Interleaved(chunks)),
            _ => Err(format!(
                "'{text}' is no schedule; there are gpipe, 1f1b and interleaved:STAGES"
            )),
        }
    }

    /// The name of the schedule.
    pub fn name(self) -> String {
        match self {
            Self::GPipe => "gpipe".to_owned(),
            Self::OneForwardOneBackward => "1f1b".to_owned(),
            Self::Interleaved(chunks) => format!("interleaved:{chunks}"),
        }
    }

    /// Stages a rank.
    pub fn chunks(self) -> usize {
        match self {
            Self::GPipe | Self::OneForwardOneBackward => 1,
            Self::Interleaved(chunks) => chunks,
        }
    }

    /// The share of the time in which a rank is idle, by the formula, for equal stages.
    pub fn idle(self, ranks: usize, micros: usize) -> f64 {
        let fill = (ranks - 1) as f64;
        fill / ((self.chunks() * micros) as f64 + fill)
    }

    /// The most micro-batches whose activations rank 0 holds at once, in units of all its stages,
    /// by the formula. That of interleaving needs `micros` of at least twice `ranks`.
    pub fn held(self, ranks: usize, micros: usize) -> f64 {
        match self {
            Self::GPipe => micros as f64,
            Self::OneForwardOneBackward | Self::Interleaved(1) => ranks.min(micros) as f64,
            Self::Interleaved(chunks) => {
                let all = ranks as f64 + (ranks - 1) as f64 / chunks as f64;
                all.min(micros as f64)
            }
        }
    }

    /// The plan for `ranks` ranks and `micros` micro-batches.
    ///
    /// # Errors
    /// A sentence, if micro-batches do not come in groups of `ranks`, as interleaving needs, or if
    /// the lists of all ranks would have more than a million operations.
    ///
    /// # Panics
    /// If there is no rank, no micro-batch or no stage.
    pub fn plan(self, ranks: usize, micros: usize) -> Result<PipelinePlan, String> {
        assert!(
            ranks > 0 && micros > 0 && self.chunks() > 0,
            "a pipeline has ranks, micro-batches and stages"
        );
        if self.chunks() > 1 && !micros.is_multiple_of(ranks) {
            let why = format!(
                "{micros} micro-batches do not come in groups of {ranks}, as {} needs: \
                 give --micros {}",
                self.name(),
                micros.next_multiple_of(ranks)
            );
            return Err(why);
        }
        let passes = [ranks, micros, self.chunks()].into_iter().try_fold(2, usize::checked_mul);
        if passes.is_none_or(|passes| passes > MOST_PASSES) {
            let chunks = self.chunks();
            return Err(format!(
                "{micros} micro-batches through {chunks} stages on each of {ranks} ranks are \
                 more than {MOST_PASSES} passes: give fewer micro-batches"
            ));
        }
        let ops = (0..ranks).map(|rank| self.ops(rank, ranks, micros)).collect();
        Ok(PipelinePlan { ranks, chunks: self.chunks(), micros, ops })
    }

    /// A rank's list: some forwards first, then pairs, then the backwards that are left.
    fn ops(self, rank: usize, ranks: usize, micros: usize) -> Vec<StagePass> {
        let total = micros * self.chunks();
        let ahead = self.ahead(rank, ranks, micros).min(total);
        let order = |pass| {
            let chunks = self.chunks();
            (0..total).map(move |turn| turned(pass, turn, ranks, chunks))
        };
        let mut forwards = order(PassKind::Forward);
        let mut backwards = order(PassKind::Backward);
        let mut ops: Vec<StagePass> = forwards.by_ref().take(ahead).collect();
        for forward in forwards {
            ops.extend([Some(forward), backwards.next()].into_iter().flatten());
        }
        ops.extend(backwards);
        ops
    }

    /// Forwards before the first pair: as many as it takes until the first backward can come back.
    fn ahead(self, rank: usize, ranks: usize, micros: usize) -> usize {
        match self {
            Self::GPipe => micros,
            Self::OneForwardOneBackward | Self::Interleaved(1) => ranks - 1 - rank,
            Self::Interleaved(chunks) => 2 * (ranks - 1 - rank) + (chunks - 1) * ranks,
        }
    }
}

/// The operation of a rank's `turn`: groups of `ranks` micro-batches through one stage after the
/// other.
fn turned(pass: PassKind, turn: usize, ranks: usize, chunks: usize) -> StagePass {
    if chunks == 1 {
        return StagePass { pass, micro: turn, chunk: 0 };
    }
    let micro = turn / (ranks * chunks) * ranks + turn % ranks;
    let chunk = turn / ranks % chunks;
    StagePass {
        pass,
        micro,
        chunk: if pass == PassKind::Forward { chunk } else { chunks - 1 - chunk },
    }
}

/// Each rank's operations, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelinePlan {
    /// Ranks of the pipeline.
    pub ranks: usize,
    /// Stages a rank.
    pub chunks: usize,
    /// Micro-batches.
    pub micros: usize,
    /// By rank.
    pub ops: Vec<Vec<StagePass>>,
}

impl PipelinePlan {
    /// Stages of the whole pipeline.
    pub fn stages(&self) -> usize {
        self.ranks * self.chunks
    }

    /// The stage of the pipeline that `op` of `rank` is at.
    pub fn stage(&self, rank: usize, op: StagePass) -> usize {
        op.chunk * self.ranks + rank
    }

    /// The pass that must end before `op` of `rank` begins, and its rank. `None` for the first
    /// forward pass.
    pub fn before(&self, rank: usize, op: StagePass) -> Option<(usize, StagePass)> {
        let stage = self.stage(rank, op);
        let last = self.stages() - 1;
        let (pass, before) = match op.pass {
            PassKind::Forward => (PassKind::Forward, stage.checked_sub(1)?),
            PassKind::Backward if stage == last => (PassKind::Forward, stage),
            PassKind::Backward => (PassKind::Backward, stage + 1),
        };
        Some((before % self.ranks, StagePass { pass, micro: op.micro, chunk: before / self.ranks }))
    }

    /// The pass that needs the output of `op` of `rank`, and its rank; `None` if no pass does.
    pub fn after(&self, rank: usize, op: StagePass) -> Option<(usize, StagePass)> {
        let stage = self.stage(rank, op);
        let after = match op.pass {
            PassKind::Forward => Some(stage + 1).filter(|stage| *stage < self.stages())?,
            PassKind::Backward => stage.checked_sub(1)?,
        };
        Some((after % self.ranks, StagePass { chunk: after / self.ranks, ..op }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline_parallel::trace::{PipelineTrace, equal_stages, simulate};

    const CASES: [(usize, usize); 8] =
        [(1, 3), (2, 2), (2, 4), (2, 8), (4, 4), (4, 8), (4, 16), (8, 32)];

    fn schedules() -> [PipelineSchedule; 5] {
        let interleaved = [1, 2, 4].map(PipelineSchedule::Interleaved);
        [
            PipelineSchedule::GPipe,
            PipelineSchedule::OneForwardOneBackward,
            interleaved[0],
            interleaved[1],
            interleaved[2],
        ]
    }

    fn simulated(schedule: PipelineSchedule, ranks: usize, micros: usize) -> PipelineTrace {
        let plan = schedule.plan(ranks, micros).unwrap();
        simulate(&plan, equal_stages(&plan)).unwrap()
    }

    #[test]
    fn the_idle_share_is_the_formulas() {
        for (ranks, micros) in CASES {
            for schedule in schedules() {
                let idle = simulated(schedule, ranks, micros).idle();
                let formula = schedule.idle(ranks, micros);
                assert!(
                    (idle - formula).abs() < 1e-9,
                    "{} p={ranks} m={micros}: {idle}",
                    schedule.name()
                );
            }
        }
        let example = PipelineSchedule::Interleaved(2).idle(4, 8);
        assert!(
            (example - 0.1579).abs() < 1e-4
                && (PipelineSchedule::GPipe.idle(4, 8) - 0.2727).abs() < 1e-4
        );
    }

    #[test]
    fn the_activations_held_are_the_formulas() {
        for (ranks, micros) in CASES.into_iter().filter(|(ranks, micros)| *micros >= 2 * ranks) {
            for schedule in schedules() {
                let held = simulated(schedule, ranks, micros).held(0);
                let formula = schedule.held(ranks, micros);
                assert_eq!(held, formula, "{} p={ranks} m={micros}", schedule.name());
            }
        }
    }

    #[test]
    fn every_stage_goes_forward_and_back_once_and_back_in_order() {
        for (ranks, micros) in CASES {
            for schedule in schedules() {
                let plan = schedule.plan(ranks, micros).unwrap();
                for ops in &plan.ops {
                    assert_eq!(ops.len(), 2 * micros * plan.chunks);
                    for chunk in 0..plan.chunks {
                        let of = |pass| {
                            ops.iter().filter(move |op| (op.pass, op.chunk) == (pass, chunk))
                        };
                        for pass in [PassKind::Forward, PassKind::Backward] {
                            let order: Vec<usize> = of(pass).map(|op| op.micro).collect();
                            assert_eq!(
                                order,
                                (0..micros).collect::<Vec<_>>(),
                                "{} {pass:?}",
                                schedule.name()
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_an_operation_waits_for_names_it_as_its_next() {
        let plan = PipelineSchedule::Interleaved(2).plan(4, 8).unwrap();
        for (rank, ops) in plan.ops.iter().enumerate() {
            for op in ops {
                let Some((of, before)) = plan.before(rank, *op) else { continue };
                if (of, before.pass) != (rank, PassKind::Forward) || op.pass == PassKind::Forward {
                    assert_eq!(plan.after(of, before), Some((rank, *op)));
                }
            }
        }
    }

    #[test]
    fn a_plan_that_waits_for_itself_is_told() {
        let mut plan = PipelineSchedule::GPipe.plan(2, 1).unwrap();
        plan.ops[0].reverse();
        let why = simulate(&plan, |_, _| 1.0).unwrap_err();
        assert!(why.contains("rank 0 at StagePass { pass: Backward"), "{why}");
        assert!(PipelineSchedule::Interleaved(2).plan(4, 6).unwrap_err().contains("groups of 4"));
    }
}
