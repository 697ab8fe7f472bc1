//! The shutdown of a rank, in a background thread, so that the caller does not block for long.
//!
//! It has three steps: this rank's calls end; its memory is freed, or kept for ranks that may still
//! read it; and the ranks exchange goodbyes, which takes up to 5 s if the others leave later. The
//! caller waits for the first step, and for a short time for the others. The process waits for the
//! goodbyes when it exits, because its exit frees memory that other ranks may still read.

use crate::core::Comm;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once};
use std::time::{Duration, Instant};

/// The kind of shutdown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Manner {
    /// After its calls have completed, without a timeout.
    InOrder,
    /// Its calls were aborted. Work of the program may still block their streams.
    Aborted,
}

/// Timeout of a caller for aborted calls.
const ABORT_LIMIT: Duration = Duration::from_secs(2);
/// Timeout of a caller for the goodbye. Ranks that leave at the same time need less.
const MOMENT: Duration = Duration::from_millis(250);
/// Timeout of a rank that has left for the goodbyes of the others.
const PATIENCE: Duration = Duration::from_secs(5);
/// Timeout of a process at its exit.
const EXIT_LIMIT: Duration = Duration::from_secs(6);

/// A completed step of the shutdown.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Step {
    Calls,
    Goodbye,
    Gone,
}

/// The shutdown of one rank.
struct Leaving {
    step: Mutex<Step>,
    changed: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Leaving {
    fn reach(&self, step: Step) {
        *lock(&self.step) = step;
        self.changed.notify_all();
    }

    /// Waits for `step`, at most for `limit`.
    fn wait(&self, step: Step, limit: Option<Duration>) {
        let until = limit.map(|limit| Instant::now() + limit);
        let mut reached = lock(&self.step);
        while *reached < step {
            let Some(until) = until else {
                reached = self.changed.wait(reached).unwrap_or_else(|it| it.into_inner());
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(reached, left);
            reached = waited.unwrap_or_else(|it| it.into_inner()).0;
        }
    }
}

/// Ranks of this process with a pending goodbye after [`Manner::InOrder`], and the process id.
static GOODBYES: Mutex<Vec<Arc<Leaving>>> = Mutex::new(Vec::new());
static PROCESS: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> c_int;
}

/// Waits for the goodbyes.
extern "C" fn finish() {
    if PROCESS.load(Relaxed) != std::process::id() {
        // A forked child does not have these threads.
        return;
    }
    let until = Instant::now() + EXIT_LIMIT;
    let goodbyes = std::mem::take(&mut *lock(&GOODBYES));
    for leaving in goodbyes {
        leaving.wait(Step::Gone, Some(until.saturating_duration_since(Instant::now())));
    }
}

fn finish_at_exit() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        PROCESS.store(std::process::id(), Relaxed);
        // SAFETY: the function takes nothing and may run at any exit.
        let _ = unsafe { atexit(finish) };
    });
}

pub(crate) fn leave(comm: Arc<Comm>, manner: Manner) {
    let leaving = Arc::new(Leaving { step: Mutex::new(Step::Calls), changed: Condvar::new() });
    if manner == Manner::InOrder {
        finish_at_exit();
        let mut goodbyes = lock(&GOODBYES);
        goodbyes.retain(|other| *lock(&other.step) != Step::Gone);
        goodbyes.push(leaving.clone());
    }
    let own = leaving.clone();
    let work = move || {
        // `ncclCommGetAsyncError` returns the errors of its calls.
        let limit = if manner == Manner::Aborted { ABORT_LIMIT } else { Duration::MAX };
        let _ = comm.finalize_within(limit);
        own.reach(Step::Goodbye);
        if let Some(comm) = Arc::into_inner(comm) {
            comm.leave(PATIENCE);
        }
        own.reach(Step::Gone);
    };
    // If no thread could be started, `work` and its communicator have been dropped.
    if std::thread::Builder::new().name("CommDestroy".to_owned()).spawn(work).is_err() {
        return leaving.reach(Step::Gone);
    }
    match manner {
        Manner::InOrder => {
            leaving.wait(Step::Goodbye, None);
            leaving.wait(Step::Gone, Some(MOMENT));
        }
        Manner::Aborted => leaving.wait(Step::Goodbye, Some(ABORT_LIMIT)),
    }
}
