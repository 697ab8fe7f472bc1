//! The error of a program, or of a batch of messages, that did not complete.

use crate::comm::engine::Engine;
use crate::comm::engine::calls::call::CollectiveCall;
use crate::comm::error::Error;
use crate::execute::messages::{BatchError, MessageBatch};
use crate::execute::{ExecuteError, LinkError, Unexpected};
use crate::world::service::CauseKind;
use std::any::Any;
use std::io;

impl Engine {
    /// Records the failure, after which no call runs.
    pub(crate) fn fail(&mut self, error: Error) -> Error {
        self.calls.forget_current();
        self.health.fail(error)
    }

    /// The error of `call`, whose program did not complete. The communicator has failed.
    #[cold]
    #[inline(never)]
    pub(super) fn explain_program(&mut self, call: CollectiveCall, failed: ExecuteError) -> Error {
        self.explain_link(call.to_string(), failed.fold, Some(failed.peer), failed.error)
    }

    /// The error of a batch of messages that did not complete. The communicator has failed.
    #[cold]
    #[inline(never)]
    pub(crate) fn explain_batch(&mut self, batch: &MessageBatch<'_>, failed: BatchError) -> Error {
        let BatchError { member, peer, error } = failed;
        let control = self.health.control();
        // A rank that fails or leaves closes its links for messages. The control plane knows which
        // of the two has happened.
        let error = match error {
            LinkError::Lost(_) if control.alarm().raised() => LinkError::Aborted,
            LinkError::Lost(_) if control.has_left(peer.unwrap_or(self.rank)) => {
                LinkError::PeerLeft
            }
            error => error,
        };
        self.explain_link(batch.describe(member), batch.step(member), peer, error)
    }

    /// The communicator has failed at `step` of `operation`, which waited for `peer`, or for any
    /// rank if `peer` is `None`.
    fn explain_link(
        &mut self,
        operation: String,
        step: usize,
        peer: Option<usize>,
        error: LinkError,
    ) -> Error {
        let rank = self.rank;
        let sequence = self.health.sequence();
        let whom = peer.unwrap_or(rank);
        // A rank that has failed also leaves, and a wait may notice the leaving first.
        let left_after_failure =
            matches!(error, LinkError::PeerLeft) && self.health.control().alarm().raised();
        if left_after_failure || matches!(error, LinkError::Aborted) {
            let error = self.health.aborted(operation);
            return self.fail(error);
        }
        let lost =
            |why| Error::PeerLost { rank, peer: whom, operation: operation.clone(), sequence, why };
        let (kind, error) = match error {
            LinkError::Unconnected(why) => return self.unconnected(operation, why),
            LinkError::Aborted => unreachable!("handled above"),
            LinkError::Mismatch(unexpected) => {
                let theirs = match unexpected {
                    Unexpected::Call(_) => self.health.control().inquire(whom),
                    Unexpected::Message(theirs) => Some(theirs),
                };
                let operation = operation.clone();
                let error = Error::Mismatch { rank, peer: whom, operation, sequence, theirs };
                (CauseKind::Mismatch, error)
            }
            LinkError::TimedOut => {
                let operation = operation.clone();
                let after = self.limits.allowed();
                let error = match peer {
                    Some(peer) => self.timed_out(peer, operation, step),
                    None => Error::NoMessage { rank, operation, sequence, after },
                };
                (CauseKind::Timeout, error)
            }
            LinkError::PeerLeft => (CauseKind::Death, lost("it has left".to_owned())),
            LinkError::Lost(fault) => (CauseKind::Death, lost(fault.to_string())),
        };
        let blamed = if kind == CauseKind::Death { whom } else { rank };
        let error = self.health.report(operation, error, kind, blamed);
        self.fail(error)
    }

    /// The error of a wait for `peer` in `step` of `operation` that did not end in time.
    pub(super) fn timed_out(&self, peer: usize, operation: String, step: usize) -> Error {
        let straggler = self.health.control().locate(peer);
        let culprit = straggler.as_ref().map_or(Some(peer), |straggler| straggler.rank);
        Error::TimedOut {
            rank: self.rank,
            peer,
            operation,
            sequence: self.health.sequence(),
            step,
            after: self.limits.allowed(),
            detail: straggler.map(|straggler| straggler.report),
            culprit,
        }
    }

    /// The ranks cannot be connected for `operation`. The communicator has failed.
    #[cold]
    pub(crate) fn unconnected(&mut self, operation: String, why: String) -> Error {
        let error = self.health.unconnected(operation, why);
        self.fail(error)
    }

    /// Records which message of `batch` this rank waits for, for peers that ask.
    #[cold]
    pub(crate) fn note_batch(&self, batch: &MessageBatch<'_>) {
        let (member, _) = batch.awaited();
        self.health.record(batch.describe(member));
        self.health.enter();
    }

    /// Withdraws the record of a batch.
    #[cold]
    pub(crate) fn note_outside(&mut self) {
        self.health.exit_uncounted();
        // The next call records anew which call it is.
        self.calls.forget_current();
    }

    /// The system cannot start the thread for a request, so this rank cannot do its part in it. The
    /// communicator has failed.
    #[cold]
    pub(crate) fn without_thread(&mut self, error: &io::Error) {
        let why = format!("the system cannot start a thread for it: {error}");
        let _ = self.unconnected("a request".to_owned(), why);
    }

    /// A function of the user's panicked in `operation`. The communicator has failed. It may have
    /// failed before, and the function may have panicked because of that.
    #[cold]
    pub(crate) fn panicked(&mut self, operation: &str, panic: &(dyn Any + Send)) {
        if self.health.has_failed() {
            return;
        }
        self.calls.forget_current();
        self.health.panicked(operation, panic);
    }
}
