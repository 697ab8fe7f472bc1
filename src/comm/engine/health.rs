//! How a group fails: every rank is told, every rank names the same first cause, and no later call
//! runs.

use crate::comm::control::Control;
use crate::comm::error::{Error, Result};
use crate::world::service::{Cause, CauseKind, Pulse};
use std::any::Any;
use std::sync::Arc;

/// Whether a rank's communicator still works, and what this rank is doing.
#[derive(Debug)]
pub(crate) struct Health {
    rank: usize,
    control: Arc<dyn Control>,
    pulse: Arc<Pulse>,
    /// Operations that have ended.
    sequence: u64,
    first_failure: Option<Error>,
}

impl Health {
    pub(super) fn new(rank: usize, control: Arc<dyn Control>) -> Self {
        Self { rank, pulse: control.pulse(), control, sequence: 0, first_failure: None }
    }

    pub(crate) fn control(&self) -> &dyn Control {
        &*self.control
    }

    pub(crate) fn shared_control(&self) -> Arc<dyn Control> {
        Arc::clone(&self.control)
    }

    /// How many operations have ended on this communicator.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Records, for peers that ask, that this rank is in its next operation.
    #[inline(always)]
    pub(super) fn enter(&self) {
        self.pulse.enter(self.sequence);
    }

    /// Records that the operation has ended.
    #[inline(always)]
    pub(super) fn exit(&mut self) {
        self.pulse.exit(self.sequence);
        self.sequence += 1;
    }

    /// Records that the operation has ended, and does not count it.
    pub(super) fn exit_uncounted(&self) {
        self.pulse.back(self.sequence);
    }

    /// Records what this rank's operations are from now on, for peers that ask.
    pub(super) fn record(&self, operation: String) {
        self.control.record(self.sequence, operation);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.first_failure.is_some()
    }

    /// Refuses to go on after a failure.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.first_failure {
            Some(first) => Err(Error::Failed {
                first: first.to_string(),
                retryable: first.is_retryable(),
                culprit: first.culprit(),
            }),
            None => Ok(()),
        }
    }

    /// Records the failure, after which no call runs.
    pub(super) fn fail(&mut self, error: Error) -> Error {
        self.first_failure = Some(error.clone());
        error
    }

    /// The error of an operation that ends because another rank has failed first.
    pub(super) fn aborted(&self, operation: String) -> Error {
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
            retryable: is_retryable(&first),
            culprit: first.culprit,
            cause: first.text,
        }
    }

    /// Tells all ranks of a failure of `kind` that rank `blamed` has caused. Returns `error`, or
    /// [`Error::Aborted`] if another failure came first.
    pub(super) fn report(
        &self,
        operation: String,
        error: Error,
        kind: CauseKind,
        blamed: usize,
    ) -> Error {
        let first = self.control.fail(Cause {
            sequence: self.sequence,
            kind,
            rank: blamed,
            text: error.to_string(),
            culprit: error.culprit(),
        });
        // A rank that has failed leaves, which its peers may take for a death.
        if first.kind == kind && (kind != CauseKind::Death || first.rank == blamed) {
            return error;
        }
        self.aborted_by(operation, first)
    }

    /// The error if the ranks cannot be connected for `operation`. If another failure came first,
    /// the error names that failure. Otherwise all ranks are told of this one.
    pub(super) fn unconnected(&self, operation: String, why: String) -> Error {
        if let Some(cause) = self.control.cause() {
            return self.aborted_by(operation, cause);
        }
        let error = Error::Connect { rank: self.rank, operation, why };
        self.control.fail(Cause {
            sequence: self.sequence,
            kind: CauseKind::Timeout,
            rank: self.rank,
            text: error.to_string(),
            culprit: None,
        });
        error
    }

    /// Records that a function of the user's panicked in `operation`, and tells all ranks.
    pub(super) fn panicked(&mut self, operation: &str, panic: &(dyn Any + Send)) {
        let rank = self.rank;
        let sequence = self.sequence;
        let message = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        let text = format!("rank {rank} panicked in {operation} (operation {sequence}): {message}");
        let culprit = Some(rank);
        self.fail(Error::Aborted {
            rank,
            operation: operation.to_owned(),
            sequence,
            cause: text.clone(),
            retryable: false,
            culprit,
        });
        self.control.fail(Cause { sequence, kind: CauseKind::UserAbort, rank, text, culprit });
    }
}

/// True if the same program may succeed another time.
fn is_retryable(cause: &Cause) -> bool {
    matches!(cause.kind, CauseKind::Death | CauseKind::Timeout)
}
