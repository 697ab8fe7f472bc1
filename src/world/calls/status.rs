//! The status of a rank, as one record. Peers and the launcher request it, a signal prints it, and
//! a failed rank writes it to a file.

use super::record::difference;
use super::{CallMismatch, CallRecord, CallRun, GroupActivity, GroupId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// The activity of one rank in each of its groups. `Display` prints it in plain words.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RankStatus {
    /// The rank, as numbered in the world.
    pub rank: usize,
    /// How many ranks the world has.
    pub world: usize,
    /// The process number of the rank.
    pub process: u32,
    /// When this was written, in seconds since 1970.
    pub unix_seconds: f64,
    /// The groups that the rank is in, the world first.
    pub groups: Vec<GroupStatus>,
    /// Connections and peers as the control plane observes them.
    pub network: NetworkStatus,
    /// Why the rank's world has failed; `None` while it works.
    pub failure: Option<String>,
    /// The rank of the world that failed first, by the data of this rank. All ranks agree on it
    /// once they have settled the failure. `None` while the world works, and if no single rank is
    /// the cause.
    #[serde(default)]
    pub culprit: Option<usize>,
}

/// The activity of a rank in one group.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct GroupStatus {
    /// The number of the group.
    #[doc(hidden)]
    pub group: GroupId,
    /// The members: ranks of the world, by rank in the group.
    pub members: Vec<usize>,
    /// This rank, as numbered in the group.
    pub rank: usize,
    /// How many operations of the group this rank has ended.
    pub completed: u64,
    /// How many messages between this rank and another one have completed.
    pub messages: u64,
    /// The operation of the group, or the message, that the rank is in.
    pub pending: Option<PendingOperation>,
    /// The last calls, the oldest first; at most 1000 entries. Equal calls in a row are one entry.
    pub recent: Vec<RecentCalls>,
    /// True if the rank has left the group, and begins no further operation there.
    pub left: bool,
}

/// An operation that has begun and not ended.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PendingOperation {
    /// How many operations of the group precede it.
    pub sequence: u64,
    /// The call in words.
    pub call: String,
    /// A hash of everything that the ranks must agree on in the call; zero for a message between two
    /// ranks.
    pub fingerprint: u64,
    /// The rank that it waits for, as numbered in the group; `None` if it has not waited for long,
    /// or if it waits for any rank.
    pub awaits: Option<usize>,
    /// The number of the fold in the program that waits.
    pub step: usize,
    /// For how many seconds the operation has been waiting; `None` if it has not waited for long.
    pub waiting_seconds: Option<f64>,
    /// True for a request that no thread waits for: the rank computes concurrently.
    pub in_background: bool,
    /// Bytes of the vector, or of all blocks together.
    pub bytes: u64,
    /// How many of them belong to windows that are done.
    pub bytes_done: u64,
}

/// Equal calls in a row.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RecentCalls {
    /// The number of the first one.
    pub first: u64,
    /// How many there are.
    pub count: u64,
    /// The call in words.
    pub call: String,
    /// A hash of everything that the ranks must agree on in the call.
    pub fingerprint: u64,
    /// Names and values of the arguments that they must agree on. The first one is the operation.
    pub arguments: Vec<(String, String)>,
    /// Names and values chosen by settings or the tuner.
    pub choices: Vec<(String, String)>,
    /// How many seconds ago the first one began.
    pub seconds_ago: f64,
}

/// Connections and peers as the control plane of a rank observes them.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct NetworkStatus {
    /// Connections that were refused because they did not prove the job's key.
    pub refused: u64,
    /// Connections that have not proved the job's key yet.
    pub half_open: usize,
    /// Ranks of the world that have left.
    pub left: Vec<usize>,
    /// Ranks of the world that were silent for 10 s or more. Rank 0 monitors all ranks, other ranks
    /// only rank 0.
    pub silent: Vec<usize>,
}

impl RankStatus {
    /// The status of rank `rank` of `world`, from its activity in `groups`. `waits`: a thread of
    /// the rank waits for a request in the background.
    ///
    /// With `about`, a group in which a peer waits, the status holds only groups that can explain
    /// that wait: that one, the world, and those in which the rank is in a call, each with its last
    /// call.
    pub(crate) fn of(
        (rank, world): (usize, usize),
        groups: &[Arc<GroupActivity>],
        waits: bool,
        about: Option<GroupId>,
    ) -> Self {
        let most = about.map_or(usize::MAX, |_| 1);
        let matters = |group: &GroupStatus| {
            let is_asked = about.is_none_or(|about| [about, GroupId::WORLD].contains(&group.group));
            is_asked || group.pending.is_some()
        };
        let groups = groups.iter().map(|activity| activity.status(waits, u64::MAX, most));
        let groups = groups.filter(matters).collect();
        let since_1970 =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let (process, unix_seconds) = (std::process::id(), since_1970.as_secs_f64());
        Self { rank, world, process, unix_seconds, groups, ..Self::default() }
    }

    /// True while a call of the library occupies the rank, in any group.
    pub fn is_inside(&self) -> bool {
        self.waits().next().is_some()
    }

    /// The calls that occupy the rank, with their groups.
    fn waits(&self) -> impl Iterator<Item = (&GroupStatus, &PendingOperation)> {
        self.groups.iter().filter_map(|group| {
            let pending = group.pending.as_ref().filter(|pending| !pending.in_background)?;
            Some((group, pending))
        })
    }

    /// The call that keeps the rank from a member of the group `asked`: its call in that group or, if
    /// there is none, the call elsewhere in which it has waited for the longest time.
    pub(crate) fn held_in(&self, asked: GroupId) -> Option<(&GroupStatus, &PendingOperation)> {
        let own = self.group(asked).and_then(|group| Some((group, group.pending.as_ref()?)));
        let waited = |pending: &PendingOperation| pending.waiting_seconds.unwrap_or(-1.0);
        own.or_else(|| self.waits().min_by(|a, b| waited(b.1).total_cmp(&waited(a.1))))
    }

    pub(crate) fn group(&self, group: GroupId) -> Option<&GroupStatus> {
        self.groups.iter().find(|it| it.group == group)
    }
}

impl GroupStatus {
    /// Describes a rank that is in no operation of this group. `is_inside`: it is in a call in
    /// another group.
    pub fn absence(&self, is_inside: bool) -> String {
        match (is_inside, self.done()) {
            (true, None) => "in a call in another group".to_owned(),
            (true, Some(done)) => format!("in a call in another group, here {done}"),
            (false, None) => "has called nothing yet".to_owned(),
            (false, Some(done)) => format!("outside the library {done}"),
        }
    }

    /// The rank's past calls in words: `after 2 operations, the last of them barrier()`.
    pub(crate) fn done(&self) -> Option<String> {
        let counted = |count: u64, noun: &str| match count {
            1 => format!("1 {noun}"),
            _ => format!("{count} {noun}s"),
        };
        let last = self.recent.last();
        let last = last.map_or_else(String::new, |it| format!(", the last of them {}", it.call));
        let operations = (self.completed > 0).then(|| counted(self.completed, "operation") + &last);
        let messages = (self.messages > 0).then(|| counted(self.messages, "message"));
        let done: Vec<String> = messages.into_iter().chain(operations).collect();
        (!done.is_empty()).then(|| format!("after {}", done.join(" and ")))
    }

    /// The number of operations that the report covers. The rank may have begun later ones: a query
    /// names an end, and both ranks continue meanwhile.
    pub(crate) fn told(&self) -> u64 {
        self.recent.last().map_or(0, |last| last.first + last.count)
    }

    /// Compares the calls of this rank with those of another member. Returns the first two that do
    /// not match among the operations in both reports, the lower rank first.
    pub fn compare(&self, other: &Self) -> Option<CallMismatch> {
        let start = self.recent.first()?.first.max(other.recent.first()?.first);
        let both = start..self.told().min(other.told());
        let firsts = self.recent.iter().chain(&other.recent).map(|run| run.first);
        let mut numbers: Vec<u64> =
            firsts.chain([start]).filter(|number| both.contains(number)).collect();
        numbers.sort_unstable();
        numbers.into_iter().find_map(|number| {
            let (mine, theirs) = (self.call_at(number)?, other.call_at(number)?);
            let differ = mine.fingerprint != theirs.fingerprint;
            differ.then(|| CallMismatch::between(number, (self.rank, mine), (other.rank, theirs)))
        })
    }

    fn call_at(&self, number: u64) -> Option<&RecentCalls> {
        self.recent.iter().rfind(|run| run.first <= number)
    }
}

impl RecentCalls {
    /// The first `count` operations of `run`.
    pub(super) fn of(run: &CallRun, count: u64, now: Instant) -> Self {
        let CallRecord { fingerprint, call, arguments, choices, .. } = &*run.call;
        Self {
            first: run.first,
            count,
            call: call.clone(),
            fingerprint: *fingerprint,
            arguments: arguments.clone(),
            choices: choices.clone(),
            seconds_ago: now.saturating_duration_since(run.since).as_secs_f64(),
        }
    }

    /// As [`CallRecord::difference`].
    pub(super) fn difference(&self, other: &Self) -> Option<String> {
        difference([&self.arguments, &self.choices], [&other.arguments, &other.choices])
    }
}
