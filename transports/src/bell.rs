//! A word by which a thread that sleeps is woken, in memory that processes may share.
//!
//! A thread that is about to sleep says so, looks once more, and sleeps. Who has something for it looks
//! whether it sleeps, and wakes it. It looks without a fence, so it may miss a thread that has just said
//! so; that one sleeps out its time, which is bounded. The word seldom changes, so looking costs a read
//! from the first cache.

use rustix::thread::futex;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

const ASLEEP: u32 = 1;

/// The bell of one thread. Zero, as which it begins, is the state of a thread that is awake.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct Bell(AtomicU32);

impl Bell {
    /// Sleeps until it [rings](Self::ring), but no longer than `length`, unless what it waits for
    /// `is_over`.
    pub(crate) fn sleep(&self, length: Duration, is_over: impl FnOnce() -> bool) {
        self.0.store(ASLEEP, Ordering::SeqCst);
        // What others stored before they looked is seen by `is_over`, or they see that this thread sleeps.
        fence(Ordering::SeqCst);
        if !is_over() {
            let timeout = length.try_into().ok();
            // However the sleep ends, the caller polls again.
            let _ = futex::wait(&self.0, futex::Flags::empty(), ASLEEP, timeout.as_ref());
        }
        self.0.store(0, Ordering::Relaxed);
    }

    /// True if a thread sleeps, or is about to.
    #[cfg(test)]
    pub(crate) fn is_asleep(&self) -> bool {
        self.0.load(Ordering::SeqCst) == ASLEEP
    }

    /// Wakes the thread, if it sleeps.
    #[inline(always)]
    pub(crate) fn ring(&self) {
        if self.0.load(Ordering::Relaxed) == ASLEEP {
            self.wake();
        }
    }

    #[cold]
    #[inline(never)]
    fn wake(&self) {
        self.0.store(0, Ordering::Release);
        // A process that died meanwhile is not there to be woken.
        let _ = futex::wake(&self.0, futex::Flags::empty(), 1);
    }
}
