//! What reaches threads that wait, from others of their process.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Raised once, by whoever learns that a communicator cannot go on; looked at by waits that have
/// become slow. And a count of those who can do nothing before such waits end, which makes these
/// waits less patient. Both wake who [sleeps](Self::sleep) here.
///
/// ```
/// let alarm = maypole_transports::Alarm::default();
/// assert!(!alarm.raised());
/// alarm.raise();
/// assert!(alarm.raised());
/// ```
#[derive(Debug, Default)]
pub struct Alarm {
    raised: AtomicBool,
    hurried: AtomicUsize,
    /// Held while a sleeper looks at the others and lies down.
    bed: Mutex<()>,
    wake: Condvar,
}

impl Alarm {
    /// Tells every wait to give up. Idempotent; never taken back.
    pub fn raise(&self) {
        self.raised.store(true, Ordering::Release);
        self.wake();
    }

    /// True once raised. What was written before [`raise`](Self::raise) is visible then.
    pub fn raised(&self) -> bool {
        self.raised.load(Ordering::Acquire)
    }

    /// Says, until what it gives is dropped, that a thread does nothing but wait for what other
    /// threads of its process wait for.
    ///
    /// ```
    /// let alarm = maypole_transports::Alarm::default();
    /// let hurry = alarm.hurry();
    /// assert!(alarm.is_hurried());
    /// drop(hurry);
    /// assert!(!alarm.is_hurried());
    /// ```
    pub fn hurry(&self) -> Hurry<'_> {
        self.hurried.fetch_add(1, Ordering::Relaxed);
        self.wake();
        Hurry(self)
    }

    /// True while somebody [hurries](Self::hurry).
    pub fn is_hurried(&self) -> bool {
        self.hurried.load(Ordering::Relaxed) > 0
    }

    /// Sleeps for `length`, or until it is raised or somebody hurries; not at all if either is so
    /// already.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// let (alarm, start) = (maypole_transports::Alarm::default(), Instant::now());
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| alarm.sleep(Duration::from_secs(600)));
    ///     alarm.raise();
    /// });
    /// assert!(start.elapsed() < Duration::from_secs(600));
    /// ```
    pub fn sleep(&self, length: Duration) {
        let bed = self.bed.lock().unwrap_or_else(PoisonError::into_inner);
        // Whether the time was over matters to nobody.
        let _ =
            self.wake.wait_timeout_while(bed, length, |()| !self.raised() && !self.is_hurried());
    }

    fn wake(&self) {
        // Who has looked already lies down before this, and hears what follows; who has not will
        // see what was written.
        drop(self.bed.lock().unwrap_or_else(PoisonError::into_inner));
        self.wake.notify_all();
    }
}

/// Somebody is in a hurry; see [`Alarm::hurry`].
#[derive(Debug)]
pub struct Hurry<'a>(&'a Alarm);

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        self.0.hurried.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn who_hurries_wakes_all_who_sleep_and_nobody_lies_down_meanwhile() {
        let (alarm, start) = (Alarm::default(), Instant::now());
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| alarm.sleep(LONG));
            }
            // Those who lie down after it ended would sleep on: it never does.
            std::mem::forget(alarm.hurry());
            alarm.sleep(LONG);
        });
        assert!(start.elapsed() < LONG);
    }

    #[test]
    fn without_a_reason_to_wake_a_sleep_has_its_length() {
        let (alarm, start, length) = (Alarm::default(), Instant::now(), Duration::from_millis(20));
        drop(alarm.hurry());
        alarm.sleep(length);
        assert!(start.elapsed() >= length);
    }
}
