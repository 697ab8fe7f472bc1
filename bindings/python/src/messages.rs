//! Messages on addresses: what the backend of PyTorch sends and receives. The library matches them
//! by tag and drives them from the thread that waits for one.

use crate::arrays::ArrayMemory;
use crate::busy::MemoryUse;
use crate::communicator::Communicator;
use crate::error::raise;
use crate::interrupt::InterruptibleWait;
use crate::names::data_type;
use crate::raw::RawBytes;
use crate::request::RequestBuffers;
use crate::shared::{InFlight, SharedCommunicator, lock};
use maypole::{AbortHandle, DataType};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex};

/// The rank at the other end of a message, and the number of its elements.
type Arrival = (usize, usize);

/// Memory at an address, and what keeps it.
struct KeptBytes {
    bytes: RawBytes,
    _keeper: RequestBuffers,
}

impl AsRef<[u8]> for KeptBytes {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the caller that posts a message vouches for the memory while its keeper is kept.
        unsafe { self.bytes.bytes() }
    }
}

impl AsMut<[u8]> for KeptBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { self.bytes.bytes_mut() }
    }
}

/// The library's request of a message. Its end is told by a hook.
enum Posted {
    Send(maypole::Request<KeptBytes>),
    Receive(maypole::Request<(KeptBytes, Arrival)>),
}

impl Posted {
    fn test(&mut self) -> bool {
        match self {
            Self::Send(request) => request.test(),
            Self::Receive(request) => request.test(),
        }
    }

    fn ignore_error(&self) {
        match self {
            Self::Send(request) => request.ignore_error(),
            Self::Receive(request) => request.ignore_error(),
        }
    }

    fn wait(self) -> maypole::Result<()> {
        match self {
            Self::Send(request) => request.wait().map(drop),
            Self::Receive(request) => request.wait().map(drop),
        }
    }
}

/// How a message has ended, and the functions of Python that are called then.
#[derive(Default)]
struct MessageEnd {
    outcome: Option<maypole::Result<Arrival>>,
    listeners: Vec<Py<PyAny>>,
}

/// A message under way. wait() returns the rank at its other end and its number of elements, or
/// raises what it failed with; its memory must not be touched before.
#[pyclass(frozen, module = "maypole")]
pub(crate) struct MessageRequest {
    posted: Mutex<Option<Posted>>,
    end: Arc<Mutex<MessageEnd>>,
    abort: AbortHandle,
}

#[pymethods]
impl MessageRequest {
    /// Waits until the message has left or arrived. Every wait tells the same.
    fn wait(&self, py: Python<'_>) -> PyResult<Arrival> {
        let mut outcome = lock(&self.end).outcome.clone();
        if outcome.is_none() {
            let waiting = InterruptibleWait::begin(&self.abort);
            let failed = py.detach(|| self.wait_for_posted());
            drop(waiting);
            // In a forked child nobody tells the end.
            outcome = lock(&self.end).outcome.clone().or(failed.map(Err));
        } else if let Ok(posted) = self.posted.try_lock() {
            // The caller receives the outcome here, so no later call returns its error. Where another
            // thread has the lock, that one receives it.
            posted.as_ref().map(Posted::ignore_error);
        }
        let outcome = outcome.expect("a message that was waited for has ended");
        outcome.map_err(|error| py.check_signals().err().unwrap_or_else(|| raise(&error)))
    }

    /// True once the message has left or arrived, or failed.
    fn test(&self) -> bool {
        if lock(&self.end).outcome.is_some() {
            return true;
        }
        // Another thread that waits has the lock, without the interpreter's.
        let posted = self.posted.try_lock();
        posted.is_ok_and(|mut it| it.as_mut().is_some_and(Posted::test))
    }

    /// Calls `listener` without arguments once the message is over, on the thread that drives it;
    /// at once if it is over.
    fn listen(&self, py: Python<'_>, listener: Py<PyAny>) -> PyResult<()> {
        let mut end = lock(&self.end);
        if end.outcome.is_none() {
            end.listeners.push(listener);
            return Ok(());
        }
        drop(end);
        listener.call0(py).map(drop)
    }
}

impl MessageRequest {
    /// Waits, if no other thread has. Other threads wait for the lock meanwhile.
    fn wait_for_posted(&self) -> Option<maypole::Error> {
        let mut posted = lock(&self.posted);
        posted.take().and_then(|posted| posted.wait().err())
    }
}

/// Starts a message on an address: to rank `peer` if `sends`, else from it, or from any rank if it
/// is None. The message keeps `kept`. The caller vouches for the memory.
#[pyfunction]
pub(crate) fn _start_message(
    py: Python<'_>,
    on: &Communicator,
    sends: bool,
    type_name: &str,
    buffer: (usize, usize),
    peer: Option<usize>,
    tag: u32,
    kept: Py<PyAny>,
) -> PyResult<MessageRequest> {
    let keeper = RequestBuffers::Kept { _object: Some(kept) };
    let kept = KeptBytes { bytes: RawBytes::new(buffer), _keeper: keeper };
    let message = (sends, peer, tag);
    MessageRequest::post(py, &on.shared, data_type(type_name)?, kept, message)
}

/// Sends an array, beside calls of other threads.
pub(crate) fn send_array(
    py: Python<'_>,
    shared: &SharedCommunicator,
    data: ArrayMemory,
    to: usize,
    tag: u32,
) -> PyResult<()> {
    MessageRequest::of_array(py, shared, data, (true, Some(to), tag))?.wait(py).map(drop)
}

/// Receives an array, beside calls of other threads. Returns the rank that sent it, and its elements.
pub(crate) fn receive_array(
    py: Python<'_>,
    shared: &SharedCommunicator,
    data: ArrayMemory,
    source: Option<usize>,
    tag: u32,
) -> PyResult<(usize, usize)> {
    MessageRequest::of_array(py, shared, data, (false, source, tag))?.wait(py)
}

impl MessageRequest {
    fn of_array(
        py: Python<'_>,
        shared: &SharedCommunicator,
        data: ArrayMemory,
        message: (bool, Option<usize>, u32),
    ) -> PyResult<Self> {
        let data_type = data.data_type;
        let bytes = RawBytes::new((data.start.expose_provenance(), data.len));
        let kept = KeptBytes { bytes, _keeper: RequestBuffers::Arrays { _arrays: vec![data] } };
        Self::post(py, shared, data_type, kept, message)
    }

    /// Posts a message: whether it is sent, the other rank, and the tag.
    fn post(
        py: Python<'_>,
        shared: &SharedCommunicator,
        data_type: DataType,
        kept: KeptBytes,
        (sends, peer, tag): (bool, Option<usize>, u32),
    ) -> PyResult<Self> {
        let of = MemoryUse { bytes: kept.bytes.addresses(), is_written: !sends };
        shared.check_free(py, std::slice::from_ref(&of))?;
        let end = Arc::<Mutex<MessageEnd>>::default();
        let ended = hook(Arc::clone(&end), InFlight::message(shared, of));
        let posted = shared.with_messages(py, move |messages| match peer.filter(|_| sends) {
            Some(to) => Posted::Send(messages.start_send(data_type, kept, to, tag, ended)),
            None => Posted::Receive(messages.start_recv(data_type, kept, peer, tag, ended)),
        })?;
        let posted = Mutex::new(Some(posted));
        Ok(Self { posted, end, abort: shared.abort.clone() })
    }
}

/// Notes how the message has ended. Takes the interpreter's lock only for listeners: whoever waits
/// asks for the end.
fn hook(
    end: Arc<Mutex<MessageEnd>>,
    mut in_flight: InFlight,
) -> impl FnOnce(Result<Arrival, &maypole::Error>) + Send + 'static {
    move |outcome| {
        // Before a thread that waits for the end can use the memory.
        in_flight.release_memory();
        let mut end = lock(&end);
        end.outcome = Some(outcome.map_err(Clone::clone));
        let listeners = std::mem::take(&mut end.listeners);
        drop(end);
        if listeners.is_empty() {
            return;
        }
        // Without an interpreter nobody listens any more.
        Python::try_attach(|py| {
            for listener in listeners {
                if let Err(error) = listener.call0(py) {
                    error.write_unraisable(py, None);
                }
            }
        });
    }
}
