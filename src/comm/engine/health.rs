//! How a group fails: every rank is told, every rank names the same first cause, and no later call
//! runs.

use crate::comm::control::Control;
use crate::comm::error::{Error, Result};
use crate::comm::status::report_failure;
use crate::world::calls::{CallMismatch, CallRecord, GroupActivity, MissedDeadline, WaitTarget};
use crate::world::service::{Cause, CauseDetail, CauseEvent, CauseKind};
use maypole_transports::{Alarm, OwnerProcess, simulated};
use std::any::Any;
use std::sync::Arc;

/// Whether a rank's communicator still works, and what this rank is doing.
#[derive(Debug)]
pub(crate) struct Health {
    rank: usize,
    /// The process that is the rank. A forked child is not.
    owner: OwnerProcess,
    control: Arc<dyn Control>,
    activity: Arc<GroupActivity>,
    alarm: Arc<Alarm>,
    /// Operations that have ended.
    sequence: u64,
    first_failure: Option<Error>,
}

impl Health {
    pub(super) fn new(rank: usize, owner: OwnerProcess, control: Arc<dyn Control>) -> Self {
        let activity = control.activity();
        let alarm = control.alarm();
        let sequence = activity.pulse().completed();
        Self { rank, owner, control, activity, alarm, sequence, first_failure: None }
    }

    /// True unless this process was forked from the one that is the rank.
    #[inline(always)]
    pub(crate) fn is_in_own_process(&self) -> bool {
        self.owner.is_current()
    }

    /// The process that is the rank.
    pub(super) fn owner(&self) -> OwnerProcess {
        self.owner
    }

    /// Refuses to go on in a forked child.
    pub(crate) fn check_process(&self) -> Result<()> {
        match self.owner.is_current() {
            true => Ok(()),
            false => Err(Error::Forked { rank: self.rank }),
        }
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
        self.activity.pulse().enter(self.sequence);
    }

    /// Records that the operation has ended.
    #[inline(always)]
    pub(super) fn exit(&mut self) {
        self.activity.pulse().exit(self.sequence);
        self.sequence += 1;
    }

    /// Records that the operation has ended, and does not count it.
    pub(super) fn exit_uncounted(&self) {
        self.activity.pulse().back(self.sequence);
    }

    /// Records what this rank's operations are from now on, for peers that ask.
    pub(super) fn record(&self, call: &Arc<CallRecord>) {
        self.activity.begin(self.sequence, call);
    }

    /// Records which message this rank waits for, and which rank in which step of its group, for
    /// peers that ask.
    pub(super) fn begin_message(&self, message: String, peer: Option<usize>, step: usize) {
        self.activity.begin_message(self.sequence, message);
        if let Some(peer) = peer {
            self.activity.wait(WaitTarget::Rank(peer), step, (0, 1), simulated::now());
        }
    }

    /// Withdraws the record of a message.
    pub(super) fn end_message(&self) {
        self.activity.end_message(self.sequence);
    }

    /// True once the group has failed, on whichever rank. The next call must not run: its peers may
    /// have published their parts before they failed.
    #[inline(always)]
    pub(super) fn is_alarmed(&self) -> bool {
        self.alarm.raised()
    }

    /// The error of a rank that closes its communicator, whose calls were not those of the others.
    /// Other failures are none of a rank that closes: its own calls are done.
    pub(crate) fn check_closed(&self) -> Result<()> {
        let unmatched = |cause: &Cause| cause.kind == CauseKind::Mismatch;
        match self.control.cause().filter(unmatched) {
            Some(cause) if !self.has_failed() => Err(self.error_of("close()".to_owned(), cause)),
            _ => Ok(()),
        }
    }

    /// What this rank does now, or did last, in words.
    #[cfg(feature = "cuda")]
    pub(crate) fn title(&self) -> String {
        self.activity.title()
    }

    /// True while this rank is in an operation.
    pub(crate) fn is_inside(&self) -> bool {
        self.activity.pulse().read().is_some_and(|(inside, _)| inside)
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.first_failure.is_some()
    }

    /// Refuses to go on after a failure, and in a forked child.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_process()?;
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
        if self.first_failure.is_none() {
            self.first_failure = Some(error.clone());
            report_failure(&*self.control, &error);
        }
        error
    }

    /// The error of an operation that ends because another rank has failed first.
    pub(super) fn aborted(&self, operation: String) -> Error {
        match self.control.cause() {
            Some(cause) => self.error_of(operation, cause),
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

    /// The error of this rank, which gives up `operation`, if `first` is the first failure.
    fn error_of(&self, operation: String, first: Cause) -> Error {
        let rank = self.rank;
        let sequence = self.sequence;
        match first.detail {
            Some(detail) if (detail.group, detail.lead) == self.control.identity() => {
                match detail.event {
                    CauseEvent::Mismatch(cause) => {
                        Error::Mismatch { rank, operation, sequence, cause: Box::new(cause) }
                    }
                    CauseEvent::Deadline(cause) => {
                        Error::TimedOut { rank, operation, sequence, cause: Box::new(cause) }
                    }
                }
            }
            _ => Error::Aborted {
                rank,
                operation,
                sequence,
                retryable: is_retryable(first.kind),
                culprit: first.culprit,
                cause: first.text,
            },
        }
    }

    /// Tells all ranks that the calls of two ranks do not match. Returns the error of this rank,
    /// which gives up `operation`.
    pub(super) fn report_mismatch(&self, operation: String, found: CallMismatch) -> Error {
        let (group, lead) = self.control.identity();
        let first = self.control.fail(Cause::mismatch(group, lead, self.rank, found));
        self.error_of(operation, first)
    }

    /// Tells all ranks that a deadline has passed. Returns the error of this rank, which gives up
    /// `operation`.
    pub(super) fn report_deadline(&self, operation: String, missed: MissedDeadline) -> Error {
        let (group, lead) = self.control.identity();
        let first = self.control.fail(Cause {
            sequence: self.sequence,
            kind: CauseKind::Timeout,
            rank: self.rank,
            text: missed.to_string(),
            culprit: missed.culprit,
            detail: Some(Box::new(CauseDetail {
                group,
                lead,
                event: CauseEvent::Deadline(missed),
            })),
        });
        self.error_of(operation, first)
    }

    /// Tells all ranks that rank `peer` is lost, as `error` says. Returns `error`, or the error of
    /// another failure that came first.
    pub(super) fn report_loss(&self, operation: String, error: Error, peer: usize) -> Error {
        let first = self.control.fail(Cause {
            sequence: self.sequence,
            kind: CauseKind::Death,
            rank: peer,
            text: error.to_string(),
            culprit: Some(peer),
            detail: None,
        });
        // A rank that has failed leaves, which its peers may take for a death.
        if first.kind == CauseKind::Death && first.rank == peer {
            return error;
        }
        self.error_of(operation, first)
    }

    /// The error if the ranks cannot be connected for `operation`. If another failure came first,
    /// the error names that failure. Otherwise all ranks are told of this one.
    pub(super) fn unconnected(&self, operation: String, why: String) -> Error {
        if let Some(cause) = self.control.cause() {
            return self.error_of(operation, cause);
        }
        let error = Error::Connect { rank: self.rank, operation, why };
        self.control.fail(Cause {
            sequence: self.sequence,
            kind: CauseKind::Timeout,
            rank: self.rank,
            text: error.to_string(),
            culprit: None,
            detail: None,
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
        self.abort(operation.to_owned(), text);
    }

    /// Records that this rank's thread panics and gives its communicator up, and tells all ranks.
    pub(super) fn gave_up_in_panic(&mut self) {
        let rank = self.rank;
        let sequence = self.sequence;
        let operation = self.activity.title();
        let text = match self.is_inside() {
            true => format!("rank {rank} panicked in {operation} (operation {sequence})"),
            false => format!("rank {rank} panicked outside a call"),
        };
        self.abort(operation, text);
    }

    /// Records that this rank has no memory for its part in `operation`, and tells all ranks.
    pub(super) fn no_memory(&mut self, operation: &str, bytes: usize) -> Error {
        let text = format!(
            "rank {} has no memory for the {bytes} bytes that its part in {operation} (operation \
             {}) needs: use smaller buffers, or fewer ranks on its host",
            self.rank, self.sequence
        );
        self.abort(operation.to_owned(), text)
    }

    /// Records that this rank's GPU cannot do its part in `operation`, and tells all ranks.
    #[cfg(feature = "cuda")]
    pub(super) fn device_failed(&mut self, operation: String, why: String) -> Error {
        let rank = self.rank;
        let error = Error::Device { rank, operation: operation.clone(), why };
        self.abort(operation, error.to_string());
        error
    }

    /// Ends the group on all ranks by what happened on this rank, as `text` says.
    fn abort(&mut self, operation: String, text: String) -> Error {
        let rank = self.rank;
        let sequence = self.sequence;
        let culprit = Some(rank);
        let cause = text.clone();
        let error = Error::Aborted { rank, operation, sequence, cause, retryable: false, culprit };
        self.fail(error.clone());
        let kind = CauseKind::UserAbort;
        self.control.fail(Cause { sequence, kind, rank, text, culprit, detail: None });
        error
    }
}

/// True if the same program may succeed another time.
fn is_retryable(kind: CauseKind) -> bool {
    matches!(kind, CauseKind::Death | CauseKind::Timeout)
}
