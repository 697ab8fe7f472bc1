//! A futex word that wakes a sleeping thread, in memory that processes may share.
//!
//! A thread sets its sleep flag, polls once more, and sleeps. The publisher wakes a waiter whose
//! sleep flag it observes. The check has no fence, so a wake-up can be missed; sleeps are bounded.
//! The word seldom changes, so a check costs a read from the L1 cache.

use arrayvec::ArrayVec;
use rustix::io::Errno;
use rustix::thread::futex::{self, Wait, WaitFlags, WaitPtr, WaitvFlags};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

const ASLEEP: u32 = 1;
/// The most bells that a thread sleeps on.
pub(crate) const MOST: usize = 64;
/// The length of a sleep if the kernel cannot wait on several words: before Linux 5.16, or by the
/// filter of a container.
const NAP: Duration = Duration::from_micros(100);

/// The bell of one thread. Zero is the state of a thread that is awake.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Bell(AtomicU32);

/// A futex word, and its expected value.
type BellWord<'a> = (&'a AtomicU32, u32);

impl Bell {
    /// Sleeps until one of `bells` [rings](Self::ring) or `other` changes, but no longer than `length`,
    /// unless `is_over` already.
    ///
    /// # Panics
    /// If there are more than [`MOST`].
    pub(crate) fn sleep_on(
        bells: &[&Self],
        other: Option<BellWord<'_>>,
        length: Duration,
        is_over: impl FnOnce() -> bool,
    ) {
        bells.iter().for_each(|bell| bell.0.store(ASLEEP, Ordering::SeqCst));
        // Either `is_over` sees a publisher's store, or the publisher sees the sleep flag.
        fence(Ordering::SeqCst);
        if !is_over() {
            let words = bells.iter().map(|bell| (&bell.0, ASLEEP));
            let words: ArrayVec<_, { MOST + 1 }> = words.chain(other).collect();
            // The caller polls again after any end of the sleep.
            wait_for_any(&words, length);
        }
        bells.iter().for_each(|bell| bell.0.store(0, Ordering::Relaxed));
    }

    /// True if a thread sleeps, or is about to.
    #[cfg(test)]
    pub(crate) fn is_asleep(&self) -> bool {
        self.0.load(Ordering::SeqCst) == ASLEEP
    }

    /// Wakes the thread, if it sleeps.
    ///
    /// ```
    /// let bell = maypole_transports::Bell::default();
    /// bell.ring();
    /// ```
    #[inline(always)]
    pub fn ring(&self) {
        if self.0.load(Ordering::Relaxed) == ASLEEP {
            self.wake();
        }
    }

    #[cold]
    #[inline(never)]
    fn wake(&self) {
        self.0.store(0, Ordering::Release);
        // The result is ignored: the process may have died.
        let _ = futex::wake(&self.0, futex::Flags::empty(), 1);
    }
}

/// Sleeps until one of `words` changes, but no longer than `length`.
fn wait_for_any(words: &[BellWord<'_>], length: Duration) {
    if let [only] = words {
        return wait_for(*only, length);
    }
    let wait = |(word, asleep): &BellWord<'_>| {
        let mut wait = Wait::new();
        wait.val = u64::from(*asleep);
        wait.uaddr = WaitPtr::new(word.as_ptr().cast());
        wait.flags = WaitFlags::SIZE_U32;
        wait
    };
    let waits: ArrayVec<Wait, { MOST + 1 }> = words.iter().map(wait).collect();
    let end = Timespec::try_from(length)
        .ok()
        .and_then(|length| clock_gettime(ClockId::Monotonic).checked_add(length));
    let waited = futex::waitv(&waits, WaitvFlags::empty(), end.as_ref(), ClockId::Monotonic);
    if let (Err(Errno::NOSYS | Errno::PERM), Some(last)) = (waited, words.last()) {
        wait_for(*last, length.min(NAP));
    }
}

fn wait_for((word, asleep): BellWord<'_>, length: Duration) {
    let timeout = length.try_into().ok();
    let _ = futex::wait(word, futex::Flags::empty(), asleep, timeout.as_ref());
}
