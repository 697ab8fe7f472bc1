//! Takes the samples.
//!
//! A sample is one batch of back-to-back calls, or one call ([`SamplingOptions::together`]). Its time runs from the earliest start to the latest
//! end of all ranks, and is divided by the number of calls. A batch has so many calls that it lasts
//! about 400 us. Before a batch the ranks meet at a barrier, and after it they exchange their
//! times; neither is timed. Between the two they meet at another barrier: where ranks share a core,
//! a rank that already checked its result would take the core from those whose calls still run.
//!
//! Each batch finds its inputs as their rank has just written them. Most other benchmarks write
//! them once, so that the caches of the ranks that read them hold them in every later call. A
//! comparison with those sets the same ([`SamplingOptions::reuse_buffers`]).
//!
//! # Errors that the check detects
//!
//! One call of each batch is checked. Every batch has new inputs, a poisoned output for the
//! checked call, and another position of that call in the batch. So a result that is missing,
//! stale, late or that of another rank is counted as wrong.
//!
//! Suppose a library leaves out one call in a hundred. Calls that last 400 us or longer are alone
//! in their batch, so all are checked. Of shorter calls only some are checked while the clock
//! runs. Therefore [`CHECKED_IN_A_ROW`] calls, more than a hundred, are made one by one before the
//! samples, each with new inputs and each checked, without timing.
//!
//! # Warm-up and noise
//!
//! Caches, connections and the clock of a core may still change in the first calls, which are
//! therefore not timed ([`SamplingOptions::warmup`]). While samples are taken, each rank counts the
//! time that other programs took from it ([`noise`]).

pub(crate) mod batch;
pub(crate) mod calls;
#[cfg(feature = "cuda")]
pub(crate) mod device;
mod measurement;
pub(crate) mod noise;
mod options;
pub(crate) mod overlap;
pub(crate) mod rank_times;
pub(crate) mod summary;
pub(crate) mod workload;

use crate::perf::check::values::hash;
use crate::perf::mapping::RankMapping;
use crate::perf::measure::batch::{CallBatch, SampledWork, Times, longest, span};
pub(crate) use crate::perf::measure::measurement::Measurement;
use crate::perf::measure::noise::NoiseWatch;
use crate::perf::measure::rank_times::RankTimes;
use crate::perf::measure::summary::Summary;
use crate::perf::off_cache::CacheSweep;
use maypole::{CallPath, Communicator, Result};
use maypole_transports::clock::monotonic_ns;
pub(crate) use options::SamplingOptions;
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
    noise: NoiseWatch,
    sweep: Option<CacheSweep>,
    calls: u64,
    batches: u64,
    /// The user of some rank has interrupted it. Equal on all ranks.
    pub(crate) stopped: bool,
}

/// Samples in a row, equal on all ranks.
#[derive(Default)]
struct SampleSeries {
    /// Microseconds a call.
    us: Vec<f64>,
    wrong: u64,
    calls: u64,
    ran: Option<(&'static str, CallPath)>,
    ranks: RankTimes,
}

impl SampleSeries {
    fn add(&mut self, batch: BatchResult, calls: u64, parts: f64, one_clock: bool) {
        self.us.push(batch.us / parts);
        self.wrong += batch.wrong;
        self.calls += calls;
        self.ran = batch.ran;
        self.ranks.add(&batch.ranks, calls as f64 * parts, one_clock);
    }
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
    /// Nanoseconds of each rank, and its start. `None` for a rank that took no part.
    ranks: Vec<Option<(u64, u64)>>,
}

impl<'a> Sampler<'a> {
    /// # Errors
    ///
    /// If there is no memory for the bytes that take the place of others in caches.
    pub(crate) fn new(
        comm: Communicator,
        options: SamplingOptions,
        mapping: &RankMapping,
        stop: &'a AtomicBool,
    ) -> anyhow::Result<Self> {
        let one_clock = mapping.is_one_machine();
        let two_barriers = mapping.has_core_for_each();
        Ok(Self {
            comm,
            #[cfg(feature = "cuda")]
            gpu: None,
            options,
            stop,
            one_clock,
            two_barriers,
            noise: NoiseWatch::new(mapping),
            sweep: options.off_cache.map(CacheSweep::new).transpose()?,
            calls: 0,
            batches: 0,
            stopped: false,
        })
    }

    /// Measures one workload. Returns `None` if the user stops before the first sample.
    pub(crate) fn measure(&mut self, work: &mut dyn SampledWork) -> Result<Option<Measurement>> {
        let mut wrong = self.check_one_by_one(work, self.options.warmup, Duration::MAX)?;
        let (calls, wrong_there) = self.plan(work)?;
        wrong += wrong_there;
        if calls > 1 && self.options.check {
            let longest = self.options.budget * SLOW_AFTER_BUDGETS;
            wrong += self.check_one_by_one(work, self.options.in_a_row, longest)?;
        }
        let before = self.noise.begin();
        let series = self.series(work, calls)?;
        wrong += series.wrong;
        let noise = self.noise.end(&mut self.comm, &before)?;
        let Some(time) = Summary::of(&series.us) else { return Ok(None) };
        let ran = series.ran.unwrap_or(("unknown", CallPath::Staged));
        Ok(Some(Measurement {
            time,
            noise,
            ranks: series.ranks,
            wrong: self.options.check.then_some(wrong),
            calls: series.calls,
            batches: series.us.len(),
            samples: series.us,
            algorithm: ran.0,
            path: ran.1,
        }))
    }

    /// Takes the samples of one workload, in batches of `calls`.
    fn series(&mut self, work: &mut dyn SampledWork, calls: u64) -> Result<SampleSeries> {
        let mut series = SampleSeries::default();
        let mut left = self.options.iters.map(|iters| iters as u64);
        let mut begun = None;
        let mut elapsed = Duration::ZERO;
        while !self.stopped && !self.enough(series.us.len(), elapsed, left) {
            let calls = left.map_or(calls, |left| left.min(calls));
            let has_new_inputs = series.us.is_empty() || !self.options.reuse_buffers;
            let joint = self.batch(work, calls, has_new_inputs)?;
            left = left.map(|left| left - calls);
            // Time is counted from the end of the first batch, by rank 0's clock.
            elapsed =
                Duration::from_nanos(joint.now.saturating_sub(*begun.get_or_insert(joint.now)));
            series.add(joint, calls, work.parts(), self.one_clock);
        }
        series.ranks.finish();
        Ok(series)
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
    fn plan(&mut self, work: &mut dyn SampledWork) -> Result<(u64, u64)> {
        let before = self.share((0, 0), 1, 0)?.now;
        let first = self.batch(work, 1, true)?;
        // Inputs that take long to make, and to move to a GPU, are made for what is measured.
        let took = Duration::from_nanos(first.now.saturating_sub(before));
        let is_quick = took <= self.options.budget;
        if self.options.together || self.sweep.is_some() {
            return Ok((1, first.wrong));
        }
        let mut us = first.us;
        let mut wrong = first.wrong;
        let mut tries = |sampler: &mut Self, times, calls| {
            for _ in 0..times {
                let joint = sampler.batch(&mut *work, calls, is_quick)?;
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

    /// Makes `calls` untimed calls, each with new inputs and checked, or as many as begin within `longest`.
    /// Returns the wrong elements.
    fn check_one_by_one(
        &mut self,
        work: &mut dyn SampledWork,
        calls: usize,
        longest: Duration,
    ) -> Result<u64> {
        let mut wrong = 0;
        let begun = self.share((0, 0), 1, 0)?.now;
        for _ in 0..calls {
            let batch = self.next(1);
            work.fill(&batch)?;
            self.run(work, &batch)?;
            let wrong_here = self.wrong(work, &batch)?;
            let joint = self.share((0, 0), 1, wrong_here)?;
            wrong += joint.wrong;
            let elapsed = Duration::from_nanos(joint.now.saturating_sub(begun));
            if elapsed > longest {
                break;
            }
        }
        Ok(wrong)
    }

    /// Takes one sample. Without new inputs, the buffers stay as the batch before left them, and
    /// nothing is checked.
    fn batch(
        &mut self,
        work: &mut dyn SampledWork,
        calls: u64,
        has_new_inputs: bool,
    ) -> Result<BatchResult> {
        let mut batch = self.next(calls);
        if has_new_inputs {
            work.fill(&batch)?;
        } else if calls > 1 {
            // All calls have the same output then, as those of other benchmarks: two would take twice the
            // room in caches.
            batch.checked = u64::MAX;
        }
        if let Some(sweep) = &mut self.sweep {
            sweep.sweep();
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
        let leave_out = self.options.sabotage.map(|every| every as u64);
        let is_slow = self.options.slow_rank == Some(self.comm.rank());
        CallBatch { number, calls, checked: hash(number) % calls, before, leave_out, is_slow }
    }

    /// Sets the measured algorithm for these calls only, because it may not implement the barriers
    /// between them.
    fn run(&mut self, work: &mut dyn SampledWork, batch: &CallBatch) -> Result<(u64, u64)> {
        self.comm.set_algorithm(work.algorithm());
        let times = work.run(&mut self.comm, batch);
        self.comm.set_algorithm(None);
        times
    }

    /// How the last call ran.
    fn last_call(&self, work: &dyn SampledWork) -> Option<(&'static str, CallPath)> {
        if let Some(kind) = work.kind() {
            return Some(kind);
        }
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            return gpu.last_algorithm().map(|last| (last.name(), CallPath::Staged));
        }
        self.comm.last_call().map(|last| (last.algorithm, last.path))
    }

    fn wrong(&self, work: &mut dyn SampledWork, batch: &CallBatch) -> Result<u64> {
        if self.options.check { work.wrong(batch) } else { Ok(0) }
    }

    /// Exchanges the times, the wrong elements and the wish to stop of all ranks, so that all
    /// ranks decide alike.
    fn share(&mut self, (start, end): (u64, u64), calls: u64, wrong: u64) -> Result<BatchResult> {
        let stop = u64::from(self.stop.load(Ordering::Relaxed));
        let mine = [start, end, wrong, stop, monotonic_ns()];
        let mut all = vec![0; mine.len() * self.comm.world()];
        self.comm.all_gather((&mine, &mut all))?;
        let (ranks, _) = all.as_chunks::<5>();
        self.stopped |= ranks.iter().any(|[.., stop, _]| *stop != 0);
        let times = ranks.iter().map(|[start, end, ..]| (*start, *end)).collect::<Vec<Times>>();
        let ns = if self.one_clock { span(&times) } else { longest(&times) };
        let wrong = ranks.iter().map(|[_, _, wrong, ..]| wrong).sum();
        let took_part = |(start, end): Times| end.checked_sub(start).map(|took| (took, start));
        Ok(BatchResult {
            us: ns as f64 / 1e3 / calls as f64,
            wrong,
            now: ranks[0][4],
            ran: None,
            ranks: times.into_iter().map(took_part).collect(),
        })
    }
}
