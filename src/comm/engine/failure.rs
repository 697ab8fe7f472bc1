//! What becomes of a group when a call fails: everybody is told, all name the same first cause,
//! nothing goes on.

use crate::comm::engine::Engine;
use crate::comm::engine::call::Call;
use crate::comm::error::{Error, Result};
use crate::execute::messages::{BatchError, MessageBatch};
use crate::execute::{ExecuteError, LinkError, Unexpected};
use crate::world::service::{Cause, CauseKind};
use std::any::Any;
use std::io;

impl Engine {
    /// Refuses to go on after a failure.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.failed {
            Some(first) => Err(Error::Failed {
                first: first.to_string(),
                retryable: first.is_retryable(),
                culprit: first.culprit(),
            }),
            None => Ok(()),
        }
    }

    /// Notes the failure, after which nothing runs.
    pub(crate) fn fail(&mut self, error: Error) -> Error {
        self.failed = Some(error.clone());
        self.forget_current();
        error
    }

    /// The communicator has failed because a program did not end: tells all ranks and the caller.
    #[cold]
    #[inline(never)]
    pub(crate) fn explain_program(&mut self, call: Call, failed: ExecuteError) -> Error {
        self.explain_link(call.to_string(), failed.fold, Some(failed.peer), failed.error)
    }

    /// The communicator has failed because a batch of messages did not end: tells all ranks and the
    /// caller.
    #[cold]
    #[inline(never)]
    pub(crate) fn explain_batch(&mut self, batch: &MessageBatch<'_>, failed: BatchError) -> Error {
        let BatchError { member, peer, error } = failed;
        // A rank that fails or leaves closes its links for messages, so the control plane knows more
        // than a lost link tells.
        let error = match error {
            LinkError::Lost(_) if self.control.alarm().raised() => LinkError::Aborted,
            LinkError::Lost(_) if self.control.has_left(peer.unwrap_or(self.rank)) => {
                LinkError::PeerLeft
            }
            error => error,
        };
        self.explain_link(batch.describe(member), batch.step(member), peer, error)
    }

    /// The communicator has failed at `step` of `operation`, which waited for `peer` or, without
    /// one, for any rank.
    fn explain_link(
        &mut self,
        operation: String,
        step: usize,
        peer: Option<usize>,
        error: LinkError,
    ) -> Error {
        let rank = self.rank;
        let sequence = self.sequence;
        let whom = peer.unwrap_or(rank);
        // A rank that has failed leaves, too, and a wait may see that first.
        let left_after_failure =
            matches!(error, LinkError::PeerLeft) && self.control.alarm().raised();
        if left_after_failure || matches!(error, LinkError::Aborted) {
            let error = self.aborted(operation);
            return self.fail(error);
        }
        let lost =
            |why| Error::PeerLost { rank, peer: whom, operation: operation.clone(), sequence, why };
        let (kind, error) = match error {
            LinkError::Unconnected(why) => return self.unconnected(operation, why),
            LinkError::Aborted => unreachable!("handled above"),
            LinkError::Mismatch(unexpected) => {
                let theirs = match unexpected {
                    Unexpected::Call(_) => self.control.inquire(whom),
                    Unexpected::Message(theirs) => Some(theirs),
                };
                let operation = operation.clone();
                let error = Error::Mismatch { rank, peer: whom, operation, sequence, theirs };
                (CauseKind::Mismatch, error)
            }
            LinkError::TimedOut => {
                let operation = operation.clone();
                let error = match peer {
                    Some(peer) => self.timed_out(peer, operation, step),
                    None => Error::NoMessage { rank, operation, sequence, after: self.allowed() },
                };
                (CauseKind::Timeout, error)
            }
            LinkError::PeerLeft => (CauseKind::Death, lost("it has left".to_owned())),
            LinkError::Lost(fault) => (CauseKind::Death, lost(fault.to_string())),
        };
        let blamed = if kind == CauseKind::Death { whom } else { rank };
        let error = self.settle(operation, error, kind, blamed);
        self.fail(error)
    }

    /// The error of a wait for `peer` in `step` of `operation` that did not end in time.
    pub(crate) fn timed_out(&self, peer: usize, operation: String, step: usize) -> Error {
        let straggler = self.control.locate(peer);
        let culprit = straggler.as_ref().map_or(Some(peer), |straggler| straggler.rank);
        Error::TimedOut {
            rank: self.rank,
            peer,
            operation,
            sequence: self.sequence,
            step,
            after: self.allowed(),
            detail: straggler.map(|straggler| straggler.report),
            culprit,
        }
    }

    /// Somebody else failed first.
    pub(crate) fn aborted(&self, operation: String) -> Error {
        match self.control.cause() {
            Some(cause) => self.aborted_by(operation, cause),
            None => Error::Aborted {
                rank: self.rank,
                operation,
                sequence: self.sequence,
                cause: "a rank failed".to_owned(),
                retryable: false,
                culprit: None,
            },
        }
    }

    fn aborted_by(&self, operation: String, first: Cause) -> Error {
        Error::Aborted {
            rank: self.rank,
            operation,
            sequence: self.sequence,
            retryable: may_pass(&first),
            culprit: first.culprit,
            cause: first.text,
        }
    }

    /// Tells everybody; gives `error` back unless something else happened first.
    pub(crate) fn settle(
        &self,
        operation: String,
        error: Error,
        kind: CauseKind,
        rank: usize,
    ) -> Error {
        let sequence = self.sequence;
        let first = self.control.fail(Cause {
            sequence,
            kind,
            rank,
            text: error.to_string(),
            culprit: error.culprit(),
        });
        // The end of a failed peer looks like a death of its own.
        if first.kind == kind && (kind != CauseKind::Death || first.rank == rank) {
            return error;
        }
        self.aborted_by(operation, first)
    }

    /// The ranks cannot be connected for `operation`: the communicator has failed, because of that
    /// or of what happened before it.
    #[cold]
    pub(crate) fn unconnected(&mut self, operation: String, why: String) -> Error {
        let (rank, sequence) = (self.rank, self.sequence);
        let error = match self.control.cause() {
            Some(cause) => self.aborted_by(operation, cause),
            None => {
                let error = Error::Connect { rank, operation, why };
                self.control.fail(Cause {
                    sequence,
                    kind: CauseKind::Timeout,
                    rank,
                    text: error.to_string(),
                    culprit: None,
                });
                error
            }
        };
        self.fail(error)
    }

    /// Notes which message of `batch` this rank waits for, for ranks that ask.
    #[cold]
    pub(crate) fn note_batch(&self, batch: &MessageBatch<'_>) {
        let (member, _) = batch.awaited();
        self.control.record(self.sequence, batch.describe(member));
        self.pulse.enter(self.sequence);
    }

    /// Takes the note of a batch back.
    #[cold]
    pub(crate) fn note_outside(&mut self) {
        self.pulse.back(self.sequence);
        // The next call notes anew which call it is.
        self.forget_current();
    }

    /// The system has no thread for requests, on which the other ranks count.
    #[cold]
    pub(crate) fn without_thread(&mut self, error: &io::Error) {
        let _ =
            self.unconnected("a request".to_owned(), format!("there is no thread for it: {error}"));
    }

    /// Tells everybody that a function of the user's panicked in `what`, unless it panicked because
    /// of a failure.
    #[cold]
    pub(crate) fn give_up(&mut self, what: &str, panic: &(dyn Any + Send)) {
        if self.failed.is_some() {
            return;
        }
        let (rank, sequence) = (self.rank, self.sequence);
        let said = panic.downcast_ref::<&str>().copied();
        let said = said
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        let text = format!("rank {rank} panicked in {what} (operation {sequence}): {said}");
        let (operation, cause) = (what.to_owned(), text.clone());
        let culprit = Some(rank);
        self.fail(Error::Aborted { rank, operation, sequence, cause, retryable: false, culprit });
        self.control.fail(Cause { sequence, kind: CauseKind::UserAbort, rank, text, culprit });
    }
}

/// True if a failure says nothing against the program.
fn may_pass(cause: &Cause) -> bool {
    matches!(cause.kind, CauseKind::Death | CauseKind::Timeout)
}
