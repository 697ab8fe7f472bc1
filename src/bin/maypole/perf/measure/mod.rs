//! How samples are taken.
//!
//! A sample is one batch of back-to-back calls between two looks at the clock: from the earliest
//! start to the latest end of all ranks, divided by the calls. There are so many calls in a batch
//! that it lasts about 400 us. Before a batch, ranks meet at a barrier, and after it they exchange
//! their times; neither is on the clock.
//!
//! # What the check would notice
//!
//! Every batch has new inputs and a poisoned output for the one call that is checked, at a place in
//! the batch that changes; so a result that is missing, stale, late or another's is wrong. Say that
//! a library leaves out one call in a hundred. Calls that last 400 us or longer are alone in their
//! batch, so each is checked, and every one left out is noticed. Of shorter ones only some are
//! checked while the clock runs; so after planning come [`REHEARSED`] calls in a row, off the
//! clock, each with new inputs and each checked: one of any hundred consecutive ones is among them.

pub(crate) mod limits;
pub(crate) mod summary;
pub(crate) mod workload;

use crate::perf::check::values::hash;
use crate::perf::mapping::RankMapping;
use crate::perf::measure::summary::Summary;
use crate::perf::measure::workload::{CallBatch, Workload};
use maypole::{Communicator, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A batch lasts about so long.
const BATCH_US: f64 = 400.0;
const MOST_CALLS: f64 = 20_000.0;
/// A point has at least so many samples, and at most.
const FEWEST: usize = 5;
const MOST: usize = 400;
/// A point that would take more than this many budgets has to do with fewer samples.
const PATIENCE: u32 = 20;
const FEWEST_IF_SLOW: usize = 3;
/// Calls in a row that are checked one by one: more than a hundred.
const REHEARSED: usize = 128;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SamplingOptions {
    pub(crate) iters: Option<usize>,
    pub(crate) warmup: usize,
    pub(crate) budget: Duration,
    pub(crate) check: bool,
    /// Every so-many-th call is left out, to see that the check notices.
    pub(crate) leave_out: Option<usize>,
}

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measurement {
    /// Microseconds a call.
    pub(crate) time: Summary,
    /// Wrong elements on all ranks; `None` if nobody looked.
    pub(crate) wrong: Option<u64>,
    /// Calls on the clock.
    pub(crate) calls: u64,
}

/// Takes samples with one communicator.
pub(crate) struct Sampler<'a> {
    pub(crate) comm: Communicator,
    effort: SamplingOptions,
    /// Set when the user wants to stop.
    stop: &'a AtomicBool,
    /// All ranks read one clock.
    one_clock: bool,
    /// A second barrier aligns starts, where each rank has a core to come out of it on.
    twice: bool,
    calls: u64,
    batches: u64,
    /// Somebody's user wants to stop; equal on all ranks.
    pub(crate) stopped: bool,
}

/// What all ranks know of a batch.
struct BatchResult {
    us: f64,
    wrong: u64,
    /// The end by rank 0's clock, in nanoseconds.
    now: u64,
}

impl<'a> Sampler<'a> {
    pub(crate) fn new(
        comm: Communicator,
        effort: SamplingOptions,
        mapping: &RankMapping,
        stop: &'a AtomicBool,
    ) -> Self {
        let one_clock = mapping.is_one_host();
        let twice = mapping.are_enough();
        Self { comm, effort, stop, one_clock, twice, calls: 0, batches: 0, stopped: false }
    }

    /// Samples of one piece of work, or `None` if the user stopped it before the first one.
    pub(crate) fn measure(&mut self, work: &mut Workload<'_>) -> Result<Option<Measurement>> {
        let mut wrong = self.rehearse(work, self.effort.warmup)?;
        let (calls, wrong_there) = self.plan(work)?;
        wrong += wrong_there;
        if calls > 1 && self.effort.check {
            wrong += self.rehearse(work, REHEARSED)?;
        }
        let mut samples = Vec::new();
        let mut left = self.effort.iters.map(|iters| iters as u64);
        let mut begun = None;
        let mut elapsed = Duration::ZERO;
        while !self.stopped && !self.enough(samples.len(), elapsed, left) {
            let calls = left.map_or(calls, |left| left.min(calls));
            let joint = self.batch(work, calls)?;
            samples.push((joint.us, calls));
            wrong += joint.wrong;
            left = left.map(|left| left - calls);
            // The first batch is not counted: where it began is known on one clock only.
            elapsed =
                Duration::from_nanos(joint.now.saturating_sub(*begun.get_or_insert(joint.now)));
        }
        let times: Vec<f64> = samples.iter().map(|(us, _)| *us).collect();
        let calls = samples.iter().map(|(_, calls)| calls).sum();
        let wrong = self.effort.check.then_some(wrong);
        Ok(Summary::of(&times).map(|time| Measurement { time, wrong, calls }))
    }

    fn enough(&self, samples: usize, elapsed: Duration, left: Option<u64>) -> bool {
        let budget = self.effort.budget;
        match left {
            Some(left) => left == 0,
            None if samples >= MOST => true,
            None if samples >= FEWEST => elapsed > budget,
            None => samples >= FEWEST_IF_SLOW && elapsed > budget * PATIENCE,
        }
    }

    /// How many calls make a batch, and what was wrong while that was found out. Of a few tries the
    /// fastest counts, so that one that was preempted does not spoil the plan.
    fn plan(&mut self, work: &mut Workload<'_>) -> Result<(u64, u64)> {
        let first = self.batch(work, 1)?;
        let mut us = first.us;
        let mut wrong = first.wrong;
        let mut tries = |meter: &mut Self, times, calls| {
            for _ in 0..times {
                let joint = meter.batch(work, calls)?;
                us = us.min(joint.us);
                wrong += joint.wrong;
            }
            Ok::<f64, maypole::Error>(us)
        };
        if first.us <= 50e3 && tries(self, 2, 1)? <= 150.0 {
            tries(self, 3, 10)?;
        }
        let calls =
            if us >= BATCH_US { 1.0 } else { (BATCH_US / us.max(0.05)).clamp(1.0, MOST_CALLS) };
        Ok((calls as u64, wrong))
    }

    /// So many calls off the clock, each of them with new inputs and checked.
    fn rehearse(&mut self, work: &mut Workload<'_>, calls: usize) -> Result<u64> {
        let mut wrong = 0;
        for _ in 0..calls {
            let batch = self.next(1);
            work.fill(&batch);
            self.run(work, &batch)?;
            wrong += self.wrong(work, &batch);
        }
        Ok(self.share((0, 0), 1, wrong)?.wrong)
    }

    /// One sample.
    fn batch(&mut self, work: &mut Workload<'_>, calls: u64) -> Result<BatchResult> {
        let batch = self.next(calls);
        work.fill(&batch);
        self.comm.barrier()?;
        if self.twice {
            self.comm.barrier()?;
        }
        let times = self.run(work, &batch)?;
        let wrong = self.wrong(work, &batch);
        self.share(times, calls, wrong)
    }

    fn next(&mut self, calls: u64) -> CallBatch {
        let number = self.batches;
        let before = self.calls;
        self.batches += 1;
        self.calls += calls;
        let leave_out = self.effort.leave_out.map(|every| every as u64);
        CallBatch { number, calls, checked: hash(number) % calls, before, leave_out }
    }

    /// The algorithm that is measured is set for the calls alone: it may have no answer to a
    /// barrier.
    fn run(&mut self, work: &mut Workload<'_>, batch: &CallBatch) -> Result<(u64, u64)> {
        self.comm.set_algorithm(work.point.algorithm);
        let times = work.run(&mut self.comm, batch);
        self.comm.set_algorithm(None);
        times
    }

    fn wrong(&self, work: &Workload<'_>, batch: &CallBatch) -> u64 {
        if self.effort.check { work.wrong(batch) } else { 0 }
    }

    /// Tells the others this rank's times and wrong elements, and whether its user wants to stop,
    /// so that all ranks know the same and decide the same.
    fn share(&mut self, (start, end): (u64, u64), calls: u64, wrong: u64) -> Result<BatchResult> {
        let mine = [start, end, wrong, u64::from(self.stop.load(Ordering::Relaxed))];
        let mut all = vec![0; mine.len() * self.comm.world()];
        self.comm.all_gather(&mine, &mut all)?;
        let (ranks, _) = all.as_chunks::<4>();
        self.stopped |= ranks.iter().any(|[.., stop]| *stop != 0);
        let ns = if self.one_clock { span(ranks) } else { longest(ranks) };
        let wrong = ranks.iter().map(|[_, _, wrong, _]| wrong).sum();
        Ok(BatchResult { us: ns as f64 / 1e3 / calls as f64, wrong, now: ranks[0][1] })
    }
}

/// From the first start to the last end.
fn span(ranks: &[[u64; 4]]) -> u64 {
    let start = ranks.iter().map(|rank| rank[0]).min().unwrap_or(0);
    ranks.iter().map(|rank| rank[1]).max().unwrap_or(0) - start
}

/// The longest of the ranks' own durations: clocks of different hosts have nothing to do with one
/// another.
fn longest(ranks: &[[u64; 4]]) -> u64 {
    ranks.iter().map(|rank| rank[1] - rank[0]).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_goes_from_the_first_start_to_the_last_end() {
        let ranks = [[10, 50, 0, 0], [20, 70, 0, 0]];
        assert_eq!((span(&ranks), longest(&ranks)), (60, 50));
    }
}
