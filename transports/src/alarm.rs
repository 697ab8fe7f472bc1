//! What reaches threads that wait, from others of their process.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Raised once, by whoever learns that a communicator cannot go on; looked at by waits that have become slow. And a count
/// of those who can do nothing before such waits end, which makes these waits less patient.
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
}

impl Alarm {
    /// Tells every wait to give up. Idempotent; never taken back.
    pub fn raise(&self) {
        self.raised.store(true, Ordering::Release);
    }

    /// True once raised. What was written before [`raise`](Self::raise) is visible then.
    pub fn raised(&self) -> bool {
        self.raised.load(Ordering::Acquire)
    }

    /// Says, until what it gives is dropped, that a thread does nothing but wait for what other threads of its process wait
    /// for.
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
        Hurry(self)
    }

    /// True while somebody [hurries](Self::hurry).
    pub fn is_hurried(&self) -> bool {
        self.hurried.load(Ordering::Relaxed) > 0
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
