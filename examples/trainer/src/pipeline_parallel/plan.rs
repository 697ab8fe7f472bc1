//! Pipeline schedules as data: the list of passes of each rank, made before anything runs.
//!
//! What it does: layers are divided into stages, and stage `s` is on rank `s % ranks`. A batch is
//! divided into micro-batches, so that ranks work at the same time. A plan has a list of passes for
//! each rank. [`crate::pipeline_parallel::execute`] executes it,
//! `maypole_lab::replay::simulate` simulates it, `maypole_lab::report::draw`
//! draws it.
//!
//! ```text
//! GPipe        all forwards, then all backwards       idle (p-1)/(m+p-1)      rank 0 holds m micro-batches
//! 1F1B         one forward, one backward, in turn     idle (p-1)/(m+p-1)      rank 0 holds min(p, m)
//! interleaved  1F1B over v stages a rank              idle (p-1)/(v*m+p-1)    rank 0 holds p(1 + (p-1)/(pv))
//! ```
//!
//! The idle share is the idle time divided by the whole time, with `p` ranks, `m` micro-batches and
//! stages of equal cost. Megatron divides by the busy time: `(p-1)/m`. Every schedule runs the
//! backward passes of a stage in the order of the micro-batches. So all schedules add gradients in
//! one order, and their weights are equal bit for bit.
//!
//! What is sharded: layers. Which collective runs where: none here; each boundary between stages is
//! one send and one receive a micro-batch and pass. Cost: the idle share above, and the activations
//! that wait for their backward pass.
//!
//! Sources: Huang et al., "GPipe" (2019); Narayanan et al., "PipeDream" (2019) and "Efficient
//! Large-Scale Language Model Training on GPU Clusters Using Megatron-LM" (2021), from which the
//! order of interleaved passes is.

/// The direction of a pass through a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PassKind {
    /// Activations in, activations out.
    Forward,
    /// Gradients of the output in, gradients of the input out. Gradients of parameters are added
    /// up.
    Backward,
}

/// One pass of one micro-batch through a stage of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StagePass {
    /// Forward or backward.
    pub pass: PassKind,
    /// The number of the micro-batch.
    pub micro: usize,
    /// The number of the stage among those of the rank. It is stage `chunk * ranks + rank` of the
    /// pipeline.
    pub chunk: usize,
}

/// The most passes of a plan, of all ranks together.
const MOST_PASSES: usize = 1 << 20;

/// The schedules to choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipelineSchedule {
    /// All forward passes, then all backward passes.
    GPipe,
    /// 1F1B: one forward and one backward pass in turn.
    OneForwardOneBackward,
    /// 1F1B with this number of stages on each rank.
    Interleaved(usize),
}

impl PipelineSchedule {
    /// Reads `gpipe`, `1f1b` or `interleaved:2`.
    ///
    /// # Errors
    /// A sentence that names the schedules.
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

    /// Returns the number of stages on each rank.
    pub fn chunks(self) -> usize {
        match self {
            Self::GPipe | Self::OneForwardOneBackward => 1,
            Self::Interleaved(chunks) => chunks,
        }
    }

    /// Returns the share of the time in which a rank is idle, by the formula for stages of equal
    /// cost.
    pub fn idle(self, ranks: usize, micros: usize) -> f64 {
        let fill = (ranks - 1) as f64;
        fill / ((self.chunks() * micros) as f64 + fill)
    }

    /// Returns the maximum of micro-batches whose activations rank 0 holds, by the formula. A
    /// micro-batch counts as one with the activations of all stages of the rank. The formula of
    /// interleaved stages needs at least `2 * ranks` micro-batches.
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
    /// A sentence, if stages are interleaved and `ranks` does not divide `micros`, or if the lists
    /// of all ranks have more than 2^20 passes.
    ///
    /// # Panics
    /// If `ranks`, `micros` or the number of stages is zero.
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

    /// Returns the list of a rank: first some forward passes, then pairs of a forward and a
    /// backward pass, then the other backward passes.
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

    /// Returns the number of forward passes before the first pair: as many as a rank can run until
    /// the first gradient reaches it.
    fn ahead(self, rank: usize, ranks: usize, micros: usize) -> usize {
        match self {
            Self::GPipe => micros,
            Self::OneForwardOneBackward | Self::Interleaved(1) => ranks - 1 - rank,
            Self::Interleaved(chunks) => 2 * (ranks - 1 - rank) + (chunks - 1) * ranks,
        }
    }
}

/// Returns pass number `turn` of a rank, counted among its forward or its backward passes. A group
/// of `ranks` micro-batches passes through one stage of the rank after the other.
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

/// The passes of each rank, in the order in which the rank runs them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelinePlan {
    /// Ranks of the pipeline.
    pub ranks: usize,
    /// Stages on each rank.
    pub chunks: usize,
    /// Micro-batches.
    pub micros: usize,
    /// The passes of each rank.
    pub ops: Vec<Vec<StagePass>>,
}

impl PipelinePlan {
    /// The plan of forward passes alone: one micro-batch after another through all stages of a rank.
    pub fn forward(ranks: usize, chunks: usize, micros: usize) -> Self {
        let pass = PassKind::Forward;
        let all = (0..micros).flat_map(|micro| (0..chunks).map(move |chunk| (micro, chunk)));
        let ops: Vec<_> = all.map(|(micro, chunk)| StagePass { pass, micro, chunk }).collect();
        Self { ranks, chunks, micros, ops: vec![ops; ranks] }
    }

    /// Returns the number of stages of the whole pipeline.
    pub fn stages(&self) -> usize {
        self.ranks * self.chunks
    }

    /// Returns the number of the stage of the pipeline through which `op` of `rank` passes.
    pub fn stage(&self, rank: usize, op: StagePass) -> usize {
        op.chunk * self.ranks + rank
    }

    /// Returns the pass that must end before `op` of `rank` begins, and its rank. `None` for a
    /// forward pass of the first stage.
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

    /// Returns the pass that needs the output of `op` of `rank`, and its rank. `None` if no pass
    /// needs it.
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

    #[test]
    fn every_stage_runs_each_micro_batch_once_in_order() {
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
    fn before_and_after_are_inverse() {
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
    fn micro_batches_that_stages_do_not_divide_are_an_error() {
        assert!(PipelineSchedule::Interleaved(2).plan(4, 6).unwrap_err().contains("groups of 4"));
    }
}
