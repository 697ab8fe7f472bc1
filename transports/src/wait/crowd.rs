//! Whether other programs compute on the core of this thread.
//!
//! A thread that yields on a core of its own continues immediately. If another program computes on
//! the core, a yield costs a time slice of milliseconds: thousands of short calls. There it is
//! better to sleep until a peer wakes it: a sleeping thread keeps its scheduling credit, and runs
//! when it is woken.
//!
//! Each thread detects contention by a long yield in which the kernel switched to another thread.
//! The detection expires after a while, and the thread tries again. This period grows from 10 ms to
//! a second while the core stays shared, so trying takes less than a hundredth of the time.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// A yield is long if another program may have computed meanwhile. The kernel's own threads take less.
const LONG_YIELD: Duration = Duration::from_micros(200);
/// For how long a thread sleeps early: at first, and at most.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(1);

/// The measurements of a thread.
#[derive(Clone, Copy)]
struct Crowd {
    /// The core counts as shared until then.
    until: Option<Instant>,
    /// When the last such period ended.
    ended: Option<Instant>,
    /// The length of the last such period.
    length: Duration,
}

impl Crowd {
    const NEW: Self = Self { until: None, ended: None, length: Duration::ZERO };

    /// The state `now`.
    fn at(self, now: Instant) -> Self {
        match self.until {
            Some(until) if until <= now => Self { until: None, ended: Some(until), ..self },
            _ => self,
        }
    }

    /// The core was shared `now`.
    fn shared(self, now: Instant) -> Self {
        let is_again = self.ended.is_some_and(|ended| now - ended <= self.length);
        let length = if is_again { (self.length * 2).min(LONGEST) } else { SHORTEST };
        Self { until: Some(now + length), length, ..self }
    }
}

thread_local! {
    static CROWD: Cell<Crowd> = const { Cell::new(Crowd::NEW) };
}

/// True if contention was detected and has not expired.
pub(super) fn is_here() -> bool {
    let crowd = CROWD.get();
    if crowd.until.is_none() {
        return false;
    }
    let crowd = crowd.at(Instant::now());
    CROWD.set(crowd);
    crowd.until.is_some()
}

/// The yields of one wait.
pub(super) struct Yields {
    /// How often the kernel had taken the core from this thread before them.
    switches: i64,
    last: Instant,
}

impl Yields {
    pub(super) fn begin() -> Self {
        Self { switches: switches(), last: Instant::now() }
    }

    /// Yields. Returns true if another program computed meanwhile.
    pub(super) fn take(&mut self) -> bool {
        std::thread::yield_now();
        let now = Instant::now();
        let took = now - std::mem::replace(&mut self.last, now);
        if took < LONG_YIELD {
            return false;
        }
        // A virtual machine may have been paused meanwhile: that is no contention.
        let before = std::mem::replace(&mut self.switches, switches());
        let shared = self.switches > before;
        if shared {
            CROWD.set(CROWD.get().shared(now));
        }
        shared
    }
}

/// How often the kernel has given the core of this thread to another one that was ready to run.
fn switches() -> i64 {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the call fills the whole value, or fails.
    unsafe {
        match libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) {
            0 => usage.assume_init().ru_nivcsw,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_is_tried_again_ever_more_rarely_while_it_is_shared() {
        let start = Instant::now();
        let (mut now, mut crowd, mut lengths) = (start, Crowd::NEW, Vec::new());
        for _ in 0..10 {
            crowd = crowd.at(now).shared(now);
            let until = crowd.until.expect("it has just been noted");
            assert!(crowd.at(until - Duration::from_micros(1)).until.is_some());
            lengths.push(until - now);
            now = until + Duration::from_millis(3);
        }
        assert_eq!(lengths[0], SHORTEST);
        assert!(lengths.is_sorted() && lengths.contains(&(SHORTEST * 4)));
        assert_eq!(lengths.last(), Some(&LONGEST));
        // After a quiet time it begins anew.
        let later = now + LONGEST * 2;
        assert_eq!(crowd.at(later).shared(later).until, Some(later + SHORTEST));
    }

    #[test]
    fn a_thread_that_is_moved_aside_notices() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let ends = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|threads| {
            for _ in 0..2 * cores {
                threads.spawn(|| {
                    while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let start = Instant::now();
            let mut yields = Yields::begin();
            while !yields.take() {
                assert!(start.elapsed() < Duration::from_secs(120), "nobody takes the core");
            }
            assert!(is_here());
            ends.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}
