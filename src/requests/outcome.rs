//! The end of an operation, from the thread that runs it to its request.

use crate::engine::health::{UnreportedError, panic_message};
use crate::error::{Error, FailureKind, FirstFailure, Result};
use maypole_transports::lock;
use maypole_transports::turns;
use std::panic::resume_unwind;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Waker};

/// How an operation ended: by a panic, an error, or well.
pub(crate) type RequestEnd = std::thread::Result<Result<()>>;

/// The outcome of an operation. Its request shares it with the thread that runs the operation.
pub(crate) struct SharedOutcome<B> {
    pub(crate) end: SharedEnd,
    /// Set before the end.
    buffers: Mutex<Option<B>>,
}

/// The part of an outcome that is the same for all buffers, so that it is compiled once.
pub(crate) struct SharedEnd {
    state: Mutex<EndState>,
    ended: Condvar,
    unreported: Arc<UnreportedError>,
    rank: usize,
}

#[derive(Default)]
struct EndState {
    is_over: bool,
    /// Set at the end, until the request takes it.
    end: Option<RequestEnd>,
    /// The task that is woken at the end.
    waker: Option<Waker>,
    /// The request was dropped.
    is_detached: bool,
    /// The program receives the error in another way.
    ignores_error: bool,
}

/// Sends a request the outcome of its operation. If it is dropped before, the operation never runs.
pub(crate) struct OutcomeSender<B>(Arc<SharedOutcome<B>>);

/// Makes both ends for one outcome of rank `rank`.
pub(crate) fn channel<B>(
    rank: usize,
    unreported: &Arc<UnreportedError>,
) -> (OutcomeSender<B>, Arc<SharedOutcome<B>>) {
    let (state, ended, unreported) = (Mutex::default(), Condvar::new(), Arc::clone(unreported));
    let end = SharedEnd { state, ended, unreported, rank };
    let shared = Arc::new(SharedOutcome { end, buffers: Mutex::new(None) });
    (OutcomeSender(Arc::clone(&shared)), shared)
}

impl<B> OutcomeSender<B> {
    /// Ends the operation, with the buffers that have outlived it.
    pub(crate) fn send(self, buffers: Option<B>, end: RequestEnd) {
        *lock(&self.0.buffers) = buffers;
        self.0.end.set(end);
    }
}

impl<B> Drop for OutcomeSender<B> {
    fn drop(&mut self) {
        self.0.end.abandon();
    }
}

impl<B> SharedOutcome<B> {
    /// The outcome, which is there and was not taken, for the caller. Panics as the operation did.
    pub(crate) fn receive(&self) -> std::result::Result<B, (Error, Option<B>)> {
        let buffers = lock(&self.buffers).take();
        match self.end.receive() {
            Ok(()) => Ok(buffers.expect("buffers outlive an operation without an error")),
            Err(error) => Err((error, buffers)),
        }
    }
}

impl SharedEnd {
    fn set(&self, end: RequestEnd) {
        let mut state = lock(&self.state);
        state.is_over = true;
        if state.is_detached {
            drop(state);
            return self.keep(end);
        }
        state.end = Some(end);
        let waker = state.waker.take();
        drop(state);
        self.ended.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ends an operation that will not run.
    fn abandon(&self) {
        if matches!(*lock(&self.state), EndState { is_over: false, is_detached: false, .. }) {
            let text = "it ended before the operation could run";
            let first = FirstFailure::new(FailureKind::UserAbort, None, text);
            self.set(Ok(Err(Error::Failed { first })));
        }
    }

    /// True once the operation has ended, or can never run.
    pub(crate) fn is_over(&self) -> bool {
        lock(&self.state).is_over
    }

    /// Waits for the end.
    pub(crate) fn wait(&self) {
        if turns::wait(None, || self.is_over().then_some(())).is_none() {
            let _ended = self.ended.wait_while(lock(&self.state), |state| !state.is_over);
        }
    }

    /// Takes the end, for the caller.
    fn receive(&self) -> Result<()> {
        let end = lock(&self.state).end.take().expect("only its request takes an outcome");
        let end = end.unwrap_or_else(|panic| resume_unwind(panic));
        end.inspect_err(|error| self.unreported.note_received(error))
    }

    /// Registers the task of `context`, to be woken at the end. The caller polls the outcome
    /// afterwards, because it may have arrived just before.
    pub(crate) fn wake(&self, context: &Context<'_>) {
        lock(&self.state).waker = Some(context.waker().clone());
    }

    /// Detaches the request: an error of the outcome is kept for the next call.
    pub(crate) fn detach(&self) {
        let mut state = lock(&self.state);
        state.is_detached = true;
        let end = state.end.take();
        drop(state);
        if let Some(end) = end {
            self.keep(end);
        }
    }

    /// Keeps the error of `end` for the next call.
    pub(crate) fn keep(&self, end: RequestEnd) {
        if lock(&self.state).ignores_error {
            return;
        }
        let rank = self.rank;
        match end {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.unreported.keep(error),
            Err(panic) => {
                let text = format!("rank {rank} panicked in a request: {}", panic_message(&*panic));
                let first = FirstFailure::new(FailureKind::UserAbort, Some(rank), text);
                self.unreported.keep(Error::Failed { first });
            }
        }
    }

    /// Keeps no error from now on.
    pub(crate) fn ignore(&self) {
        lock(&self.state).ignores_error = true;
    }
}
