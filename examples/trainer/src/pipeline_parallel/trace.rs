//! When each pass of a pipeline ran: simulated and measured traces in one form.
//!
//! What it does: [`simulate`] runs a [`PipelinePlan`] on paper, with any cost of each operation;
//! the executor measures the same form ([`PipelineTrace`]). From it come the idle share and the
//! activations held, and [`crate::pipeline_parallel::draw`] makes its pictures. A simulation with
//! the measured cost of each pass says what the idle share should be where stages are not equal.
//!
//! What is sharded, which collective runs where, what it costs: nothing.

use crate::pipeline_parallel::plan::{PassKind, PipelinePlan, StagePass};
use std::collections::HashMap;

/// A pass of one rank and when it ran, in any unit of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PassSpan {
    /// The rank that ran it.
    pub rank: usize,
    /// The pass.
    pub op: StagePass,
    /// When it began.
    pub start: f64,
    /// When it ended.
    pub end: f64,
    /// The time in which it had a core: less than `end - start` if other threads wanted the core, too.
    pub work: f64,
}

impl PassSpan {
    /// Numbers of a span as a message.
    pub const NUMBERS: usize = 7;

    /// The span as numbers, for a message.
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

    /// The span that [`to_numbers`](Self::to_numbers) turned into `numbers`.
    ///
    /// # Panics
    /// If there are not as many numbers.
    pub fn from_numbers(numbers: &[f64]) -> Self {
        let [rank, backward, micro, chunk, start, end, work] = *numbers else {
            panic!("a span is seven numbers")
        };
        let pass = if backward == 0.0 { PassKind::Forward } else { PassKind::Backward };
        let op = StagePass { pass, micro: micro as usize, chunk: chunk as usize };
        Self { rank: rank as usize, op, start, end, work }
    }
}

/// When everything ran: simulated or measured.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineTrace {
    /// Ranks of the pipeline.
    pub ranks: usize,
    /// Stages a rank.
    pub chunks: usize,
    /// By rank, then by time.
    pub spans: Vec<PassSpan>,
}

impl PipelineTrace {
    /// Returns the same trace with the first start at zero.
    #[must_use]
    pub fn from_zero(mut self) -> Self {
        let first = self.spans.iter().map(|span| span.start).fold(f64::MAX, f64::min);
        for span in &mut self.spans {
            span.start -= first;
            span.end -= first;
        }
        self
    }

    /// The mean work of each rank's operations by pass and stage: what a simulation may use as the
    /// cost.
    pub fn costs(&self) -> impl Fn(usize, StagePass) -> f64 + use<> {
        let mut sums = HashMap::<_, (f64, f64)>::new();
        for PassSpan { rank, op, work, .. } in &self.spans {
            let (sum, count) = sums.entry((*rank, op.pass, op.chunk)).or_default();
            *sum += work;
            *count += 1.0;
        }
        move |rank, op| sums.get(&(rank, op.pass, op.chunk)).map_or(0.0, |(sum, count)| sum / count)
    }

    /// From zero to the end of the last.
    pub fn length(&self) -> f64 {
        self.spans.iter().map(|span| span.end).fold(0.0, f64::max)
    }

    /// The share of ranks times length in which nothing ran.
    pub fn idle(&self) -> f64 {
        let busy: f64 = self.spans.iter().map(|span| span.end - span.start).sum();
        1.0 - busy / (self.length() * self.ranks as f64)
    }

    /// The most micro-batches whose activations `rank` holds at once, in units of all its stages.
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

/// Runs a plan on paper: each operation starts when its rank is free and what it needs is done, and
/// takes `cost`.
///
/// # Errors
/// A sentence that names the operations that wait for one another, if the plan never ends.
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

/// The cost of equal stages: a backward takes twice as long as a forward, and all of a rank's
/// stages 1 and 2.
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
