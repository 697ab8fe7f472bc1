//! Takes the samples.
//!
//! A sample is one batch of back-to-back calls. Its time runs from the earliest start to the latest
//! end of all ranks, and is divided by the number of calls. A batch has so many calls that it lasts
//! about 400 us. Before a batch the ranks meet at a barrier, and after it they exchange their
//! times; neither is timed. Between the two they meet at another barrier: where ranks share a core,
//! a rank that already checked its result would take the core from those whose calls still run.
//!
//! Each batch finds its inputs as their rank has just written them. Most other benchmarks write
//! them once, so that the caches of the ranks that read them hold them in every later call. A
//! comparison with those asks for the same ([`SamplingOptions::reuse`]).
//!
//! # What the check notices
//!
//! One call of each batch is checked. Every batch has new inputs, a poisoned output for the
//! checked call, and another position of that call in the batch. So a result that is missing,
//! stale, late or that of another rank is counted as wrong.
//!
//! Suppose a library leaves out one call in a hundred. Calls that last 400 us or longer are alone
//! in their batch, so all are checked. Of shorter calls only some are checked while the clock
//! runs. Therefore [`CHECKED_IN_A_ROW`] calls, more than a hundred, are made one by one before the
//! samples, each with new inputs and each checked, without timing.

#[cfg(feature = "cuda")]
pub(crate) mod device;
pub(crate) mod distance;
pub(crate) mod limits;
pub(crate) mod summary;
pub(crate) mod workload;

use crate::perf::check::values::hash;
use crate::perf::mapping::RankMapping;
use crate::perf::measure::summary::Summary;
use crate::perf::measure::workload::{CallBatch, Workload};
use maypole::{CallPath, Communicator, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Microseconds that a batch lasts, about.
const BATCH_US: f64 = 400.0;
const MOST_CALLS: f64 = 20_000.0;
/// How often the number of calls of a batch is corrected, at most.
const CORRECTIONS: usize = 8;
/// The fewest and the most samples of a point.
const FEWEST: usize = 5;
const MOST: usize = 400;
/// A point that takes longer than this many budgets gets only [`FEWEST_IF_SLOW`] samples.
const SLOW_AFTER_BUDGETS: u32 = 20;
const FEWEST_IF_SLOW: usize = 3;
/// How many calls in a row are checked one by one before the samples.
const CHECKED_IN_A_ROW: usize = 128;

/// The calls of a batch, where one takes `us` microseconds.
fn calls_of_batch(us: f64) -> u64 {
    if us >= BATCH_US { 1 } else { (BATCH_US / us.max(0.05)).clamp(1.0, MOST_CALLS) as u64 }
}

/// How many samples are taken of each point, and whether they are checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SamplingOptions {
    pub(crate) iters: Option<usize>,
    pub(crate) warmup: usize,
    pub(crate) budget: Duration,
    pub(crate) check: bool,
    /// Only the first sample of a point has new inputs and is checked. The untimed calls before it
    /// have new inputs and are checked in any case.
    pub(crate) reuse: bool,
    /// Leave out every call with a number divisible by this, to test the check.
    pub(crate) leave_out: Option<usize>,
}

/// The samples of one point in one placement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measurement {
    /// Microseconds a call.
    pub(crate) time: Summary,
    /// Wrong elements on all ranks; `None` without a check.
    pub(crate) wrong: Option<u64>,
    /// Number of timed calls.
    pub(crate) calls: u64,
    /// Number of batches that they were timed in.
    pub(crate) batches: usize,
    /// The algorithm by which the last of them ran.
    pub(crate) algorithm: &'static str,
    /// How ranks got at each other's bytes in it.
    pub(crate) path: CallPath,
}

/// Takes samples with one communicator.
pub(crate) struct Sampler<'a> {
    pub(crate) comm: Communicator,
    /// The same ranks on GPUs, if the calls are made there.
    #[cfg(feature = "cuda")]
    pub(crate) gpu: Option<std::sync::Arc<maypole::cuda::Comm>>,
    options: SamplingOptions,
    /// Set when this process gets Ctrl-C.
    stop: &'a AtomicBool,
    /// All ranks read one clock.
    one_clock: bool,
    /// Whether a second barrier aligns the starts. It helps only where each rank has its own core.
    two_barriers: bool,
    calls: u64,
    batches: u64,
    /// The user of some rank wants to stop. Equal on all ranks.
    pub(crate) stopped: bool,
}

/// The result of a batch, equal on all ranks.
struct BatchResult {
    /// Microseconds a call.
    us: f64,
    /// Wrong elements on all ranks.
    wrong: u64,
    /// The end of the batch by rank 0's clock, in nanoseconds.
    now: u64,
    /// How the last call ran.
    ran: Option<(&'static str, CallPath)>,
}

impl<'a> Sampler<'a> {
    pub(crate) fn new(
        comm: Communicator,
        options: SamplingOptions,
        mapping: &RankMapping,
        stop: &'a AtomicBool,
    ) -> Self {
        let one_clock = mapping.is_one_machine();
        let two_barriers = mapping.has_core_for_each();
        Self {
            comm,
            #[cfg(feature = "cuda")]
            gpu: None,
            options,
            stop,
            one_clock,
            two_barriers,
            calls: 0,
            batches: 0,
            stopped: false,
        }
    }

    /// Measures one workload. Returns `None` if the user stops before the first sample.
    pub(crate) fn measure(&mut self, work: &mut Workload<'_>) -> Result<Option<Measurement>> {
        let mut wrong = self.check_one_by_one(work, self.options.warmup)?;
        let (calls, wrong_there) = self.plan(work)?;
        wrong += wrong_there;
        if calls > 1 && self.options.check {
            wrong += self.check_one_by_one(work, CHECKED_IN_A_ROW)?;
        }
        let mut samples = Vec::new();
        let mut left = self.options.iters.map(|iters| iters as u64);
        let mut ran = None;
        let mut begun = None;
        let mut elapsed = Duration::ZERO;
        while !self.stopped && !self.enough(samples.len(), elapsed, left) {
            let calls = left.map_or(calls, |left| left.min(calls));
            let has_new_inputs = samples.is_empty() || !self.options.reuse;
            let joint = self.batch(work, calls, has_new_inputs)?;
            ran = joint.ran;
            samples.push((joint.us, calls));
            wrong += joint.wrong;
            left = left.map(|left| left - calls);
            // Time is counted from the end of the first batch, by rank 0's clock.
            elapsed =
                Duration::from_nanos(joint.now.saturating_sub(*begun.get_or_insert(joint.now)));
        }
        let times: Vec<f64> = samples.iter().map(|(us, _)| *us).collect();
        let calls = samples.iter().map(|(_, calls)| calls).sum();
        let wrong = self.options.check.then_some(wrong);
        let measured = Summary::of(&times).zip(ran).map(|(time, ran)| Measurement {
            time,
            wrong,
            calls,
            batches: times.len(),
            algorithm: ran.0,
            path: ran.1,
        });
        Ok(measured)
    }

    fn enough(&self, samples: usize, elapsed: Duration, left: Option<u64>) -> bool {
        let budget = self.options.budget;
        match left {
            Some(left) => left == 0,
            None if samples >= MOST => true,
            None if samples >= FEWEST => elapsed > budget,
            None => samples >= FEWEST_IF_SLOW && elapsed > budget * SLOW_AFTER_BUDGETS,
        }
    }

    /// Finds the number of calls in a batch. Returns it with the number of wrong elements on the
    /// way. The fastest of several trials counts, because a trial may be preempted.
    fn plan(&mut self, work: &mut Workload<'_>) -> Result<(u64, u64)> {
        let first = self.batch(work, 1, true)?;
        let mut us = first.us;
        let mut wrong = first.wrong;
        let mut tries = |sampler: &mut Self, times, calls| {
            for _ in 0..times {
                let joint = sampler.batch(work, calls, true)?;
                us = us.min(joint.us);
                wrong += joint.wrong;
            }
            Ok::<f64, maypole::Error>(us)
        };
        // On crowded cores, a call alone lasts until its ranks have had their turns.
        let short = if self.two_barriers { 150.0 } else { 5e3 };
        let mut least = first.us;
        if first.us <= 50e3 {
            least = tries(self, 2, 1)?;
        }
        if least <= short {
            least = tries(self, 3, 10)?;
        }
        // A row of many calls takes less time a call than few do, so the number is corrected.
        let mut calls = calls_of_batch(least);
        for _ in 0..CORRECTIONS {
            let better = if calls > 1 { calls_of_batch(tries(self, 1, calls)?) } else { 1 };
            if better < 2 * calls {
                break;
            }
            calls = better;
        }
        Ok((calls, wrong))
    }

    /// Makes `calls` untimed calls, each with new inputs and checked. Returns the wrong elements.
    fn check_one_by_one(&mut self, work: &mut Workload<'_>, calls: usize) -> Result<u64> {
        let mut wrong = 0;
        for _ in 0..calls {
            let batch = self.next(1);
            work.fill(&batch);
            work.upload()?;
            self.run(work, &batch)?;
            wrong += self.wrong(work, &batch)?;
        }
        Ok(self.share((0, 0), 1, wrong)?.wrong)
    }

    /// Takes one sample. Without new inputs, the buffers stay as the batch before left them, and
    /// nothing is checked.
    fn batch(
        &mut self,
        work: &mut Workload<'_>,
        calls: u64,
        has_new_inputs: bool,
    ) -> Result<BatchResult> {
        let batch = self.next(calls);
        if has_new_inputs {
            work.fill(&batch);
            work.upload()?;
        }
        self.comm.barrier()?;
        if self.two_barriers {
            self.comm.barrier()?;
        }
        let times = self.run(work, &batch)?;
        let ran = self.last_call(work);
        self.comm.barrier()?;
        let wrong = if has_new_inputs { self.wrong(work, &batch)? } else { 0 };
        Ok(BatchResult { ran, ..self.share(times, calls, wrong)? })
    }

    fn next(&mut self, calls: u64) -> CallBatch {
        let number = self.batches;
        let before = self.calls;
        self.batches += 1;
        self.calls += calls;
        let leave_out = self.options.leave_out.map(|every| every as u64);
        CallBatch { number, calls, checked: hash(number) % calls, before, leave_out }
    }

    /// Sets the measured algorithm for these calls only, because it may not implement the barriers
    /// between them.
    fn run(&mut self, work: &mut Workload<'_>, batch: &CallBatch) -> Result<(u64, u64)> {
        self.comm.set_algorithm(work.point.algorithm);
        let times = work.run(&mut self.comm, batch);
        self.comm.set_algorithm(None);
        times
    }

    /// How the last call ran.
    fn last_call(&self, work: &Workload<'_>) -> Option<(&'static str, CallPath)> {
        if work.is_own() {
            // The library keeps no note of such a call, and runs it through slots and streams.
            return Some(("own", CallPath::Staged));
        }
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            return gpu.last_algorithm().map(|last| (last.name(), CallPath::Staged));
        }
        self.comm.last_call().map(|last| (last.algorithm, last.path))
    }

    fn wrong(&self, work: &mut Workload<'_>, batch: &CallBatch) -> Result<u64> {
        if !self.options.check {
            return Ok(0);
        }
        work.download()?;
        Ok(work.wrong(batch))
    }

    /// Exchanges the times, the wrong elements and the wish to stop of all ranks, so that all
    /// ranks decide alike.
    fn share(&mut self, (start, end): (u64, u64), calls: u64, wrong: u64) -> Result<BatchResult> {
        let mine = [start, end, wrong, u64::from(self.stop.load(Ordering::Relaxed))];
        let mut all = vec![0; mine.len() * self.comm.world()];
        self.comm.all_gather((&mine, &mut all))?;
        let (ranks, _) = all.as_chunks::<4>();
        self.stopped |= ranks.iter().any(|[.., stop]| *stop != 0);
        let ns = if self.one_clock { span(ranks) } else { longest(ranks) };
        let wrong = ranks.iter().map(|[_, _, wrong, _]| wrong).sum();
        Ok(BatchResult { us: ns as f64 / 1e3 / calls as f64, wrong, now: ranks[0][1], ran: None })
    }
}

/// Nanoseconds from the first start to the last end.
fn span(ranks: &[[u64; 4]]) -> u64 {
    let start = ranks.iter().map(|rank| rank[0]).min().unwrap_or(0);
    ranks.iter().map(|rank| rank[1]).max().unwrap_or(0) - start
}

/// The longest duration of a rank in nanoseconds, for ranks whose clocks cannot be compared.
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
