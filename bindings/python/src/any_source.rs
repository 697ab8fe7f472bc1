//! A receive from any source, where the messages of different sources come on different
//! communicators.
//!
//! Each of the communicators has a thread of its own that runs its requests. The receive is a
//! request of each: when its turn has come, it looks whether a message has arrived there. The first
//! that finds one claims the receive and takes the message; the others end without any.

use crate::addresses::notify;
use crate::communicator::Communicator;
use crate::error::{invalid, raise};
use crate::interrupt::InterruptibleWait;
use crate::raw::{RawBytes, data_type};
use crate::request::RequestBuffers;
use crate::shared::InFlight;
use maypole::{AbortHandle, DataType};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Looks for a message without a pause between them; a message that is on its way comes meanwhile.
const EAGER_LOOKS: u32 = 200;
/// The pauses between later looks.
const SHORTEST_PAUSE: Duration = Duration::from_micros(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// What the requests of one receive share.
struct AnySource {
    is_claimed: AtomicBool,
    data_type: DataType,
    bytes: RawBytes,
    tag: u32,
}

impl AnySource {
    /// Claims the receive. False if it was claimed before.
    fn claim(&self) -> bool {
        !self.is_claimed.swap(true, Ordering::AcqRel)
    }

    /// Looks for a message on `comm` until there is one, the deadline has passed or another
    /// communicator has claimed the receive. Returns the rank that the message came from; None if
    /// another communicator has claimed the receive.
    fn run(&self, comm: &mut maypole::Communicator) -> Option<maypole::Result<usize>> {
        let timeout = comm.timeout();
        let deadline = Instant::now() + timeout;
        // After the deadline, a call in here fails at once, as one that has waited for so long.
        let mut comm = comm.within(timeout);
        let mut looks = 0;
        while !self.is_claimed.load(Ordering::Acquire) {
            let arrived = comm.probe_any(self.tag);
            let waits = matches!(arrived, Ok(None)) && Instant::now() < deadline;
            if !waits && self.claim() {
                return Some(arrived.and_then(|_| self.receive(&mut comm)));
            }
            looks += 1;
            pause(looks);
        }
        None
    }

    fn receive(&self, comm: &mut maypole::Communicator) -> maypole::Result<usize> {
        // SAFETY: the requests keep what the caller says keeps the memory, and only the one that
        // has claimed the receive comes here.
        let bytes = unsafe { self.bytes.bytes_mut() };
        comm.recv_erased(self.data_type, bytes, None, self.tag).map(|(source, _)| source)
    }
}

fn pause(looks: u32) {
    match looks.checked_sub(EAGER_LOOKS) {
        None => thread::yield_now(),
        Some(more) => {
            let pause = SHORTEST_PAUSE * 2_u32.saturating_pow(more / 8);
            thread::sleep(pause.min(LONGEST_PAUSE));
        }
    }
}

/// A receive from any source under way.
#[pyclass(frozen, module = "maypole")]
pub(crate) struct AnySourceRequest {
    outcome: Mutex<ReceiveOutcome>,
    abort: AbortHandle,
}

enum ReceiveOutcome {
    Awaited(Receiver<maypole::Result<()>>),
    Known(maypole::Result<()>),
    Given,
}

#[pymethods]
impl AnySourceRequest {
    /// Waits until a message has come.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let outcome = {
            let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *outcome, ReceiveOutcome::Given)
        };
        let waiting = InterruptibleWait::begin(&self.abort);
        let over = match outcome {
            ReceiveOutcome::Awaited(outcome) => py.detach(move || outcome.recv()).ok(),
            ReceiveOutcome::Known(result) => Some(result),
            ReceiveOutcome::Given => return Err(invalid("this request was waited for already")),
        };
        drop(waiting);
        let over = over.ok_or_else(|| invalid("the communicator ended before the message came"))?;
        over.map_err(|error| py.check_signals().err().unwrap_or_else(|| raise(&error)))
    }

    /// True once a message has come, also if the receive failed or was waited for.
    fn test(&self) -> bool {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        if let ReceiveOutcome::Awaited(awaited) = &*outcome {
            match awaited.try_recv() {
                Ok(result) => *outcome = ReceiveOutcome::Known(result),
                // A wait then says that the communicator has ended.
                Err(TryRecvError::Disconnected) => return true,
                Err(TryRecvError::Empty) => return false,
            }
        }
        true
    }
}

/// Starts a receive at an address from any rank, by messages that may come on any of the
/// communicators `on`. Then calls `done` with None or the exception, and with the rank that the
/// message came from.
#[pyfunction]
pub(crate) fn _start_any_source(
    py: Python<'_>,
    on: Vec<PyRef<'_, Communicator>>,
    type_name: &str,
    buffer: (usize, usize),
    tag: u32,
    kept: Py<PyAny>,
    done: Py<PyAny>,
) -> PyResult<AnySourceRequest> {
    let first = on.first().ok_or_else(|| invalid("a message of this rank has no other rank"))?;
    let abort = first.shared.abort.clone();
    let bytes = RawBytes::new(buffer);
    let data_type = data_type(type_name)?;
    let receive = Arc::new(AnySource { is_claimed: AtomicBool::new(false), data_type, bytes, tag });
    let (tell, outcome) = channel();
    for communicator in &on {
        let started = start(py, communicator, &receive, (&kept, &done), tell.clone());
        if started.is_err() {
            // The requests that were started end without a message.
            receive.claim();
            started?;
        }
    }
    Ok(AnySourceRequest { outcome: Mutex::new(ReceiveOutcome::Awaited(outcome)), abort })
}

fn start(
    py: Python<'_>,
    on: &Communicator,
    receive: &Arc<AnySource>,
    (kept, done): (&Py<PyAny>, &Py<PyAny>),
    tell: Sender<maypole::Result<()>>,
) -> PyResult<()> {
    let in_flight = InFlight::new(&on.shared);
    let receive = Arc::clone(receive);
    let done = done.clone_ref(py);
    let run = move |comm: &mut maypole::Communicator, _: &mut RequestBuffers| {
        let _in_flight = in_flight;
        if let Some(result) = receive.run(comm) {
            notify(done, result.as_ref().map(|source| Some(*source)));
            // The caller may have dropped its request.
            let _ = tell.send(result.map(drop));
        }
        Ok(())
    };
    let buffers = RequestBuffers::Kept { _object: Some(kept.clone_ref(py)) };
    // The outcome goes by the channel, so the library's own request is detached.
    on.shared.with(py, move |comm| {
        drop(comm.start(buffers, run));
        Ok(())
    })
}
