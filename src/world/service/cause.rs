//! The cause of a world's failure. Causes are totally ordered, so that all ranks name the same
//! first cause.

use crate::world::RankSentence;
use crate::world::calls::{CallMismatch, GroupId, MissedDeadline, MissedOperation};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The kind of a failure, equal on all ranks. A kind listed earlier is a cause of those listed later.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[non_exhaustive]
pub enum FailureKind {
    /// A process ended, or the network to it is lost.
    Death,
    /// A rank's program panicked or called abort.
    UserAbort,
    /// Two ranks made different calls.
    Mismatch,
    /// A deadline passed, or ranks could not be connected.
    Timeout,
}

/// A failure as all ranks receive it. The least of all causes is the first cause.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Cause {
    /// The number of the operation in which it happened. Zero for a death that the control plane
    /// detected, so that it precedes every other cause.
    pub sequence: u64,
    /// The kind of failure.
    pub kind: FailureKind,
    /// The rank that died; for other failures, the rank that detected it.
    pub rank: usize,
    /// The sentence for the user, whose group prints it with its own numbers.
    pub text: RankSentence,
    /// The rank that caused the failure; `None` if no single rank did.
    pub culprit: Option<usize>,
    /// The same as data; `None` for a failure that only a sentence describes.
    pub detail: Option<Box<CauseDetail>>,
}

/// A failure as data, for the members of the group in which it happened. Ranks are numbered as in
/// that group.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct CauseDetail {
    /// The group.
    pub group: GroupId,
    /// The world rank of the group's rank 0. Groups of one split have the same number and differ in
    /// this.
    pub lead: usize,
    /// The event.
    pub event: CauseEvent,
    /// The world ranks of the group if it fails alone; `None` if the world fails.
    pub alone: Option<Vec<usize>>,
}

/// The first event of a failure in a group.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub enum CauseEvent {
    /// Two ranks made different calls.
    Mismatch(CallMismatch),
    /// A deadline passed.
    Deadline(MissedDeadline),
}

impl Cause {
    /// The death of `rank`, detected by the control plane. Equal on all ranks.
    pub(crate) fn death(rank: usize, how: &str) -> Self {
        Self::of_rank(0, FailureKind::Death, rank, format!(" died: {how}"))
    }

    /// A failure of `rank`, whose number is the beginning of the sentence.
    pub(crate) fn of_rank(sequence: u64, kind: FailureKind, rank: usize, words: String) -> Self {
        let text = RankSentence::default().rank(rank).words(words);
        Self { sequence, kind, rank, text, culprit: Some(rank), detail: None }
    }

    /// Rank `gone` has left a group in which rank `waiter` waits for it in the operation `missed`.
    /// Ranks are those of the world.
    pub(crate) fn departure(gone: usize, waiter: usize, missed: &MissedOperation) -> Self {
        let MissedOperation { sequence, call } = missed;
        let text = RankSentence::default().rank(gone).words(" has left a group in which ");
        let text = text.rank(waiter).words(format!(" waits for it in {call}"));
        let (kind, culprit) = (FailureKind::Death, Some(gone));
        Self { sequence: *sequence, kind, rank: gone, text, culprit, detail: None }
    }

    /// The calls of two members of `group` do not match. `members` are its world ranks; `rank` is
    /// the world rank that detected it.
    pub(crate) fn mismatch(
        group: GroupId,
        members: &[usize],
        rank: usize,
        found: CallMismatch,
    ) -> Self {
        let found = found.in_group(members);
        let sequence = found.sequence;
        let text = found.sentence(members);
        let lead = members.first().copied().unwrap_or_default();
        let detail = CauseDetail { group, lead, event: CauseEvent::Mismatch(found), alone: None };
        let detail = Some(Box::new(detail));
        Self { sequence, kind: FailureKind::Mismatch, rank, text, culprit: None, detail }
    }

    /// The cause with its ranks numbered as in the group of the ranks `members`. A rank that is no
    /// member has no number there.
    pub(crate) fn in_group(self, members: &[usize]) -> Self {
        let member = |world: usize| members.iter().position(|member| *member == world);
        let culprit = self.culprit.and_then(member);
        Self { rank: member(self.rank).unwrap_or(usize::MAX), culprit, ..self }
    }

    /// The members, by world rank, of the group that fails alone; `None` if the world fails.
    pub(crate) fn members(&self) -> Option<&[usize]> {
        self.detail.as_ref()?.alone.as_deref()
    }

    /// The group that fails alone; `None` if the world fails.
    pub(crate) fn group(&self) -> Option<GroupId> {
        self.members().and(self.detail.as_ref()).map(|detail| detail.group)
    }

    /// True if `self` comes before `other` in the order of causes. Of two failures of one kind in
    /// one operation the first to reach rank 0 counts, so that no rank changes its cause.
    pub(crate) fn precedes(&self, other: &Self) -> bool {
        (self.sequence, self.kind) < (other.sequence, other.kind)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}
