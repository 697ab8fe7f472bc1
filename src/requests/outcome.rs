//! The end of an operation, from the thread that runs it to its request.

use super::progress::RequestOutcome;
use crate::engine::health::{UnreportedError, panic_message};
use crate::error::{Error, FailureKind, FirstFailure};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

/// The state that both ends share.
struct SharedEnd {
    state: Mutex<EndState>,
    unreported: Arc<UnreportedError>,
    rank: usize,
}

#[derive(Default)]
struct EndState {
    /// The task that is woken at the end.
    waker: Option<Waker>,
    /// The request was dropped.
    is_detached: bool,
    /// The program receives the error in another way.
    ignores_error: bool,
}

/// Sends a request the outcome of its operation. If it is dropped before, the request finds its
/// channel closed.
pub(crate) struct OutcomeSender<B> {
    outcome: Option<SyncSender<RequestOutcome<B>>>,
    end: OutcomeReport,
}

/// Wakes the task that awaits an outcome, and keeps the error of an outcome that no caller receives, for
/// the next call.
#[derive(Clone)]
pub(crate) struct OutcomeReport(Arc<SharedEnd>);

/// Makes both ends for one outcome of rank `rank`.
pub(crate) fn channel<B>(
    rank: usize,
    unreported: &Arc<UnreportedError>,
) -> (OutcomeSender<B>, Receiver<RequestOutcome<B>>, OutcomeReport) {
    let (send, outcome) = sync_channel(1);
    let unreported = Arc::clone(unreported);
    let end = OutcomeReport(Arc::new(SharedEnd { state: Mutex::default(), unreported, rank }));
    (OutcomeSender { outcome: Some(send), end: end.clone() }, outcome, end)
}

impl<B> OutcomeSender<B> {
    pub(crate) fn send(mut self, outcome: RequestOutcome<B>) {
        let Some(send) = self.outcome.take() else { return };
        let state = self.end.state();
        if state.is_detached {
            drop(state);
            return self.end.keep(outcome);
        }
        // The channel has a slot for the outcome, so this does not block.
        let _ = send.send(outcome);
    }
}

impl<B> Drop for OutcomeSender<B> {
    /// Wakes the task, which finds the outcome or a closed channel.
    fn drop(&mut self) {
        self.outcome = None;
        let waker = self.end.state().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl OutcomeReport {
    fn state(&self) -> MutexGuard<'_, EndState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the task of `context`, to be woken at the end. The caller polls the outcome
    /// afterwards, because it may have arrived just before.
    pub(crate) fn wake(&self, context: &Context<'_>) {
        let waker = &mut self.state().waker;
        match waker {
            Some(waker) => waker.clone_from(context.waker()),
            None => *waker = Some(context.waker().clone()),
        }
    }

    /// Detaches the request: an error in `outcome`, or a later one, is kept for the next call.
    pub(crate) fn detach<B>(&self, outcome: Receiver<RequestOutcome<B>>) {
        let mut state = self.state();
        state.is_detached = true;
        let come = outcome.try_recv();
        drop(state);
        if let Ok(outcome) = come {
            self.keep(outcome);
        }
    }

    /// Keeps the error of `outcome` for the next call.
    pub(crate) fn keep<B>(&self, outcome: RequestOutcome<B>) {
        if self.state().ignores_error {
            return;
        }
        let rank = self.0.rank;
        match outcome {
            Ok(Ok(_)) => {}
            Ok(Err((error, _))) => self.0.unreported.keep(error),
            Err(panic) => {
                let text = format!("rank {rank} panicked in a request: {}", panic_message(&*panic));
                let first = FirstFailure::new(FailureKind::UserAbort, Some(rank), text);
                self.0.unreported.keep(Error::Failed { first });
            }
        }
    }

    /// Notes that a caller receives this outcome.
    pub(crate) fn note_received<B>(&self, outcome: &RequestOutcome<B>) {
        if let Ok(Err((error, _))) = outcome {
            self.0.unreported.note_received(error);
        }
    }

    /// Keeps no error from now on.
    pub(crate) fn ignore(&self) {
        self.state().ignores_error = true;
    }
}
