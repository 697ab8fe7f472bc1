//! Ctrl-C ends a wait. Python's own handler only notes the signal; it raises once Python code runs
//! again, which is after the wait. So a thread of ours aborts the communicator that the main thread
//! waits on, and the call raises `KeyboardInterrupt`.

use maypole::AbortHandle;
use pyo3::prelude::*;
use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::thread::{self, ThreadId};

/// The communicator that the main thread waits on.
static WAITING: Mutex<Option<AbortHandle>> = Mutex::new(None);
static STARTED: Once = Once::new();

fn waiting() -> MutexGuard<'static, Option<AbortHandle>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes that the main thread waits, until it is dropped.
pub(crate) struct InterruptibleWait(bool);

impl InterruptibleWait {
    /// Begins a wait on the communicator that `abort` ends. Other threads cannot be interrupted.
    pub(crate) fn begin(abort: &AbortHandle) -> Self {
        let is_main = MAIN.get() == Some(&thread::current().id());
        if is_main {
            *waiting() = Some(abort.clone());
        }
        Self(is_main)
    }
}

impl Drop for InterruptibleWait {
    fn drop(&mut self) {
        if self.0 {
            *waiting() = None;
        }
    }
}

/// Python's main thread, once it has made a communicator: the only one in which Python raises
/// `KeyboardInterrupt`.
static MAIN: OnceLock<ThreadId> = OnceLock::new();

/// Begins to listen for the signal, if Python raises `KeyboardInterrupt` for it.
pub(crate) fn listen(py: Python<'_>) {
    if !raises_in_this_thread(py).unwrap_or(false) {
        return;
    }
    MAIN.get_or_init(|| thread::current().id());
    STARTED.call_once(|| {
        let Ok(mut signals) = Signals::new([SIGINT]) else { return };
        let listen = move || {
            for _ in &mut signals {
                if let Some(abort) = waiting().take() {
                    abort.abort("interrupted by Ctrl-C");
                }
            }
        };
        // Without the thread, Ctrl-C ends a wait only at its deadline.
        let _ = thread::Builder::new().name("maypole-signals".to_owned()).spawn(listen);
    });
}

/// True if this is Python's main thread, and the signal raises `KeyboardInterrupt` in it.
fn raises_in_this_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    let current = threading.call_method0("current_thread")?;
    let signal = py.import("signal")?;
    let handler = signal.call_method1("getsignal", (SIGINT,))?;
    Ok(current.is(&threading.call_method0("main_thread")?)
        && handler.is(&signal.getattr("default_int_handler")?))
}
