//! The passes of a pipeline replayed: measured and simulated costs.
//!
//! What it does: [`simulate`] computes the [`PipelineTrace`] of a [`PipelinePlan`] from a cost of
//! each pass; the trainer measures a trace of the same form, which [`gather_trace`] gathers
//! from all ranks. A trace gives the idle share and the activations held ([`TraceFigures`]), and
//! [`draw`](crate::report::draw) draws it. A simulation with the measured cost of each pass gives the
//! idle share to expect of stages of unequal cost.
//!
//! What is sharded: nothing. Which collective runs where: a gather of the spans, after a step.

use maypole::Result;
use maypole_trainer::pipeline_parallel::plan::{PassKind, PipelinePlan, StagePass};
use maypole_trainer::pipeline_parallel::trace::{PassSpan, PipelineTrace};
use maypole_trainer::train::trainer::Trainer;
use maypole_trainer::train::watch::StepOutcome;
use std::collections::HashMap;

/// The figures of a pipeline's trace.
pub trait TraceFigures {
    /// The time from zero to the end of the last pass.
    fn length(&self) -> f64;

    /// The share of the ranks' time, each from zero to the end of the last pass, in which they ran no
    /// pass.
    fn idle(&self) -> f64;

    /// The maximum of micro-batches in flight, whose activations `rank` holds. A micro-batch counts as
    /// one with the activations of all stages of the rank.
    fn held(&self, rank: usize) -> f64;
}

impl TraceFigures for PipelineTrace {
    fn length(&self) -> f64 {
        self.spans.iter().map(|span| span.end).fold(0.0, f64::max)
    }

    fn idle(&self) -> f64 {
        let busy: f64 = self.spans.iter().map(|span| span.end - span.start).sum();
        1.0 - busy / (self.length() * self.ranks as f64)
    }

    fn held(&self, rank: usize) -> f64 {
        let mut held = 0usize;
        let mut most = 0;
        for span in self.spans.iter().filter(|span| span.rank == rank) {
            match span.op.pass {
                PassKind::Forward => held += 1,
                PassKind::Backward => held -= 1,
            }
            most = most.max(held);
        }
        most as f64 / self.chunks as f64
    }
}

const NUMBERS: usize = 7;

/// Gathers the traces of a step from all ranks of the pipeline of `trainer`, as one that begins at
/// zero. They all call it.
///
/// # Errors
/// As the collective.
pub fn gather_trace<T>(trainer: &Trainer<T>, outcome: &StepOutcome) -> Result<PipelineTrace> {
    let trace = &outcome.trace;
    let began = trainer.watch.since_epoch(outcome.start);
    let since =
        |span: &PassSpan| PassSpan { start: span.start + began, end: span.end + began, ..*span };
    let numbers: Vec<f64> = trace.spans.iter().flat_map(|span| to_numbers(&since(span))).collect();
    let all = trainer.groups.pp.gather(&numbers)?;
    let spans = all.chunks_exact(NUMBERS).map(from_numbers).collect();
    Ok(from_zero(PipelineTrace { spans, ..*trace }))
}

/// The same trace, shifted so that its first pass begins at zero.
fn from_zero(mut trace: PipelineTrace) -> PipelineTrace {
    let first = trace.spans.iter().map(|span| span.start).fold(f64::MAX, f64::min);
    for span in &mut trace.spans {
        span.start -= first;
        span.end -= first;
    }
    trace
}

/// The span as numbers, for a message.
fn to_numbers(span: &PassSpan) -> [f64; NUMBERS] {
    let PassSpan { rank, op, start, end, work } = *span;
    let backward = f64::from(u8::from(op.pass == PassKind::Backward));
    [rank as f64, backward, op.micro as f64, op.chunk as f64, start, end, work]
}

fn from_numbers(numbers: &[f64]) -> PassSpan {
    let [rank, backward, micro, chunk, start, end, work] = *numbers else {
        panic!("a span is seven numbers")
    };
    let pass = if backward == 0.0 { PassKind::Forward } else { PassKind::Backward };
    let op = StagePass { pass, micro: micro as usize, chunk: chunk as usize };
    PassSpan { rank: rank as usize, op, start, end, work }
}

/// Computes the trace of a plan. A pass starts when its rank is free and the pass that it needs is
/// done, and takes the time `cost(rank, pass)`.
///
/// # Errors
/// A sentence that names the passes that wait for one another, if the plan never ends.
pub fn simulate(
    plan: &PipelinePlan,
    cost: impl Fn(usize, StagePass) -> f64,
) -> std::result::Result<PipelineTrace, String> {
    let mut done = Vec::<PassSpan>::new();
    let mut ends = HashMap::new();
    let mut free = vec![0.0f64; plan.ranks];
    let mut next = vec![0; plan.ranks];
    let total: usize = plan.ops.iter().map(Vec::len).sum();
    while done.len() < total {
        let before = done.len();
        for rank in 0..plan.ranks {
            while let Some(op) = plan.ops[rank].get(next[rank]).copied() {
                let ready = match plan.before(rank, op) {
                    None => Some(0.0),
                    Some(needed) => ends.get(&needed).copied(),
                };
                let Some(ready) = ready else { break };
                let start = free[rank].max(ready);
                let work = cost(rank, op);
                free[rank] = start + work;
                done.push(PassSpan { rank, op, start, end: free[rank], work });
                ends.insert((rank, op), free[rank]);
                next[rank] += 1;
            }
        }
        if done.len() == before {
            let waiting = |rank: usize| {
                plan.ops[rank].get(next[rank]).map(|op| format!("rank {rank} at {op:?}"))
            };
            let waiting: Vec<String> = (0..plan.ranks).filter_map(waiting).collect();
            return Err(format!("the plan never ends: {}", waiting.join("; ")));
        }
    }
    // Each rank's spans were pushed in its order; a stable sort keeps it.
    done.sort_by_key(|span| span.rank);
    Ok(PipelineTrace { ranks: plan.ranks, chunks: plan.chunks, spans: done })
}

/// Returns the cost of a pass if stages are equal. For all stages of a rank together a forward pass
/// takes 1 and a backward pass 2.
pub fn equal_stages(plan: &PipelinePlan) -> impl Fn(usize, StagePass) -> f64 + use<> {
    let chunks = plan.chunks as f64;
    move |_, op| if op.pass == PassKind::Forward { 1.0 / chunks } else { 2.0 / chunks }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;

    #[test]
    fn a_slower_rank_leaves_the_others_idle_and_a_trace_can_begin_at_zero() {
        let plan = PipelineSchedule::OneForwardOneBackward.plan(2, 4).unwrap();
        let unequal = |rank: usize, op: StagePass| {
            let cost = if op.pass == PassKind::Forward { 1.0 } else { 2.0 };
            cost * (1.0 + rank as f64)
        };
        let trace = simulate(&plan, unequal).unwrap();
        assert!(trace.idle() > PipelineSchedule::OneForwardOneBackward.idle(2, 4));
        let late = PipelineTrace {
            spans: trace
                .spans
                .iter()
                .map(|span| PassSpan { start: span.start + 5.0, end: span.end + 5.0, ..*span })
                .collect(),
            ..trace
        };
        assert_eq!(from_zero(late.clone()), trace);
        assert!(late.spans.iter().all(|span| from_numbers(&to_numbers(span)) == *span));
    }

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
    fn a_plan_that_waits_for_itself_is_an_error() {
        let mut plan = PipelineSchedule::GPipe.plan(2, 1).unwrap();
        plan.ops[0].reverse();
        let why = simulate(&plan, |_, _| 1.0).unwrap_err();
        assert!(why.contains("rank 0 at StagePass { pass: Backward"), "{why}");
    }
}
