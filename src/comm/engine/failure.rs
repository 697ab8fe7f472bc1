//! What becomes of a group when a call fails: everybody is told, all name the same first cause,
//! nothing goes on.

use crate::comm::engine::Engine;
use crate::comm::engine::call::Call;
use crate::comm::error::{Error, Result};
use crate::execute::{Failure, What};
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

    #[cold]
    #[inline(never)]
    pub(crate) fn explain_failure(&mut self, call: Call, failure: Failure) -> Error {
        let Failure { fold: step, peer, what } = failure;
        let (rank, operation, sequence) = (self.rank, call.to_string(), self.sequence);
        let (error, kind) = match what {
            What::Alarmed => (self.aborted(operation), None),
            // Who has failed leaves, too, and a wait may see that first.
            What::Left if self.control.alarm().raised() => (self.aborted(operation), None),
            What::Mismatch(_) => {
                let theirs = self.control.inquire(peer);
                (
                    Error::Mismatch { rank, peer, operation, sequence, theirs },
                    Some(CauseKind::Mismatch),
                )
            }
            What::TimedOut => (self.timed_out(peer, operation, step), Some(CauseKind::Timeout)),
            What::Left => {
                let why = "it has left".to_owned();
                (Error::PeerLost { rank, peer, operation, sequence, why }, Some(CauseKind::Death))
            }
            What::Lost(fault) => {
                let why = fault.to_string();
                (Error::PeerLost { rank, peer, operation, sequence, why }, Some(CauseKind::Death))
            }
        };
        let error = match kind {
            Some(kind) => self.settle(
                call.to_string(),
                error,
                kind,
                if kind == CauseKind::Death { peer } else { rank },
            ),
            None => error,
        };
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
