//! Calls under way.

use crate::arrays::ArrayMemory;
use crate::error::{invalid, raise};
use crate::interrupt::InterruptibleWait;
use maypole::AbortHandle;
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

/// What a request owns until it is over.
pub(crate) enum RequestBuffers {
    /// Arrays that the call reads and writes.
    Arrays { _arrays: Vec<ArrayMemory> },
    /// An object that keeps memory whose addresses the caller has passed.
    Kept { _object: Option<Py<PyAny>> },
}

/// A call under way. wait() returns once it is over, or raises what it failed with; its arrays must
/// not be touched before. A request that is dropped goes on.
#[pyclass(frozen, module = "maypole")]
pub(crate) struct Request {
    request: Mutex<Option<maypole::Request<RequestBuffers>>>,
    abort: AbortHandle,
}

impl Request {
    pub(crate) fn new(request: maypole::Request<RequestBuffers>, abort: AbortHandle) -> Self {
        Self { request: Mutex::new(Some(request)), abort }
    }

    fn take(&self) -> Option<maypole::Request<RequestBuffers>> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[pymethods]
impl Request {
    /// Waits until the call is over.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let request = self.take().ok_or_else(|| invalid("this request was waited for already"))?;
        let waiting = InterruptibleWait::begin(&self.abort);
        let over = py.detach(|| request.wait());
        drop(waiting);
        over.map(drop).map_err(|error| py.check_signals().err().unwrap_or_else(|| raise(&error)))
    }

    /// Lets requests wait eagerly: nobody says when a program waits for a future of PyTorch.
    fn _wait_eagerly(&self) {
        let request = self.request.lock().unwrap_or_else(PoisonError::into_inner);
        request.as_ref().map(maypole::Request::wait_eagerly);
    }

    /// True once the call is over, also if it failed or was waited for.
    fn test(&self) -> bool {
        let mut request = self.request.lock().unwrap_or_else(PoisonError::into_inner);
        request.as_mut().is_none_or(maypole::Request::test)
    }
}
