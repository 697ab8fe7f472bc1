//! A communicator that Python's object, its requests and the end of the interpreter share.

use crate::error::{invalid, panicked, raise};
use crate::interrupt::InterruptibleWait;
use maypole::{AbortHandle, MessageHandle};
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// The communicator, for its object and for the end of the interpreter.
pub(crate) struct SharedCommunicator {
    communicator: Mutex<Option<maypole::Communicator>>,
    /// Starts messages, also while a thread is in a call of the communicator.
    messages: Mutex<Option<MessageHandle>>,
    pub(crate) abort: AbortHandle,
    /// How many requests are not over.
    in_flight: Arc<AtomicUsize>,
}

/// All communicators, for the end of the interpreter.
static OPEN: Mutex<Vec<Weak<SharedCommunicator>>> = Mutex::new(Vec::new());

/// Leaves all groups in order before the interpreter ends. A group with requests in flight is aborted:
/// the arrays of the requests are about to be freed.
#[pyfunction]
pub(crate) fn _leave(py: Python<'_>) {
    let open = std::mem::take(&mut *lock(&OPEN));
    py.detach(|| {
        for shared in open.iter().filter_map(Weak::upgrade) {
            if shared.in_flight.load(Ordering::Acquire) > 0 {
                shared.abort.abort("the program of this rank has ended with requests in flight");
            }
            // No caller is left to receive an error that no call has returned.
            if let Err(error) = shared.close() {
                eprintln!("maypole: {error}");
            }
        }
    });
}

impl SharedCommunicator {
    /// Shares `communicator`, and closes it in order if the interpreter ends before that.
    pub(crate) fn new(communicator: maypole::Communicator) -> Arc<Self> {
        let abort = communicator.abort_handle();
        let messages = Mutex::new(Some(communicator.message_handle()));
        let communicator = Mutex::new(Some(communicator));
        let shared = Arc::new(Self { communicator, messages, abort, in_flight: Arc::default() });
        let mut open = lock(&OPEN);
        open.retain(|it| it.strong_count() > 0);
        open.push(Arc::downgrade(&shared));
        shared
    }

    /// Leaves the group in order, unless that was done before.
    pub(crate) fn close(&self) -> maypole::Result<()> {
        drop(lock(&self.messages).take());
        let taken = lock(&self.communicator).take();
        taken.map_or(Ok(()), maypole::Communicator::close)
    }

    /// Runs `call` without the interpreter's lock. The lock of the communicator is taken after the
    /// interpreter's was released, so no thread waits for one while it holds the other.
    pub(crate) fn with<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut maypole::Communicator) -> maypole::Result<R> + Send,
    ) -> PyResult<R> {
        let waiting = InterruptibleWait::begin(&self.abort);
        let done = py.detach(|| {
            let mut communicator = lock(&self.communicator);
            let communicator = communicator.as_mut()?;
            Some(catch_unwind(AssertUnwindSafe(|| call(communicator))))
        });
        drop(waiting);
        match done {
            None => Err(closed()),
            Some(Ok(Ok(result))) => Ok(result),
            // An interrupted wait fails, too, and that is told as Python tells it.
            Some(Ok(Err(error))) => Err(py.check_signals().err().unwrap_or_else(|| raise(&error))),
            Some(Err(panic)) => Err(panicked(&*panic)),
        }
    }
}

impl SharedCommunicator {
    /// Starts messages, without the interpreter's lock.
    pub(crate) fn with_messages<R: Send>(
        &self,
        py: Python<'_>,
        start: impl FnOnce(&mut MessageHandle) -> R + Send,
    ) -> PyResult<R> {
        py.detach(|| lock(&self.messages).as_mut().map(start)).ok_or_else(closed)
    }

    /// Sets the timeout of calls and messages.
    pub(crate) fn set_timeout(&self, py: Python<'_>, timeout: Duration) -> PyResult<()> {
        let handle = self.with(py, |comm| {
            comm.set_timeout(timeout);
            Ok(comm.message_handle())
        })?;
        self.with_messages(py, |messages| *messages = handle)
    }
}

fn closed() -> PyErr {
    invalid("the communicator is closed")
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A call or a message that is not over, until it is dropped.
pub(crate) struct InFlight {
    count: Arc<AtomicUsize>,
    _communicator: Option<Arc<SharedCommunicator>>,
}

impl InFlight {
    /// A call, which keeps the communicator.
    pub(crate) fn call(shared: &Arc<SharedCommunicator>) -> Self {
        let mut this = Self::message(shared);
        this._communicator = Some(Arc::clone(shared));
        this
    }

    /// A message. It is dropped by the thread that drives messages, which cannot leave the group.
    pub(crate) fn message(shared: &SharedCommunicator) -> Self {
        shared.in_flight.fetch_add(1, Ordering::Relaxed);
        Self { count: Arc::clone(&shared.in_flight), _communicator: None }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Release);
    }
}
