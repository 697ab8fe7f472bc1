//! Messages of arrays, and messages on addresses for the backend of PyTorch. The library matches messages
//! by tag; a thread that waits for one of them makes progress on all.

use crate::arrays::{ArrayMemory, ArrayUse};
use crate::busy::MemoryUse;
use crate::communicator::Communicator;
use crate::error::{invalid, raise};
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

/// Memory at an address, and its owner.
struct KeptBytes {
    bytes: RawBytes,
    _keeper: RequestBuffers,
}

impl AsRef<[u8]> for KeptBytes {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the caller that posts a message guarantees the memory while its keeper is kept.
        unsafe { self.bytes.bytes() }
    }
}

impl AsMut<[u8]> for KeptBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { self.bytes.bytes_mut() }
    }
}

/// The library's request of a message. A hook receives its outcome.
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

/// The outcome of a message, and the functions of Python that are called at its end.
#[derive(Default)]
struct MessageEnd {
    outcome: Option<maypole::Result<Arrival>>,
    listeners: Vec<Py<PyAny>>,
}

/// A message in flight. wait() returns the rank at its other end and its number of elements, or raises
/// its error, and may be called again; `await request` waits in a coroutine. The memory of the message must
/// not be touched before.
#[pyclass(frozen, module = "maypole")]
pub(crate) struct MessageRequest {
    posted: Mutex<Option<Posted>>,
    end: Arc<Mutex<MessageEnd>>,
    abort: AbortHandle,
    about: Envelope,
    /// How many moved elements are one element of the program.
    scale: usize,
}

/// Whether a message is sent, the rank at its other end if that is given, and its tag.
type Envelope = (bool, Option<usize>, u32);

#[pymethods]
impl MessageRequest {
    /// Waits until the message has left or arrived. Every wait returns the same.
    pub(crate) fn wait(&self, py: Python<'_>) -> PyResult<Arrival> {
        let mut outcome = lock(&self.end).outcome.clone();
        if outcome.is_none() {
            let waiting = InterruptibleWait::begin(&self.abort);
            let failed = py.detach(|| self.wait_for_posted());
            drop(waiting);
            // In a forked child the hook does not run.
            outcome = lock(&self.end).outcome.clone().or(failed.map(Err));
        } else if let Ok(posted) = self.posted.try_lock() {
            // The caller receives the outcome here, so no later call returns its error. If another
            // thread has the lock, that thread receives the outcome.
            posted.as_ref().map(Posted::ignore_error);
        }
        let outcome = outcome.expect("a message that was waited for has ended");
        let outcome = outcome.map(|(peer, count)| (peer, count / self.scale));
        outcome.map_err(|error| py.check_signals().err().unwrap_or_else(|| raise(&error)))
    }

    /// True once the message has left or arrived, or failed.
    fn test(&self) -> bool {
        if lock(&self.end).outcome.is_some() {
            return true;
        }
        // A thread that waits holds this lock, but not that of the interpreter.
        let posted = self.posted.try_lock();
        posted.is_ok_and(|mut it| it.as_mut().is_some_and(Posted::test))
    }

    /// Calls `listener` without arguments once the message has completed or failed, on the thread that
    /// drives the message; immediately if that was before.
    fn listen(&self, py: Python<'_>, listener: Py<PyAny>) -> PyResult<()> {
        let mut end = lock(&self.end);
        if end.outcome.is_none() {
            end.listeners.push(listener);
            return Ok(());
        }
        drop(end);
        listener.call0(py).map(drop)
    }

    fn __repr__(&self) -> String {
        let (sends, peer, tag) = self.about;
        let peer = peer.map_or_else(|| "any rank".to_owned(), |peer| format!("rank {peer}"));
        let what = if sends { "send to" } else { "receive from" };
        let state = if self.test() { "completed" } else { "in flight" };
        format!("<maypole.MessageRequest: {what} {peer}, tag {tag}, {state}>")
    }
}

impl MessageRequest {
    /// Waits, if no other thread has. Other threads wait for the lock meanwhile.
    fn wait_for_posted(&self) -> Option<maypole::Error> {
        let mut posted = lock(&self.posted);
        posted.take().and_then(|posted| posted.wait().err())
    }
}

/// Starts a message on an address: to rank `peer` if `sends`, else from that rank, or from any rank if
/// `peer` is None. The message keeps `kept`. The caller guarantees the memory.
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
    MessageRequest::post(py, &on.shared, (data_type(type_name)?, 1), kept, message)
}

/// Sends an array, concurrently with calls of other threads.
pub(crate) fn send_array(
    py: Python<'_>,
    shared: &SharedCommunicator,
    data: &Bound<'_, PyAny>,
    to: usize,
    tag: u32,
) -> PyResult<MessageRequest> {
    let data = ArrayMemory::of(data, ArrayUse::SENT)?;
    MessageRequest::of_array(py, shared, Arc::new(data), (true, Some(to), tag))
}

/// Receives an array, concurrently with calls of other threads. Returns the rank that sent it, and its
/// number of elements.
pub(crate) fn receive_array(
    py: Python<'_>,
    shared: &SharedCommunicator,
    data: ArrayMemory,
    source: Option<usize>,
    tag: u32,
) -> PyResult<Arrival> {
    let data = Arc::new(data);
    let request = MessageRequest::of_array(py, shared, Arc::clone(&data), (false, source, tag))?;
    let arrival = request.wait(py)?;
    data.finish(py)?;
    Ok(arrival)
}

/// Sends `data` to rank `to` and receives `out` from rank `source`, concurrently.
pub(crate) fn exchange_arrays(
    py: Python<'_>,
    on: &Communicator,
    (data, to): (ArrayMemory, usize),
    (out, source): (ArrayMemory, Option<usize>),
    tag: u32,
) -> PyResult<Arrival> {
    if to >= on.world {
        return Err(invalid(format!("to is {to}: there are {} ranks", on.world)));
    }
    let uses = [data.memory_use(), out.memory_use()];
    if uses[0].conflicts_with(&uses[1]) {
        return Err(invalid("data and out share memory: pass a copy of data"));
    }
    // Nothing is posted before both can be.
    on.shared.check_free(py, &uses)?;
    let sent = MessageRequest::of_array(py, &on.shared, Arc::new(data), (true, Some(to), tag))?;
    let arrival = receive_array(py, &on.shared, out, source, tag);
    sent.wait(py)?;
    arrival
}

impl MessageRequest {
    pub(crate) fn of_array(
        py: Python<'_>,
        shared: &SharedCommunicator,
        data: Arc<ArrayMemory>,
        message: Envelope,
    ) -> PyResult<Self> {
        let elements = (data.elements.data_type, data.elements.scale);
        let kept = KeptBytes { bytes: data.raw(), _keeper: RequestBuffers::Array { _array: data } };
        Self::post(py, shared, elements, kept, message)
    }

    /// Posts a message of elements of a type, so many for each element of the program.
    fn post(
        py: Python<'_>,
        shared: &SharedCommunicator,
        (data_type, scale): (DataType, usize),
        kept: KeptBytes,
        (sends, peer, tag): Envelope,
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
        Ok(Self { posted, end, abort: shared.abort.clone(), about: (sends, peer, tag), scale })
    }
}

/// Stores the outcome of the message. Takes the interpreter's lock only to call listeners.
fn hook(
    end: Arc<Mutex<MessageEnd>>,
    mut in_flight: InFlight,
) -> impl FnOnce(Result<Arrival, &maypole::Error>) + Send + 'static {
    move |outcome| {
        // Before a thread that waits can use the memory again.
        in_flight.release_memory();
        let mut end = lock(&end);
        end.outcome = Some(outcome.map_err(Clone::clone));
        let listeners = std::mem::take(&mut end.listeners);
        drop(end);
        if listeners.is_empty() {
            return;
        }
        // There are no listeners after the interpreter has ended.
        Python::try_attach(|py| {
            for listener in listeners {
                if let Err(error) = listener.call0(py) {
                    error.write_unraisable(py, None);
                }
            }
        });
    }
}
