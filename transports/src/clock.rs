//! The monotonic clock of this host.

use rustix::time::{ClockId, clock_gettime};

/// Returns the host's monotonic time in nanoseconds. It never decreases, and does not jump when
/// the date is set.
///
/// All processes of one host read the same clock, so their times can be compared, unless a
/// container has a time namespace with an offset of its own. Times of different hosts, or of
/// different boots, cannot be compared.
///
/// A call takes 20 to 40 ns, and no system call where the vDSO provides the clock.
///
/// ```
/// use maypole_transports::clock::monotonic_ns;
///
/// let start = monotonic_ns();
/// assert!(monotonic_ns() >= start);
/// ```
#[inline]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_runs_and_never_goes_back() {
        let start = monotonic_ns();
        let mut last = start;
        while last < start + 1_000_000 {
            let now = monotonic_ns();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn threads_share_the_clock() {
        let before = monotonic_ns();
        let there = std::thread::spawn(monotonic_ns).join().unwrap();
        assert!(before <= there && there <= monotonic_ns());
    }
}
