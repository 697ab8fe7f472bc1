//! The end of an operation, from the thread that runs it to its request.

use super::progress::RequestOutcome;
use crate::engine::health::{UnreportedError, panic_message};
use crate::error::{Error, FailureKind, FirstFailure};
use maypole_transports::lock;
use maypole_transports::turns;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Waker};

/// The outcome of an operation. Its request shares it with the thread that runs the operation.
pub(crate) struct SharedOutcome<B> {
    state: Mutex<OutcomeState<B>>,
    ended: Condvar,
    unreported: Arc<UnreportedError>,
    rank: usize,
}

struct OutcomeState<B> {
    is_over: bool,
    /// Set at the end, until the request takes it.
    outcome: Option<RequestOutcome<B>>,
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
    let state = OutcomeState {
        is_over: false,
        outcome: None,
        waker: None,
        is_detached: false,
        ignores_error: false,
    };
    let (state, ended, unreported) = (Mutex::new(state), Condvar::new(), Arc::clone(unreported));
    let shared = Arc::new(SharedOutcome { state, ended, unreported, rank });
    (OutcomeSender(Arc::clone(&shared)), shared)
}

impl<B> OutcomeSender<B> {
    pub(crate) fn send(self, outcome: RequestOutcome<B>) {
        self.0.end(outcome);
    }
}

impl<B> Drop for OutcomeSender<B> {
    fn drop(&mut self) {
        let state = lock(&self.0.state);
        let is_awaited = !state.is_over && !state.is_detached;
        drop(state);
        if is_awaited {
            let text = "it ended before the operation could run";
            let first = FirstFailure::new(FailureKind::UserAbort, None, text);
            self.0.end(Ok(Err((Error::Failed { first }, None))));
        }
    }
}

impl<B> SharedOutcome<B> {
    fn end(&self, outcome: RequestOutcome<B>) {
        let mut state = lock(&self.state);
        state.is_over = true;
        if state.is_detached {
            drop(state);
            return self.keep(outcome);
        }
        state.outcome = Some(outcome);
        let waker = state.waker.take();
        drop(state);
        self.ended.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// True once the operation has ended, or can never run.
    pub(crate) fn is_over(&self) -> bool {
        lock(&self.state).is_over
    }

    /// The outcome, once it is there and was not taken.
    pub(crate) fn take(&self) -> Option<RequestOutcome<B>> {
        lock(&self.state).outcome.take()
    }

    /// Waits for the outcome, which was not taken.
    pub(crate) fn wait(&self) -> RequestOutcome<B> {
        if let Some(Ok(outcome)) = turns::wait(None, || self.take()) {
            return outcome;
        }
        let ended = self.ended.wait_while(lock(&self.state), |state| !state.is_over);
        let outcome = ended.unwrap_or_else(PoisonError::into_inner).outcome.take();
        outcome.expect("only its request takes an outcome")
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
        let outcome = state.outcome.take();
        drop(state);
        if let Some(outcome) = outcome {
            self.keep(outcome);
        }
    }

    /// Keeps the error of `outcome` for the next call.
    pub(crate) fn keep(&self, outcome: RequestOutcome<B>) {
        if lock(&self.state).ignores_error {
            return;
        }
        let rank = self.rank;
        match outcome {
            Ok(Ok(_)) => {}
            Ok(Err((error, _))) => self.unreported.keep(error),
            Err(panic) => {
                let text = format!("rank {rank} panicked in a request: {}", panic_message(&*panic));
                let first = FirstFailure::new(FailureKind::UserAbort, Some(rank), text);
                self.unreported.keep(Error::Failed { first });
            }
        }
    }

    /// Notes that a caller receives this outcome.
    pub(crate) fn note_received(&self, outcome: &RequestOutcome<B>) {
        if let Ok(Err((error, _))) = outcome {
            self.unreported.note_received(error);
        }
    }

    /// Keeps no error from now on.
    pub(crate) fn ignore(&self) {
        lock(&self.state).ignores_error = true;
    }
}
