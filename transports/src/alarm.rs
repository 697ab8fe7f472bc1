//! The abort word: how a process's service thread reaches ranks that wait.

use std::sync::atomic::{AtomicBool, Ordering};

/// Raised once, by whoever learns that a communicator cannot go on; looked at by waits that have become slow.
///
/// ```
/// let alarm = maypole_transports::Alarm::default();
/// assert!(!alarm.raised());
/// alarm.raise();
/// assert!(alarm.raised());
/// ```
#[derive(Debug, Default)]
pub struct Alarm(AtomicBool);

impl Alarm {
    /// Tells every wait to give up. Idempotent; never taken back.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// True once raised. What was written before [`raise`](Self::raise) is visible then.
    pub fn raised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
