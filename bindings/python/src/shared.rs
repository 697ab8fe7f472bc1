//! A communicator that Python's object, its requests and the end of the interpreter share.

use crate::busy::{BusyClaim, BusyMemory, MemoryUse};
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
    busy: BusyMemory,
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
        let (in_flight, busy) = Default::default();
        let shared = Arc::new(Self { communicator, messages, abort, in_flight, busy });
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
            // An interrupted wait fails, too, with Python's exception.
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

    /// Refuses to use memory that a message in flight uses.
    pub(crate) fn check_free(&self, py: Python<'_>, uses: &[MemoryUse]) -> PyResult<()> {
        if !self.busy.prevents(uses) {
            return Ok(());
        }
        // The message may have ended, and no thread has looked.
        self.with_messages(py, MessageHandle::poll)?;
        match self.busy.prevents(uses) {
            false => Ok(()),
            true => Err(invalid(
                "a message in flight uses memory of this call, and one of the two writes it: wait for the \
                 message first, or pass other memory",
            )),
        }
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
    /// The memory of a message.
    claim: Option<BusyClaim>,
}

impl InFlight {
    /// A call, which keeps the communicator.
    pub(crate) fn call(shared: &Arc<SharedCommunicator>) -> Self {
        shared.in_flight.fetch_add(1, Ordering::Relaxed);
        let count = Arc::clone(&shared.in_flight);
        Self { count, _communicator: Some(Arc::clone(shared)), claim: None }
    }

    /// A message that uses memory. It is dropped by the thread that drives messages, which cannot leave
    /// the group.
    pub(crate) fn message(shared: &SharedCommunicator, of: MemoryUse) -> Self {
        shared.in_flight.fetch_add(1, Ordering::Relaxed);
        let (count, claim) = (Arc::clone(&shared.in_flight), Some(shared.busy.claim(of)));
        Self { count, _communicator: None, claim }
    }

    /// The message has ended: its memory may be used again.
    pub(crate) fn release_memory(&mut self) {
        self.claim = None;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Release);
    }
}
