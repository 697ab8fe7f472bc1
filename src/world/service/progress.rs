//! Progress reports: what each rank does in each group, and which rank holds the others up
//! according to all reports.

use super::GroupId;
use super::direct::AskError;
use crate::world::calls::GroupActivity;
use crate::world::{RankSentence, group_name};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a rank reports about a group: what it does there, or in another group if it waits in that one.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct ProgressReport {
    /// The group in which the rank waits; else the group that was asked for.
    pub group: GroupId,
    /// Whether the rank is in a call of the library.
    pub inside: bool,
    /// The number of the operation.
    pub sequence: u64,
    /// The call, in words.
    pub operation: String,
    /// Which group that is, in words, if it is not the one that was asked for.
    pub place: String,
    /// What the rank has done in the group that was asked for, in words.
    pub done: String,
    /// Whether the rank has called anything in any group.
    pub has_called: bool,
    /// The rank of the world that it waits for.
    pub awaits: Option<usize>,
}

impl ProgressReport {
    /// The report about `group` of a rank that does this in all of its groups, and this in that one.
    /// A request in the background of a rank that computes is no reason why the rank does nothing
    /// else, unless a thread of it `waits` for such a request.
    pub(crate) fn of(
        group: GroupId,
        asked: Option<&GroupActivity>,
        all: &[Arc<GroupActivity>],
        waits: bool,
    ) -> Self {
        let blocks = |activity: &&GroupActivity| waits || !activity.is_in_background();
        let others = all.iter().map(Arc::as_ref).filter(|activity| activity.group() != group);
        let elsewhere = others.filter(|activity| activity.is_inside()).filter(blocks);
        // That which has waited for the longest time holds up the rank.
        let waits_since = |activity: &&GroupActivity| {
            let since = activity.pending_wait().map(|wait| wait.since);
            (since.is_none(), since)
        };
        let own = asked.filter(|activity| activity.is_inside());
        let current = own.or_else(|| elsewhere.min_by_key(waits_since));
        let done = asked.map_or_else(String::new, GroupActivity::done_words);
        let has_called = all.iter().any(|activity| !activity.done_words().is_empty());
        let has_called = has_called || !done.is_empty();
        let Some(activity) = current else {
            return Self { group, done, has_called, ..Self::default() };
        };
        let place = match group_name(activity.members()) {
            _ if activity.group() == group => String::new(),
            None => " of another communicator".to_owned(),
            Some(name) => format!(" of {name}, whose numbers it uses"),
        };
        Self {
            group: activity.group(),
            inside: true,
            sequence: activity.sequence(),
            operation: activity.title(),
            place,
            done,
            has_called: true,
            awaits: activity.awaited().map(|rank| activity.members()[rank]),
        }
    }
}

/// What one rank does in each of its groups. Written by the rank's calls, read by the service thread
/// when another rank asks.
#[derive(Debug, Default)]
pub struct ProgressTable(Mutex<ActivityTable>);

#[derive(Debug, Default)]
struct ActivityTable {
    open: HashMap<GroupId, Arc<GroupActivity>>,
    /// Groups that this rank has left, the last ones. A member that still waits in such a group can
    /// learn what this rank called there.
    closed: VecDeque<(GroupId, Arc<GroupActivity>)>,
}

/// How many groups that a rank has left are remembered.
const CLOSED_KEPT: usize = 16;

impl ProgressTable {
    /// Returns the activity of this rank, which is `members[me]` of the world, in `group`.
    pub fn open(&self, group: GroupId, members: &[usize], me: usize) -> Arc<GroupActivity> {
        let mut table = self.table();
        let activity = table.open.entry(group);
        let fresh = || Arc::new(GroupActivity::new(group, members.to_vec(), me));
        Arc::clone(activity.or_insert_with(fresh))
    }

    /// Ends the activity in `group`.
    pub fn close(&self, group: GroupId) {
        let mut table = self.table();
        let Some(activity) = table.open.remove(&group) else { return };
        if table.closed.len() == CLOSED_KEPT {
            table.closed.pop_front();
        }
        table.closed.push_back((group, activity));
    }

    /// Returns the activity in `group`, also shortly after it has [closed](Self::close).
    pub fn activity(&self, group: GroupId) -> Option<Arc<GroupActivity>> {
        let table = self.table();
        let closed = || table.closed.iter().rev().find(|(closed, _)| *closed == group);
        let found = table.open.get(&group).or_else(|| closed().map(|(_, activity)| activity));
        found.map(Arc::clone)
    }

    /// Returns the activities in all open groups, by group.
    pub fn open_groups(&self) -> BTreeMap<GroupId, Arc<GroupActivity>> {
        let table = self.table();
        table.open.iter().map(|(group, activity)| (*group, Arc::clone(activity))).collect()
    }

    /// Returns the report about `group` of a rank one of whose threads `waits` for a request in the
    /// background, or of which none does.
    pub fn report(&self, group: GroupId, waits: bool) -> ProgressReport {
        let all: Vec<_> = self.open_groups().into_values().collect();
        ProgressReport::of(group, self.activity(group).as_deref(), &all, waits)
    }

    fn table(&self) -> MutexGuard<'_, ActivityTable> {
        // Every change is one insertion or removal, so a thread that panicked while it held the
        // lock left the table whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The most ranks of a chain that a sentence tells of, besides its end.
const LINKS_TOLD: usize = 3;

/// Why a wait does not end, according to the progress reports of all ranks.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Diagnosis {
    /// This rank's process does not answer: it is stopped, or gets no processor time.
    Silent {
        /// The rank.
        rank: usize,
    },
    /// Nothing accepts connections at this rank's address: its process has ended, or the network to
    /// it is lost.
    Unreachable {
        /// The rank.
        rank: usize,
        /// What the connection to it failed with.
        why: String,
    },
    /// The chain of waits leads to this rank, which there was no time to ask.
    Unknown {
        /// The rank.
        rank: usize,
        /// How many ranks before it have answered.
        asked: usize,
    },
    /// This rank is not in a call of the library.
    Outside {
        /// The rank.
        rank: usize,
        /// The ranks of the chain before it, with their reports.
        path: Vec<(usize, ProgressReport)>,
        /// Its last report.
        report: ProgressReport,
    },
    /// This rank is in a call and has reported no rank that it waits for.
    Busy {
        /// The rank.
        rank: usize,
        /// The ranks of the chain before it, with their reports.
        path: Vec<(usize, ProgressReport)>,
        /// Its report.
        report: ProgressReport,
    },
    /// These ranks wait for one another: each for the next, and the last for the first.
    Cycle {
        /// The ranks with their reports.
        ranks: Vec<(usize, ProgressReport)>,
    },
}

impl Diagnosis {
    /// Follows the chain of waits from `peer`, which is awaited in `group`, to its end. `ask` asks one
    /// rank for its report about the group in which it is awaited.
    pub(crate) fn follow(
        group: GroupId,
        peer: usize,
        mut ask: impl FnMut(usize, GroupId) -> Result<ProgressReport, AskError>,
    ) -> Self {
        let mut path: Vec<(usize, ProgressReport)> = Vec::new();
        let mut asked = Vec::new();
        let mut rank = peer;
        let mut group = group;
        loop {
            if let Some(start) = asked.iter().position(|it| *it == (rank, group)) {
                return Self::Cycle { ranks: path.split_off(start) };
            }
            asked.push((rank, group));
            let report = match ask(rank, group) {
                Ok(report) => report,
                Err(AskError::Silent) => return Self::Silent { rank },
                Err(AskError::Unreachable(why)) => return Self::Unreachable { rank, why },
                Err(AskError::NoTime) => return Self::Unknown { rank, asked: path.len() },
            };
            if !report.inside {
                return Self::Outside { rank, path, report };
            }
            let is_same = |(seen, known): &(usize, ProgressReport)| {
                *seen == rank && known.group == report.group
            };
            if let Some(start) = path.iter().position(is_same) {
                return Self::Cycle { ranks: path.split_off(start) };
            }
            let Some(next) = report.awaits else { return Self::Busy { rank, path, report } };
            group = report.group;
            path.push((rank, report));
            rank = next;
        }
    }
}

impl Diagnosis {
    /// The rank that holds the others up; `None` if that is not known, and of a cycle, in which no
    /// rank is to blame alone.
    pub fn culprit(&self) -> Option<usize> {
        match self {
            Self::Silent { rank }
            | Self::Unreachable { rank, .. }
            | Self::Outside { rank, .. }
            | Self::Busy { rank, .. } => Some(*rank),
            Self::Unknown { .. } | Self::Cycle { .. } => None,
        }
    }
}

impl fmt::Display for ProgressReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inside, sequence, operation, place, done, has_called, .. } = self;
        match (*inside, *has_called, done.as_str()) {
            (true, ..) => write!(f, "is in {operation} (operation {sequence}{place})"),
            (false, false, _) => f.write_str("has called nothing yet"),
            (false, true, "") => {
                f.write_str("is outside the library, and has called nothing in this group yet")
            }
            (false, true, done) => write!(f, "is outside the library {done}"),
        }
    }
}

impl Diagnosis {
    /// What was found, as a sentence.
    pub fn sentence(&self) -> RankSentence {
        let text = RankSentence::default();
        match self {
            Self::Silent { rank } => text.rank(*rank).words(
                " does not answer: its process is stopped, or has no processor; whom it awaits is \
                 not known",
            ),
            Self::Unreachable { rank, why } => text.rank(*rank).words(format!(
                " cannot be reached: its process has ended, or the network to it is lost ({why})"
            )),
            Self::Unknown { rank, asked } => text
                .words(format!("{asked} ranks wait for one another in a chain that leads to "))
                .rank(*rank)
                .words("; what that rank does is not known, because there was no time to ask it"),
            Self::Outside { rank, path, report } | Self::Busy { rank, path, report } => {
                // Ranks that wait in the call that the sentence is about need no words.
                let elsewhere = path.iter().filter(|(_, report)| !report.place.is_empty());
                let text = text.rank(*rank).words(format!(" {report}"));
                elsewhere.take(LINKS_TOLD).fold(text, |text, link| chained(text.words("; "), link))
            }
            Self::Cycle { ranks } => {
                ranks.iter().fold(text.words("ranks wait for one another:"), |text, link| {
                    chained(text.words(" "), link).words(";")
                })
            }
        }
    }
}

/// Adds what a rank of a chain does and which rank it awaits.
fn chained(text: RankSentence, (rank, report): &(usize, ProgressReport)) -> RankSentence {
    let text = text.rank(*rank).words(format!(" {report} and awaits "));
    text.rank(report.awaits.unwrap_or_default())
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sentence().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::calls::{CallRecord, WaitTarget};
    use std::time::Instant;

    fn inside(awaits: Option<usize>) -> Option<ProgressReport> {
        let operation = "barrier()".to_owned();
        let report = ProgressReport { inside: true, sequence: 7, operation, ..outside() };
        Some(ProgressReport { awaits, ..report })
    }

    fn outside() -> ProgressReport {
        let done = "after 7 operations, the last of them barrier()".to_owned();
        ProgressReport { done, has_called: true, ..ProgressReport::default() }
    }

    const WORLD: GroupId = GroupId::WORLD;
    const OTHER: GroupId = GroupId { parent_epoch: 1, counter: 2 };

    #[test]
    fn the_path_ends_at_the_straggler() {
        let reports = [inside(Some(1)), inside(Some(2)), Some(outside()), inside(None), None];
        let ask = |rank: usize, _| match reports.get(rank) {
            Some(report) => report.clone().ok_or(AskError::Silent),
            None => Err(AskError::Unreachable("refused".to_owned())),
        };
        let said = |peer| Diagnosis::follow(WORLD, peer, ask).to_string();
        assert_eq!(
            said(1),
            "rank 2 is outside the library after 7 operations, the last of them barrier()"
        );
        assert_eq!(said(3), "rank 3 is in barrier() (operation 7)");
        assert_eq!(
            said(4),
            "rank 4 does not answer: its process is stopped, or has no processor; whom it awaits \
             is not known"
        );
        assert_eq!(
            said(9),
            "rank 9 cannot be reached: its process has ended, or the network to it is lost \
             (refused)"
        );
    }

    #[test]
    fn a_report_tells_the_operation_and_the_awaited_rank() {
        let progress = ProgressTable::default();
        assert_eq!(progress.report(WORLD, false).to_string(), "has called nothing yet");
        let activity = progress.open(WORLD, &[4, 6], 0);
        activity.begin(3, &Arc::new(CallRecord::new(1, "barrier()")));
        activity.pulse().enter(5);
        activity.wait(WaitTarget::Rank(1), 0, (0, 1), Instant::now());
        let report = progress.report(WORLD, false);
        assert_eq!(
            (report.to_string().as_str(), report.awaits),
            ("is in barrier() (operation 5)", Some(6))
        );
        activity.pulse().exit(5);
        let report = progress.report(WORLD, false);
        let said = "is outside the library after 6 operations, the last of them barrier()";
        assert_eq!((report.to_string().as_str(), report.awaits), (said, None));
    }

    #[test]
    fn a_rank_that_waits_in_another_group_is_followed_there() {
        let waiting = ProgressTable::default();
        waiting.open(WORLD, &[0, 1, 2], 1);
        let there = waiting.open(OTHER, &[2, 1], 1);
        there.begin_messages();
        assert!(waiting.report(WORLD, false).to_string().starts_with("is in a message to or from"));
        there.begin_message(0, "recv(1 x u8, from rank 0, tag 5)".to_owned());
        there.wait(WaitTarget::Rank(0), 0, (0, 1), Instant::now());
        let ask = |rank, group| match rank {
            1 => Ok(waiting.report(group, false)),
            _ if group == OTHER => Ok(outside()),
            _ => Err(AskError::Silent),
        };
        let found = Diagnosis::follow(WORLD, 1, ask);
        assert_eq!(found.culprit(), Some(2));
        let place = "operation 0 of the group of ranks 2, 1 of the world, whose numbers it uses";
        let said = format!(
            "rank 2 is outside the library after 7 operations, the last of them barrier(); rank 1 \
             is in recv(1 x u8, from rank 0, tag 5) ({place}) and awaits rank 2"
        );
        assert_eq!(found.to_string(), said);
        // A request that no thread waits for keeps nobody from another call.
        there.set_background(true);
        assert_eq!(Diagnosis::follow(WORLD, 1, ask).culprit(), Some(1));
        let waits = |rank, group| match rank {
            1 => Ok(waiting.report(group, true)),
            _ => ask(rank, group),
        };
        assert_eq!(Diagnosis::follow(WORLD, 1, waits).culprit(), Some(2));
    }

    #[test]
    fn the_member_that_is_missing_in_an_exchange_is_awaited() {
        let progress = ProgressTable::default();
        let activity = progress.open(WORLD, &[3, 5], 0);
        activity.begin(0, &Arc::new(CallRecord::new(1, "split()")));
        activity.pulse().enter(0);
        activity.wait(WaitTarget::MissingMembers, 0, (0, 1), Instant::now());
        assert_eq!(progress.report(WORLD, false).awaits, None);
        activity.note_missing(1);
        assert_eq!(progress.report(WORLD, false).awaits, Some(5));
    }

    #[test]
    fn groups_that_were_left_are_remembered_up_to_a_bound() {
        let progress = ProgressTable::default();
        let group = |counter| GroupId { parent_epoch: 1, counter };
        for counter in 0..100_000 {
            progress.open(group(counter), &[0, 1], 0);
            progress.close(group(counter));
        }
        assert!(progress.open_groups().is_empty());
        assert_eq!(progress.table().closed.len(), CLOSED_KEPT);
        assert!(progress.activity(group(99_999)).is_some());
        assert!(progress.activity(group(0)).is_none());
    }

    #[test]
    fn a_cycle_is_named_without_the_ranks_that_lead_to_it() {
        let reports = [inside(Some(1)), inside(Some(2)), inside(Some(1))];
        let ask = |rank: usize, _| reports[rank].clone().ok_or(AskError::Silent);
        let Diagnosis::Cycle { ranks } = Diagnosis::follow(WORLD, 0, ask) else {
            panic!("no cycle")
        };
        assert_eq!(ranks.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [1, 2]);
    }
}
