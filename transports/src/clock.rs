//! The time of this host.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds on the host's monotonic clock: it never goes back and does not jump when somebody
/// sets the date.
///
/// Processes of one host read the same clock, so their times can be compared and subtracted,
/// unless a container was given a time namespace of its own with an offset. Between hosts, or
/// across a restart, the figure means nothing.
///
/// Costs some 20 to 40 ns and enters no kernel where the vDSO serves it.
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
