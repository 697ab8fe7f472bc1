//! How long the calls of a stretch took on one rank.

use super::Datapath;
use arrayvec::ArrayVec;
use std::time::Duration;

/// Calls of a stretch that are timed at most.
pub(super) const MOST_TIMED: usize = 64;
/// A call that takes so many times the median counts as that: it was interrupted.
const MOST_TIMES_MEDIAN: u64 = 4;

/// Calls of one kind that are made in one way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Stretch {
    pub(super) way: Datapath,
    pub(super) calls: u32,
    /// Those among them that come before the first that is timed.
    pub(super) untimed: u32,
    /// From then on, one call in so many is timed.
    pub(super) every: u32,
}

/// The calls of one stretch on this rank.
#[derive(Debug)]
pub(super) struct StretchClock {
    pub(super) stretch: Stretch,
    /// Calls that have begun.
    begun: u32,
    /// Nanoseconds of those that were timed.
    samples: ArrayVec<u64, MOST_TIMED>,
}

impl StretchClock {
    pub(super) fn new(stretch: Stretch) -> Self {
        Self { stretch, begun: 0, samples: ArrayVec::new() }
    }

    /// True if all calls of the stretch have begun.
    pub(super) fn is_over(&self) -> bool {
        self.begun >= self.stretch.calls
    }

    /// A call begins. Returns true if it is timed.
    pub(super) fn begin(&mut self) -> bool {
        let at = self.begun;
        self.begun += 1;
        let Stretch { untimed, every, .. } = self.stretch;
        at >= untimed && (at - untimed).is_multiple_of(every) && !self.samples.is_full()
    }

    /// A call that was timed has ended.
    pub(super) fn note(&mut self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // A call that was begun for a stretch that has ended since has no room here.
        let _ = self.samples.try_push(nanoseconds);
    }

    /// Nanoseconds of a call: the mean, in which calls that were interrupted count as long ones. Zero if none
    /// was timed.
    pub(super) fn call_ns(&self) -> u64 {
        let mut sorted = self.samples.clone();
        sorted.sort_unstable();
        let Some(median) = sorted.get(sorted.len() / 2) else { return 0 };
        let most = MOST_TIMES_MEDIAN.saturating_mul(*median);
        let sum: u128 = sorted.iter().map(|sample| u128::from(*sample.min(&most))).sum();
        (sum / sorted.len() as u128) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execute::StoreWay;

    fn clock(times: &[u64]) -> StretchClock {
        let calls = times.len() as u32;
        let way = Datapath::Slots(StoreWay::Ordinary);
        let mut clock = StretchClock::new(Stretch { way, calls, untimed: 0, every: 1 });
        for time in times {
            assert!(clock.begin());
            clock.note(Duration::from_nanos(*time));
        }
        clock
    }

    /// A root that runs ahead makes some calls in no time, and then waits for its readers.
    #[test]
    fn quick_calls_do_not_make_a_stretch_quick() {
        assert_eq!(clock(&[10, 190, 10, 190, 10, 190]).call_ns(), 100);
    }

    #[test]
    fn an_interruption_counts_as_one_long_call() {
        assert_eq!(clock(&[100, 100, 5_000_000, 100]).call_ns(), 175);
        assert_eq!(clock(&[]).call_ns(), 0);
    }

    #[test]
    fn calls_are_timed_behind_the_first_ones_and_then_now_and_then() {
        let way = Datapath::Copied;
        let mut clock = StretchClock::new(Stretch { way, calls: 10, untimed: 2, every: 3 });
        let timed: Vec<u32> = (0..10).filter(|_| clock.begin()).collect();
        assert_eq!(timed, [2, 5, 8]);
        assert!(clock.is_over());
    }
}
