//! The error of a program, of a batch of messages, or of an exchange that did not complete.

use crate::engine::Engine;
use crate::engine::calls::call::CollectiveCall;
use crate::engine::health::Health;
use crate::error::{CallMismatch, Error, MissedDeadline, Result};
use crate::execute::messages::{AllowedTime, MessageError};
use crate::execute::{ExecuteError, LinkError, SlowWait};
use crate::world::service::{Cause, CauseDetail, CauseEvent, FailureKind, GroupId, ServiceError};
use maypole_transports::Fault;
use maypole_transports::turns::{self, poll_until};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a rank waits for the control plane's reason of an ended connection: its peer left, or
/// died.
const FATE_TIMEOUT: Duration = Duration::from_secs(1);
const FATE_PAUSE: Duration = Duration::from_millis(1);

impl Engine {
    /// Refuses `operation` if the communicator has failed, on this rank or on another one.
    pub(crate) fn check_usable(&mut self, operation: impl FnOnce() -> String) -> Result<()> {
        self.health.check()?;
        if !self.health.is_alarmed() {
            return Ok(());
        }
        let error = self.health.aborted(operation());
        Err(self.health.fail(error))
    }

    /// The error of `call`, whose program did not complete. The communicator has failed.
    #[cold]
    #[inline(never)]
    pub(super) fn explain_program(&mut self, call: CollectiveCall, failed: ExecuteError) -> Error {
        let ExecuteError { fold, peer, error } = failed;
        self.explain_link(call.to_string(), fold, Some(peer), error)
    }

    /// The error of `operation`, which is an exchange or needs a connection. The communicator has
    /// failed.
    #[cold]
    #[inline(never)]
    pub(crate) fn explain_control(&mut self, operation: String, error: ServiceError) -> Error {
        let link_error = match &error {
            ServiceError::Aborted { .. } => Some((None, LinkError::Aborted)),
            ServiceError::Left { rank } => Some((Some(*rank), LinkError::PeerLeft)),
            ServiceError::TimedOut { missing, .. } => {
                missing.first().map(|rank| (Some(*rank), LinkError::TimedOut))
            }
            _ => None,
        };
        match link_error {
            Some((peer, link_error)) => self.explain_link(operation, 0, peer, link_error),
            None => self.health.fail_unconnected(operation, error.to_string()),
        }
    }

    /// The communicator has failed at `step` of `operation`, which waited for `peer`, or for any
    /// rank if `peer` is `None`.
    pub(super) fn explain_link(
        &mut self,
        operation: String,
        step: usize,
        peer: Option<usize>,
        error: LinkError,
    ) -> Error {
        let wait = FailedWait { operation, step, peer, allowed: self.limits.allowed() };
        let error = self.health.explain_wait(wait, error);
        self.health.fail(error)
    }
}

#[derive(Debug)]
pub(super) struct FailedWait {
    pub(super) operation: String,
    pub(super) step: usize,
    /// The rank that was awaited; `None` if any rank was.
    pub(super) peer: Option<usize>,
    pub(super) allowed: AllowedTime,
}

impl Health {
    /// Records that a message cannot be completed, which was `allowed` that long, and reports it to all ranks.
    #[cold]
    #[inline(never)]
    pub(crate) fn explain_message(&mut self, failed: MessageError, allowed: AllowedTime) -> Error {
        let MessageError { operation, step, peer, error, .. } = failed;
        let error = self.explain_wait(FailedWait { operation, step, peer, allowed }, error);
        self.fail(error)
    }

    /// Reports to all ranks why `wait` has failed. Returns the error of this rank.
    pub(super) fn explain_wait(&self, wait: FailedWait, error: LinkError) -> Error {
        let FailedWait { operation, step, peer, allowed } = wait;
        let whom = peer.unwrap_or(self.rank);
        let error = match error {
            // No failure of a rank alters bytes, so there is no other cause to wait for.
            LinkError::Lost(Fault::Altered) => error,
            LinkError::Lost(_) => self.await_fate(whom, error),
            LinkError::Unconnected(_) if self.control.has_left(whom) => LinkError::PeerLeft,
            error => error,
        };
        // A rank that has failed also leaves, and a wait may observe that first.
        let left_after_failure = matches!(error, LinkError::PeerLeft) && self.is_alarmed();
        if left_after_failure || matches!(error, LinkError::Aborted) {
            return self.aborted(operation);
        }
        match self.mismatch(&operation, peer, &error) {
            Some(found) => self.report_mismatch(operation, found),
            None => match error {
                LinkError::Unconnected(why) => self.unconnected(operation, why),
                LinkError::TimedOut => {
                    self.report_deadline(FailedWait { operation, step, peer, allowed })
                }
                LinkError::PeerLeft => self.report_loss(operation, whom, "it has left".to_owned()),
                LinkError::Lost(fault) => self.report_loss(operation, whom, fault.to_string()),
                LinkError::Aborted | LinkError::Mismatch => unreachable!("handled above"),
            },
        }
    }

    /// Waits, for a bounded time, until the control plane has the reason why the connection to
    /// `peer` has ended. A rank that fails, leaves or dies closes its connections in each case.
    fn await_fate(&self, peer: usize, error: LinkError) -> LinkError {
        let control = &self.control;
        let alarm = control.alarm();
        // A query shows whether a peer has left this group alone.
        control.note_wait(SlowWait { peer, step: 0, windows: (0, 1) });
        let fate = || match alarm.raised() {
            true => Some(LinkError::Aborted),
            false => control.has_left(peer).then_some(LinkError::PeerLeft),
        };
        poll_until(turns::now() + FATE_TIMEOUT, FATE_PAUSE, fate).unwrap_or(error)
    }

    /// The first two calls that do not match, if `error` may be a consequence of that.
    fn mismatch(
        &self,
        operation: &str,
        peer: Option<usize>,
        error: &LinkError,
    ) -> Option<CallMismatch> {
        let peer = peer?;
        let control = &self.control;
        let calls = |theirs| [(self.rank, operation), (peer, theirs)];
        let sequence = self.sequence;
        match error {
            LinkError::Mismatch => {
                let unknown = || CallMismatch::new(sequence, calls("something else"), None);
                Some(control.compare(peer).unwrap_or_else(unknown))
            }
            LinkError::TimedOut | LinkError::PeerLeft => control.compare(peer),
            LinkError::Unconnected(_) | LinkError::Lost(_) | LinkError::Aborted => None,
        }
    }

    /// Reports to all ranks that the deadline of `wait` has passed, with the diagnosis of the
    /// straggler. A group in which a call has a deadline of its own fails alone. Returns the error of this rank.
    fn report_deadline(&self, wait: FailedWait) -> Error {
        let FailedWait { operation, step, peer, allowed } = wait;
        let control = &self.control;
        let (group, lead) = control.identity();
        let members = self.activity.members();
        let mut missed = MissedDeadline {
            sequence: self.sequence,
            waiter: self.rank,
            peer,
            operation: operation.clone(),
            step,
            after: allowed.time,
            detail: None,
            culprit: peer,
            world_ranks: BTreeMap::new(),
        };
        let mut culprit = peer.map(|peer| members[peer]);
        let mut report = None;
        if let Some(found) = peer.map(|peer| control.locate(peer)) {
            culprit = found.culprit();
            missed.culprit = culprit.and_then(|rank| members.iter().position(|it| *it == rank));
            let sentence = found.sentence();
            missed.detail = Some(sentence.in_group(members));
            report = Some(sentence);
        }
        let missed = missed.in_group(members);
        let text = missed.sentence(members);
        let event = CauseEvent::Deadline(missed);
        let fails_alone = allowed.is_own && group != GroupId::WORLD;
        let alone = fails_alone.then(|| members.to_vec());
        let first = control.fail(Cause {
            sequence: self.sequence,
            kind: FailureKind::Timeout,
            rank: self.world_rank(self.rank),
            text: report.into_iter().fold(text, |text, report| text.words("; ").then(report)),
            culprit,
            detail: Some(Box::new(CauseDetail { group, lead, event, alone })),
        });
        self.error_of(operation, first)
    }
}
