//! Requests of collectives.

use crate::arrays::ArrayMemory;
use crate::error::raise;
use crate::interrupt::InterruptibleWait;
use crate::shared::lock;
use maypole::AbortHandle;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex};

/// The owners of a request's memory.
pub(crate) enum RequestBuffers {
    /// Arrays that the call reads and writes.
    Arrays { _arrays: Vec<ArrayMemory> },
    /// The array of a message.
    Array { _array: Arc<ArrayMemory> },
    /// An object that keeps memory whose addresses the caller has passed.
    Kept { _object: Option<Py<PyAny>> },
}

/// A call in flight. wait() returns when the call has completed, or raises its error, and may be called
/// again; `await request` waits in a coroutine. No array of the call may be touched before. A request that
/// is dropped continues.
#[pyclass(frozen, module = "maypole")]
pub(crate) struct Request {
    /// The request before its first wait, and the outcome after it.
    state: Mutex<(Option<maypole::Request<RequestBuffers>>, maypole::Result<()>)>,
    /// The name of the call.
    name: &'static str,
    abort: AbortHandle,
}

impl Request {
    pub(crate) fn new(
        request: maypole::Request<RequestBuffers>,
        name: &'static str,
        abort: AbortHandle,
    ) -> Self {
        Self { state: Mutex::new((Some(request), Ok(()))), name, abort }
    }
}

#[pymethods]
impl Request {
    /// Waits until the call has completed.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let waiting = InterruptibleWait::begin(&self.abort);
        // A second thread waits for the lock, without that of the interpreter.
        let outcome = py.detach(|| {
            let mut state = lock(&self.state);
            if let Some(request) = state.0.take() {
                state.1 = request.wait().map(drop);
            }
            state.1.clone()
        });
        drop(waiting);
        outcome.map_err(|error| py.check_signals().err().unwrap_or_else(|| raise(&error)))
    }

    /// Runs the request as if a thread waited for it: PyTorch does not report waits for futures.
    fn _wait_eagerly(&self) {
        // If the lock is taken, a thread waits.
        let state = self.state.try_lock();
        state.ok().and_then(|it| it.0.as_ref().map(maypole::Request::wait_eagerly));
    }

    /// True once the call has completed or failed.
    fn test(&self) -> bool {
        let state = self.state.try_lock();
        state.is_ok_and(|mut it| it.0.as_mut().is_none_or(maypole::Request::test))
    }

    fn __repr__(&self) -> String {
        let state = if self.test() { "completed" } else { "in flight" };
        format!("<maypole.Request: {}, {state}>", self.name)
    }
}
