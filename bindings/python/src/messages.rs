//! Messages on addresses: what the backend of PyTorch sends and receives. The library matches them
//! by tag and drives them from the thread that waits for one.

use crate::communicator::Communicator;
use crate::error::raise;
use crate::interrupt::InterruptibleWait;
use crate::names::data_type;
use crate::raw::RawBytes;
use crate::shared::{InFlight, lock};
use maypole::AbortHandle;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex};

/// The rank at the other end of a message, and the number of its elements.
type Arrival = (usize, usize);

/// Memory at an address, and the object that keeps it.
struct KeptBytes {
    bytes: RawBytes,
    _object: Py<PyAny>,
}

impl AsRef<[u8]> for KeptBytes {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the caller of `_start_message` vouches for the memory while the object is kept.
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
    let data_type = data_type(type_name)?;
    let kept = KeptBytes { bytes: RawBytes::new(buffer), _object: kept };
    let end = Arc::<Mutex<MessageEnd>>::default();
    let ended = hook(Arc::clone(&end), InFlight::message(&on.shared));
    let posted = on.shared.with_messages(py, move |messages| match peer.filter(|_| sends) {
        Some(to) => Posted::Send(messages.start_send(data_type, kept, to, tag, ended)),
        None => Posted::Receive(messages.start_recv(data_type, kept, peer, tag, ended)),
    })?;
    let posted = Mutex::new(Some(posted));
    Ok(MessageRequest { posted, end, abort: on.shared.abort.clone() })
}

/// Notes how the message has ended. Takes the interpreter's lock only for listeners: whoever waits
/// asks for the end.
fn hook(
    end: Arc<Mutex<MessageEnd>>,
    in_flight: InFlight,
) -> impl FnOnce(Result<Arrival, &maypole::Error>) + Send + 'static {
    move |outcome| {
        let _in_flight = in_flight;
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
