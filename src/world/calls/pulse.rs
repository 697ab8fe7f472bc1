//! The word in which a rank publishes the number of its operation.

use std::sync::atomic::{AtomicU64, Ordering};

/// The call that a rank is in, as one atomic word: zero before the first operation, `2 n + 1`
/// within operation `n`, `2 n + 2` after it. The overhead of a call is one store.
#[derive(Debug, Default)]
pub struct Pulse(AtomicU64);

impl Pulse {
    /// Operation `sequence` begins.
    #[inline(always)]
    pub fn enter(&self, sequence: u64) {
        self.0.store(2 * sequence + 1, Ordering::Relaxed);
    }

    /// Operation `sequence` has completed.
    #[inline(always)]
    pub fn exit(&self, sequence: u64) {
        self.0.store(2 * sequence + 2, Ordering::Relaxed);
    }

    /// Undoes [`enter`](Self::enter): operation `sequence` has not begun.
    pub fn back(&self, sequence: u64) {
        self.0.store(2 * sequence, Ordering::Relaxed);
    }

    /// Returns whether the rank is in a call, and the number of its current or last operation;
    /// `None` before the first.
    pub fn read(&self) -> Option<(bool, u64)> {
        let word = self.0.load(Ordering::Relaxed);
        (word > 0).then(|| (word % 2 == 1, (word - 1) / 2))
    }

    /// Returns how many operations have begun.
    pub fn begun(&self) -> u64 {
        self.0.load(Ordering::Relaxed).div_ceil(2)
    }

    /// Returns how many operations have completed.
    pub fn completed(&self) -> u64 {
        self.0.load(Ordering::Relaxed) / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pulse_counts_what_has_begun_and_what_is_over() {
        let pulse = Pulse::default();
        let counts = |pulse: &Pulse| (pulse.read(), pulse.begun(), pulse.completed());
        assert_eq!(counts(&pulse), (None, 0, 0));
        pulse.enter(0);
        assert_eq!(counts(&pulse), (Some((true, 0)), 1, 0));
        pulse.exit(0);
        assert_eq!(counts(&pulse), (Some((false, 0)), 1, 1));
        pulse.enter(1);
        assert_eq!(counts(&pulse), (Some((true, 1)), 2, 1));
        pulse.back(1);
        assert_eq!(counts(&pulse), (Some((false, 0)), 1, 1));
    }
}
