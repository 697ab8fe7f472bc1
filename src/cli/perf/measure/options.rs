//! How the points of a measurement are sampled.

use std::time::Duration;

/// How many samples are taken of each point, and whether they are checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SamplingOptions {
    pub(crate) iters: Option<usize>,
    pub(crate) warmup: usize,
    pub(crate) budget: Duration,
    pub(crate) check: bool,
    /// How many calls are checked one by one before the samples of each series.
    pub(crate) in_a_row: usize,
    /// Only the first sample of a point has new inputs and is checked. The untimed calls before it
    /// have new inputs and are checked in any case.
    pub(crate) reuse: bool,
    /// A batch is one call.
    pub(crate) together: bool,
    /// Leave out every call with a number divisible by this, to test the check.
    pub(crate) leave_out: Option<usize>,
    /// This rank computes for [`SLOW_NS`](super::batch::SLOW_NS) before each call.
    pub(crate) slow: Option<usize>,
    /// So many bytes are written before each sample, so that no cache holds a buffer.
    pub(crate) off_cache: Option<usize>,
}
