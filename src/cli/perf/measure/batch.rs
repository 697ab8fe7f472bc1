//! A batch of back-to-back calls, and what can be timed in batches.

use maypole::algorithms::Algorithm;
use maypole::{CallPath, Communicator, Result};
use maypole_transports::clock::monotonic_ns;

/// A batch of back-to-back calls.
#[derive(Clone, Copy, Default)]
pub(crate) struct CallBatch {
    /// The seed of the inputs.
    pub(crate) number: u64,
    pub(crate) calls: u64,
    /// The index of the call whose result is checked: beyond the last one, if none is.
    pub(crate) checked: u64,
    /// The number of calls before this batch.
    pub(crate) before: u64,
    /// Leave out every call with a number divisible by this.
    pub(crate) leave_out: Option<u64>,
    /// This rank computes before each call, to be found slow.
    pub(crate) is_slow: bool,
}

/// Nanoseconds that a slow rank computes before each call.
pub(crate) const SLOW_NS: u64 = 200_000;

impl CallBatch {
    /// False if the call `index` is to be left out. A slow rank computes first.
    #[inline]
    pub(crate) fn begins(&self, index: u64) -> bool {
        if self.is_slow {
            let start = monotonic_ns();
            while monotonic_ns() - start < SLOW_NS {}
        }
        !self.leave_out.is_some_and(|every| (self.before + index + 1).is_multiple_of(every))
    }
}

/// Nanoseconds of the machine's clock at the start and at the end.
pub(crate) type Times = (u64, u64);
/// The times of a rank that took no part in a batch.
pub(crate) const NO_TIMES: Times = (u64::MAX, 0);

/// What a [`Sampler`] times: calls on buffers, whose results can be checked.
pub(crate) trait SampledWork {
    /// Fills the inputs of a batch and poisons the outputs, there where the calls are made.
    fn fill(&mut self, batch: &CallBatch) -> Result<()>;

    /// Makes the calls and times them.
    fn run(&mut self, comm: &mut Communicator, batch: &CallBatch) -> Result<Times>;

    /// Wrong elements of this rank's results.
    fn wrong(&mut self, batch: &CallBatch) -> Result<u64>;

    /// The algorithm to set for the calls.
    fn algorithm(&self) -> Option<Algorithm> {
        None
    }

    /// How the calls run, if the communicator keeps no note of it.
    fn kind(&self) -> Option<(&'static str, CallPath)> {
        None
    }

    /// The divisor of the time of a call, for calls of several messages.
    fn parts(&self) -> f64 {
        1.0
    }
}

/// Nanoseconds from the first start to the last end.
pub(super) fn span(ranks: &[Times]) -> u64 {
    let start = ranks.iter().map(|rank| rank.0).min().unwrap_or(0);
    ranks.iter().map(|rank| rank.1).max().unwrap_or(0).saturating_sub(start)
}

/// The longest duration of a rank in nanoseconds, for ranks whose clocks cannot be compared.
pub(super) fn longest(ranks: &[Times]) -> u64 {
    ranks.iter().map(|rank| rank.1.saturating_sub(rank.0)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_goes_from_the_first_start_to_the_last_end() {
        let ranks = [(10, 50), (20, 70), NO_TIMES];
        assert_eq!((span(&ranks), longest(&ranks)), (60, 50));
        assert_eq!((span(&[NO_TIMES]), longest(&[NO_TIMES])), (0, 0));
    }
}
