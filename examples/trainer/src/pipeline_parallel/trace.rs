//! The times of the passes of a pipeline: simulated and measured traces in one form.
//!
//! What it does: [`simulate`] computes the [`PipelineTrace`] of a [`PipelinePlan`] from a cost of
//! each pass; the executor measures a trace of the same form. A trace gives the idle share and the
//! activations held, and `maypole_lab::report::draw` draws it. A simulation with the
//! measured cost of each pass gives the idle share to expect of stages of unequal cost.
//!
//! What is sharded, which collective runs where, what it costs: nothing.

use crate::pipeline_parallel::plan::{PassKind, PipelinePlan, StagePass};
use std::collections::HashMap;

/// A pass of one rank with its times, in any unit of time: seconds, if measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PassSpan {
    /// The rank that ran it.
    pub rank: usize,
    /// The pass.
    pub op: StagePass,
    /// The time at which it began.
    pub start: f64,
    /// The time at which it ended.
    pub end: f64,
    /// Its processor time. It is less than `end - start` if other threads used the core too.
    pub work: f64,
}

impl PassSpan {
    /// The number of elements of [`to_numbers`](Self::to_numbers).
    pub const NUMBERS: usize = 7;

    /// Returns the span as numbers, for a message.
    pub fn to_numbers(&self) -> [f64; Self::NUMBERS] {
        let backward = f64::from(u8::from(self.op.pass == PassKind::Backward));
        [
            self.rank as f64,
            backward,
            self.op.micro as f64,
            self.op.chunk as f64,
            self.start,
            self.end,
            self.work,
        ]
    }

    /// Returns the span whose [`to_numbers`](Self::to_numbers) are `numbers`.
    ///
    /// # Panics
    /// If there are not [`NUMBERS`](Self::NUMBERS) numbers.
    pub fn from_numbers(numbers: &[f64]) -> Self {
        let [rank, backward, micro, chunk, start, end, work] = *numbers else {
            panic!("a span is seven numbers")
        };
        let pass = if backward == 0.0 { PassKind::Forward } else { PassKind::Backward };
        let op = StagePass { pass, micro: micro as usize, chunk: chunk as usize };
        Self { rank: rank as usize, op, start, end, work }
    }
}

/// The passes of a pipeline with their times, simulated or measured.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineTrace {
    /// Ranks of the pipeline.
    pub ranks: usize,
    /// Stages on each rank.
    pub chunks: usize,
    /// The passes, by rank, then by time.
    pub spans: Vec<PassSpan>,
}

impl PipelineTrace {
    /// Returns the same trace, shifted so that its first pass begins at zero.
    #[must_use]
    pub fn from_zero(mut self) -> Self {
        let first = self.spans.iter().map(|span| span.start).fold(f64::MAX, f64::min);
        for span in &mut self.spans {
            span.start -= first;
            span.end -= first;
        }
        self
    }

    /// Returns the mean processor time of a rank's passes by direction and stage, as costs for a
    /// simulation.
    pub fn costs(&self) -> impl Fn(usize, StagePass) -> f64 + use<> {
        let mut sums = HashMap::<_, (f64, f64)>::new();
        for PassSpan { rank, op, work, .. } in &self.spans {
            let (sum, count) = sums.entry((*rank, op.pass, op.chunk)).or_default();
            *sum += work;
            *count += 1.0;
        }
        move |rank, op| sums.get(&(rank, op.pass, op.chunk)).map_or(0.0, |(sum, count)| sum / count)
    }

    /// Returns the time from zero to the end of the last pass.
    pub fn length(&self) -> f64 {
        self.spans.iter().map(|span| span.end).fold(0.0, f64::max)
    }

    /// Returns the share of the ranks' time, each from zero to the end of the last pass, in which
    /// they ran no pass.
    pub fn idle(&self) -> f64 {
        let busy: f64 = self.spans.iter().map(|span| span.end - span.start).sum();
        1.0 - busy / (self.length() * self.ranks as f64)
    }

    /// Returns the most micro-batches whose activations `rank` holds at once. A micro-batch counts
    /// as one with the activations of all stages of the rank.
    pub fn held(&self, rank: usize) -> f64 {
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

/// Computes the trace of a plan. A pass starts when its rank is free and the pass that it needs is
/// done, and takes the time `cost(rank, pass)`.
///
/// # Errors
/// A sentence that names the passes that wait for one another, if the plan never ends.
pub fn simulate(
    plan: &PipelinePlan,
    cost: impl Fn(usize, StagePass) -> f64,
) -> Result<PipelineTrace, String> {
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
    use crate::pipeline_parallel::plan::PipelineSchedule;

    #[test]
    fn measured_costs_simulate_what_was_measured() {
        let plan = PipelineSchedule::OneForwardOneBackward.plan(2, 4).unwrap();
        let unequal = |rank: usize, op: StagePass| {
            let cost = if op.pass == PassKind::Forward { 1.0 } else { 2.0 };
            cost * (1.0 + rank as f64)
        };
        let trace = simulate(&plan, unequal).unwrap();
        assert!(trace.idle() > PipelineSchedule::OneForwardOneBackward.idle(2, 4));
        assert_eq!(simulate(&plan, trace.costs()).unwrap(), trace);
        let late = PipelineTrace {
            spans: trace
                .spans
                .iter()
                .map(|span| PassSpan { start: span.start + 5.0, end: span.end + 5.0, ..*span })
                .collect(),
            ..trace
        };
        assert_eq!(late.clone().from_zero(), trace);
        assert!(late.spans.iter().all(|span| PassSpan::from_numbers(&span.to_numbers()) == *span));
    }
}
