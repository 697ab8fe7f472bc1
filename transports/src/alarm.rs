//! Signals from other threads of a process to a thread that waits.

use crate::bell::Bell;
use rustix::thread::futex;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

/// A flag and a count that threads of one process share with the waits of a communicator.
///
/// The flag is raised once, by the thread that detects that the communicator has failed; a slow
/// wait reads it and aborts. The count is the number of foreground threads that wait for the
/// background thread; while it is above zero, the background thread waits as eagerly as a
/// foreground thread. A change of either wakes every thread that sleeps on the alarm.
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
    /// The alarm whose flag and count are also those of this one.
    whole: Option<Arc<Alarm>>,
    /// Foreground threads that wait for the background thread.
    foreground_waits: AtomicUsize,
    /// The number of changes of the two: the futex word of sleepers, so no change is missed.
    changes: AtomicU32,
    sleepers: AtomicU32,
}

impl Alarm {
    /// The alarm of a part of the threads of `whole`: raised if either is. The count is that of `whole`.
    ///
    /// ```
    /// use maypole_transports::Alarm;
    /// use std::sync::Arc;
    /// let whole = Arc::new(Alarm::default());
    /// let [one, other] = [(); 2].map(|()| Alarm::of_part(&whole));
    /// one.raise();
    /// assert!(one.raised() && !other.raised() && !whole.raised());
    /// whole.raise();
    /// assert!(other.raised());
    /// ```
    pub fn of_part(whole: &Arc<Self>) -> Self {
        Self { whole: Some(Arc::clone(whole)), ..Self::default() }
    }

    /// Aborts every wait. Further calls change nothing; an alarm stays raised.
    pub fn raise(&self) {
        self.raised.store(true, Ordering::Release);
        self.wake();
    }

    /// Returns true once the alarm is raised. All writes before [`raise`](Self::raise) are visible
    /// then.
    #[inline]
    pub fn raised(&self) -> bool {
        self.raised.load(Ordering::Acquire) || self.whole.as_ref().is_some_and(|it| it.raised())
    }

    /// Announces that a foreground thread does nothing but wait for the background thread, until
    /// the returned guard is dropped.
    ///
    /// ```
    /// let alarm = maypole_transports::Alarm::default();
    /// let wait = alarm.begin_foreground_wait();
    /// assert!(alarm.has_foreground_wait());
    /// drop(wait);
    /// assert!(!alarm.has_foreground_wait());
    /// ```
    pub fn begin_foreground_wait(&self) -> ForegroundWait<&Self> {
        ForegroundWait::begin(self)
    }

    /// From now on, a foreground thread counts as one that waits for the background thread.
    ///
    /// ```
    /// let alarm = maypole_transports::Alarm::default();
    /// alarm.stay_eager();
    /// assert!(alarm.has_foreground_wait());
    /// ```
    pub fn stay_eager(&self) {
        std::mem::forget(self.begin_foreground_wait());
    }

    /// Returns true while a [foreground wait](Self::begin_foreground_wait) lasts.
    #[inline]
    pub fn has_foreground_wait(&self) -> bool {
        self.whole().foreground_waits.load(Ordering::Relaxed) > 0
    }

    /// Sleeps for `length`, or until the alarm is raised, a foreground wait begins, or one of `bells`
    /// rings. Returns immediately if one of these has happened; for the bells, `is_over` decides.
    pub(crate) fn sleep(&self, bells: &[&Bell], length: Duration, is_over: impl FnOnce() -> bool) {
        let whole = self.whole();
        whole.sleepers.fetch_add(1, Ordering::SeqCst);
        let changes = whole.changes.load(Ordering::SeqCst);
        // The checks below see a change that was made before this line. A later one changes the word that
        // this thread sleeps on, and wakes it.
        if !self.raised() && !self.has_foreground_wait() {
            Bell::sleep_on(bells, Some((&whole.changes, changes)), length, is_over);
        }
        whole.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    fn wake(&self) {
        let whole = self.whole();
        whole.changes.fetch_add(1, Ordering::SeqCst);
        if whole.sleepers.load(Ordering::SeqCst) > 0 {
            let _ = futex::wake(&whole.changes, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    #[inline]
    fn whole(&self) -> &Self {
        self.whole.as_deref().unwrap_or(self)
    }
}

/// A foreground thread waits for the background thread; see [`Alarm::begin_foreground_wait`].
#[derive(Debug)]
pub struct ForegroundWait<A: Deref<Target = Alarm>>(A);

impl<A: Deref<Target = Alarm>> ForegroundWait<A> {
    /// Begins a wait that lasts until the result is dropped, and keeps `alarm` as long.
    ///
    /// ```
    /// use maypole_transports::{Alarm, ForegroundWait};
    /// use std::sync::Arc;
    /// let alarm = Arc::new(Alarm::default());
    /// let wait = ForegroundWait::begin(Arc::clone(&alarm));
    /// assert!(alarm.has_foreground_wait());
    /// drop(wait);
    /// assert!(!alarm.has_foreground_wait());
    /// ```
    pub fn begin(alarm: A) -> Self {
        alarm.whole().foreground_waits.fetch_add(1, Ordering::Relaxed);
        alarm.wake();
        Self(alarm)
    }
}

impl<A: Deref<Target = Alarm>> Drop for ForegroundWait<A> {
    fn drop(&mut self) {
        self.0.whole().foreground_waits.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn a_foreground_wait_wakes_all_sleepers_and_keeps_others_awake() {
        let alarm = Alarm::default();
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| alarm.sleep(&[], LONG, || false));
            }
            // The wait never ends, or a thread that sleeps afterwards would sleep for `LONG`.
            std::mem::forget(alarm.begin_foreground_wait());
            alarm.sleep(&[], LONG, || false);
        });
        assert!(start.elapsed() < LONG);
    }

    #[test]
    fn without_a_reason_to_wake_a_sleep_has_its_length() {
        let alarm = Alarm::default();
        let length = Duration::from_millis(20);
        drop(alarm.begin_foreground_wait());
        let start = Instant::now();
        alarm.sleep(&[], length, || false);
        assert!(start.elapsed() >= length);
    }
}
