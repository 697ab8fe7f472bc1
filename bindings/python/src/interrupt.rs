//! Ctrl-C ends a wait. Python's own handler only stores the signal, and raises when Python code runs
//! again, after the wait. So a thread of this module aborts the communicator that the main thread
//! waits on, and the call raises `KeyboardInterrupt`.

use crate::error::{invalid, panicked, raise};
use crate::shared::lock;
use maypole::AbortHandle;
use maypole::world::bootstrap::JoinStop;
use pyo3::prelude::*;
use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

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

/// The interval at which a join checks for signals.
const PAUSE: Duration = Duration::from_millis(50);
/// How long an interrupted join may take to end before the exception is raised.
const GRACE: Duration = Duration::from_millis(300);

/// Runs `join` on a thread of its own, while this thread handles signals. If a handler raises, as that of
/// Ctrl-C does, the exception is returned immediately, and the join ends soon.
pub(crate) fn interruptible_join(
    py: Python<'_>,
    join: impl FnOnce(JoinStop) -> maypole::Result<maypole::Communicator> + Send + 'static,
) -> PyResult<maypole::Communicator> {
    let stop = JoinStop::default();
    let stop_of_thread = stop.clone();
    let (give, given) = channel();
    let run = move || {
        let made = catch_unwind(AssertUnwindSafe(|| join(stop_of_thread)));
        // After an interruption there is no receiver, and a rank that has joined leaves again.
        let _ = give.send(made);
    };
    let spawned = thread::Builder::new().name("maypole-join".to_owned()).spawn(run);
    spawned.map_err(|error| invalid(format!("no thread can be started to join: {error}")))?;
    let given = Mutex::new(given);
    let wait = || lock(&given).recv_timeout(PAUSE);
    loop {
        match py.detach(wait) {
            Ok(Ok(made)) => return made.map_err(|error| raise(&error)),
            Ok(Err(panic)) => return Err(panicked(&*panic)),
            Err(RecvTimeoutError::Disconnected) => return Err(invalid("joining has ended")),
            Err(RecvTimeoutError::Timeout) => {
                let Err(raised) = py.check_signals() else { continue };
                stop.stop();
                // Then rank 0 has closed its port, and a new join can use the port.
                let _ = py.detach(|| lock(&given).recv_timeout(GRACE));
                return Err(raised);
            }
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
        // A signal must end the waits of Python itself, too, as in `threading.Event().wait()`.
        let signal = py.import("signal");
        let _ = signal.and_then(|it| it.call_method1("siginterrupt", (SIGINT, true)));
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
