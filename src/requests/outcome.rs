//! How a request hears of the end of its operation.

use super::progress::RequestOutcome;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};

/// The task that is woken at the end.
type WakerSlot = Arc<Mutex<Option<Waker>>>;

/// Tells a request the outcome of its operation. If it is dropped before, the request hears that none
/// will come.
pub(crate) struct OutcomeSender<B> {
    outcome: Option<SyncSender<RequestOutcome<B>>>,
    waker: WakerSlot,
}

/// Where a request hears the outcome.
pub(crate) struct OutcomeReceiver<B> {
    pub(crate) outcome: Receiver<RequestOutcome<B>>,
    waker: WakerSlot,
}

/// Makes both ends for one outcome.
pub(crate) fn channel<B>() -> (OutcomeSender<B>, OutcomeReceiver<B>) {
    let (tell, outcome) = sync_channel(1);
    let waker = WakerSlot::default();
    let sender = OutcomeSender { outcome: Some(tell), waker: Arc::clone(&waker) };
    (sender, OutcomeReceiver { outcome, waker })
}

impl<B> OutcomeSender<B> {
    pub(crate) fn send(mut self, outcome: RequestOutcome<B>) {
        if let Some(tell) = self.outcome.take() {
            // The receiver is gone if the request was detached.
            let _ = tell.send(outcome);
        }
    }
}

impl<B> Drop for OutcomeSender<B> {
    /// Wakes the task, which finds the outcome, or that none will come.
    fn drop(&mut self) {
        self.outcome = None;
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<B> OutcomeReceiver<B> {
    /// Has the task of `context` woken at the end. The caller looks for the outcome afterwards, which
    /// may have come just before.
    pub(crate) fn wake(&self, context: &Context<'_>) {
        let mut waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *waker {
            Some(waker) => waker.clone_from(context.waker()),
            None => *waker = Some(context.waker().clone()),
        }
    }
}
