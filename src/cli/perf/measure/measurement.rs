//! The statistics of a point's samples.

use super::noise::Noise;
use super::rank_times::RankTimes;
use super::summary::Summary;
use maypole::CallPath;

/// The samples of one point in one placement.
#[derive(Clone, Debug)]
pub(crate) struct Measurement {
    /// Microseconds a call.
    pub(crate) time: Summary,
    /// Microseconds a call in each batch, in the order of the batches.
    pub(crate) samples: Vec<f64>,
    /// What other programs took while the samples were taken.
    pub(crate) noise: Noise,
    /// What each rank took.
    pub(crate) ranks: RankTimes,
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

impl Measurement {
    /// The samples of both, which are of one point.
    pub(crate) fn joined(mut self, later: Self) -> Self {
        self.samples.extend(later.samples);
        self.time = Summary::of(&self.samples).unwrap_or(self.time);
        self.wrong = self.wrong.zip(later.wrong).map(|(before, now)| before + now);
        self.calls += later.calls;
        self.batches += later.batches;
        self.noise = self.noise.joined(later.noise);
        self
    }
}
