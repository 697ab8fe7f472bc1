//! How a group fails: every rank reports the same first cause, and no later call runs.

mod unreported;

use crate::control::Control;
use crate::error::{Error, FirstFailure, Result};
use crate::status::report_failure;
use crate::world::RankSentence;
use crate::world::calls::{CallMismatch, CallRecord, GroupActivity, WaitTarget};
use crate::world::service::{Cause, CauseEvent, FailureKind};
use maypole_transports::{Alarm, OwnerProcess, turns};
use std::any::Any;
use std::io;
use std::sync::Arc;
pub(crate) use unreported::UnreportedError;

/// Whether a rank's communicator still works, and the rank's current operation.
#[derive(Debug)]
pub(crate) struct Health {
    pub(super) rank: usize,
    /// The process of the rank. A forked child is another one.
    pub(crate) owner: OwnerProcess,
    pub(crate) control: Arc<dyn Control>,
    pub(crate) activity: Arc<GroupActivity>,
    alarm: Arc<Alarm>,
    /// Operations that have ended.
    pub(super) sequence: u64,
    first_failure: Option<Error>,
    /// The first error of a request that no caller has received.
    pub(crate) unreported: Arc<UnreportedError>,
    /// The operation is that of a request, which receives its errors.
    pub(crate) is_in_request: bool,
}

impl Health {
    pub(crate) fn new(rank: usize, owner: OwnerProcess, control: Arc<dyn Control>) -> Self {
        let activity = control.activity();
        let alarm = control.alarm();
        let sequence = activity.pulse().completed();
        Self {
            rank,
            owner,
            control,
            activity,
            alarm,
            sequence,
            first_failure: None,
            unreported: Arc::default(),
            is_in_request: false,
        }
    }

    /// The same rank for another thread, which reports failures that it detects.
    #[cfg(feature = "cuda")]
    pub(super) fn beside(&self) -> Self {
        Self::new(self.rank, self.owner, Arc::clone(&self.control))
    }

    /// Takes the number of the operation that this rank is in, or was in last.
    #[cfg(feature = "cuda")]
    pub(super) fn catch_up(&mut self) {
        self.sequence = self.activity.pulse().completed();
    }

    /// Records, for queries of peers, that this rank is in its next operation.
    #[inline(always)]
    pub(super) fn enter(&self) {
        self.activity.pulse().enter(self.sequence);
    }

    /// Records that the operation has ended.
    #[inline(always)]
    pub(crate) fn exit(&mut self) {
        self.activity.pulse().exit(self.sequence);
        self.sequence += 1;
    }

    /// Records the end of the operation without counting it.
    pub(super) fn exit_uncounted(&self) {
        self.activity.pulse().back(self.sequence);
    }

    /// Records the kind of this rank's operations from now on, for queries of peers.
    pub(super) fn record(&self, call: &Arc<CallRecord>) {
        self.activity.begin(self.sequence, call);
    }

    /// Records the message or other event that this rank waits for, and which rank in which step of
    /// its group, for queries of peers.
    #[cold]
    pub(crate) fn begin_message(&self, message: String, peer: Option<usize>, step: usize) {
        self.activity.begin_message(self.sequence, message);
        if let Some(peer) = peer {
            self.activity.wait(WaitTarget::Rank(peer), step, (0, 1), turns::now());
        }
    }

    #[cold]
    pub(crate) fn end_message(&self) {
        self.activity.end_message(self.sequence);
    }

    /// True once the group has failed, on any rank. The next call must not run: its peers may have
    /// published their parts before they failed.
    #[inline(always)]
    pub(crate) fn is_alarmed(&self) -> bool {
        self.alarm.raised()
    }

    /// The operation or message with this number, in words. It has failed, so it becomes the
    /// current one: the rank begins no other one.
    #[cfg(feature = "cuda")]
    pub(super) fn go_back_to(&mut self, number: u32) -> String {
        let (title, sequence) = self.activity.find(number);
        self.sequence = sequence.unwrap_or(self.sequence);
        title
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.first_failure.is_some()
    }

    /// Records the failure, after which no call runs. Its cause has raised the alarm, so the next call takes
    /// the slow path.
    pub(super) fn fail(&mut self, error: Error) -> Error {
        if self.first_failure.is_none() {
            self.first_failure = Some(error.clone());
            report_failure(&*self.control, &error);
        }
        self.note_received(&error);
        error
    }

    /// The error of an operation that ends because another rank has failed first.
    pub(super) fn aborted(&self, operation: String) -> Error {
        match self.control.cause() {
            Some(cause) => self.error_of(operation, cause),
            None => self.aborted_by(operation, FailureKind::UserAbort, None, "a rank failed"),
        }
    }

    /// The error of this rank, which aborts `operation`, if `first` is the first failure.
    pub(super) fn error_of(&self, operation: String, first: Cause) -> Error {
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
            _ => {
                let text = first.text.in_group(self.activity.members());
                self.aborted_by(operation, first.kind, first.culprit, text)
            }
        }
    }

    fn aborted_by(
        &self,
        operation: String,
        kind: FailureKind,
        culprit: Option<usize>,
        text: impl Into<String>,
    ) -> Error {
        let cause = FirstFailure::new(kind, culprit, text);
        Error::Aborted { rank: self.rank, operation, sequence: self.sequence, cause }
    }

    /// Reports to all ranks that the calls of two ranks do not match. Returns the error of this
    /// rank, which aborts `operation`.
    pub(super) fn report_mismatch(&self, operation: String, found: CallMismatch) -> Error {
        let (group, _) = self.control.identity();
        let members = self.activity.members();
        let first = Cause::mismatch(group, members, self.world_rank(self.rank), found);
        self.error_of(operation, self.control.fail(first))
    }

    /// Reports to all ranks that rank `peer` is lost, with the evidence. Returns the error of this
    /// rank, or that of another failure that came first.
    pub(super) fn report_loss(&self, operation: String, peer: usize, why: String) -> Error {
        let (rank, sequence) = (self.rank, self.sequence);
        let lost = self.world_rank(peer);
        let text = self.named(" lost ").rank(lost);
        let text = text.words(format!(" in {operation} (operation {sequence}): {why}"));
        let first = self.tell(FailureKind::Death, lost, text, Some(lost));
        // A rank that has failed leaves, which its peers may take for a death.
        if first.kind == FailureKind::Death && first.rank == peer {
            let why = match lost == peer {
                true => why,
                false => format!("{why} (rank {peer} is rank {lost} of the world)"),
            };
            return Error::PeerLost { rank, peer, operation, sequence, why };
        }
        self.error_of(operation, first)
    }

    /// The error if the ranks cannot be connected for `operation`. If another failure came first,
    /// the error names that failure. Otherwise this one is reported to all ranks.
    pub(super) fn unconnected(&self, operation: String, why: String) -> Error {
        if let Some(cause) = self.control.cause() {
            return self.error_of(operation, cause);
        }
        let text = format!(" cannot connect to its peers for {operation}: {why}");
        let me = self.world_rank(self.rank);
        self.tell(FailureKind::Timeout, me, self.named(&text), None);
        Error::Connect { rank: self.rank, operation, why }
    }

    /// As [`unconnected`](Self::unconnected). The communicator has failed.
    #[cold]
    pub(crate) fn fail_unconnected(&mut self, operation: String, why: String) -> Error {
        let error = self.unconnected(operation, why);
        self.fail(error)
    }

    /// The system cannot start the thread for a request, so this rank cannot do its part in it. The
    /// communicator has failed.
    #[cold]
    pub(crate) fn without_thread(&mut self, error: &io::Error) {
        let why = format!("the system cannot start a thread for it: {error}");
        let _ = self.fail_unconnected("a request".to_owned(), why);
    }

    /// Reports a failure that only a sentence describes to all ranks. Returns the first failure.
    fn tell(
        &self,
        kind: FailureKind,
        rank: usize,
        text: RankSentence,
        culprit: Option<usize>,
    ) -> Cause {
        let sequence = self.sequence;
        self.control.fail(Cause { sequence, kind, rank, text, culprit, detail: None })
    }

    /// The number in the world of rank `rank` of the group.
    pub(super) fn world_rank(&self, rank: usize) -> usize {
        self.activity.members()[rank]
    }

    /// A sentence of this rank's name and `words`.
    fn named(&self, words: &str) -> RankSentence {
        RankSentence::default().rank(self.world_rank(self.rank)).words(words)
    }

    /// Records that a function of the user's panicked in `operation`, and reports it to all ranks. The
    /// communicator may have failed before, and the function may have panicked because of that.
    #[cold]
    pub(crate) fn panicked(&mut self, operation: &str, panic: &(dyn Any + Send)) {
        if self.has_failed() {
            return;
        }
        let sequence = self.sequence;
        let message = panic_message(panic);
        let text = format!(" panicked in {operation} (operation {sequence}): {message}");
        self.abort(operation.to_owned(), self.named(&text));
    }

    /// Records that this rank's thread panics and drops its communicator, and reports it to all
    /// ranks. The communicator may have failed before, and the thread may have panicked because of that.
    #[cold]
    pub(crate) fn gave_up_in_panic(&mut self) {
        if self.has_failed() || self.is_alarmed() {
            return;
        }
        let sequence = self.sequence;
        let operation = self.activity.title();
        let text = match self.activity.is_inside() {
            true => format!(" panicked in {operation} (operation {sequence})"),
            false => " panicked outside a call".to_owned(),
        };
        self.abort(operation, self.named(&text));
    }

    /// Records that this rank has no memory for its part in `operation`, and reports it to all
    /// ranks.
    #[cold]
    pub(crate) fn no_memory(&mut self, operation: &str, bytes: usize) -> Error {
        let text = format!(
            " has no memory for the {bytes} bytes that its part in {operation} (operation {}) \
             needs: use smaller buffers, or fewer ranks on its host",
            self.sequence
        );
        self.abort(operation.to_owned(), self.named(&text))
    }

    /// Records that this rank's GPU cannot do its part in `operation`, and reports it to all ranks.
    #[cfg(feature = "cuda")]
    pub(crate) fn device_failed(&mut self, operation: String, why: String) -> Error {
        let rank = self.rank;
        let text = self.named(&format!(": {operation}: {why}"));
        self.abort(operation.clone(), text);
        Error::Device { rank, operation, why }
    }

    /// Ends the group on all ranks for a failure of this rank, described by `text`.
    fn abort(&mut self, operation: String, text: RankSentence) -> Error {
        let rank = self.rank;
        let words = text.in_group(self.activity.members());
        let error = self.aborted_by(operation, FailureKind::UserAbort, Some(rank), words);
        self.fail(error.clone());
        let rank = self.world_rank(rank);
        self.tell(FailureKind::UserAbort, rank, text, Some(rank));
        error
    }
}

pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let words = panic.downcast_ref::<&str>().copied();
    words.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Fails in a child that was forked from `owner`, the process that is rank `rank`.
pub(crate) fn check_process(owner: OwnerProcess, rank: usize) -> Result<()> {
    if owner.is_current() { Ok(()) } else { Err(Error::Forked { rank }) }
}
