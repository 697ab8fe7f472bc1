//! Progress reports: what each rank does in each group, and which rank holds the others up
//! according to all reports.

use super::GroupId;
use super::direct::AskError;
use crate::world::calls::{GroupActivity, WaitTarget};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a rank last reported that it does in a group.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct ProgressReport {
    /// Whether the rank is in a call of the library.
    pub inside: bool,
    /// The number of the operation.
    pub sequence: u64,
    /// How many operations are over.
    pub completed: u64,
    /// The call, in words.
    pub operation: String,
    /// The rank that it waits for. Where one rank tells another, a rank of the world.
    pub awaits: Option<usize>,
}

impl ProgressReport {
    /// The report of a rank about a group. `number` gives the number by which a rank of the group is
    /// reported.
    pub(crate) fn of(activity: &GroupActivity, number: impl Fn(usize) -> usize) -> Self {
        let (inside, sequence) = activity.pulse().read().unwrap_or_default();
        let awaits = activity.pending_wait().and_then(|wait| match wait.target {
            WaitTarget::Rank(rank) => Some(number(rank)),
            WaitTarget::MissingMembers => None,
        });
        let completed = activity.pulse().completed();
        Self { inside, sequence, completed, operation: activity.title(), awaits }
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
        let fresh = || Arc::new(GroupActivity::new(members.to_vec(), me));
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

    /// Returns the report about `group`; an empty one if there is none.
    pub fn report(&self, group: GroupId) -> ProgressReport {
        let Some(activity) = self.activity(group) else { return ProgressReport::default() };
        ProgressReport::of(&activity, |rank| activity.members()[rank])
    }

    fn table(&self) -> MutexGuard<'_, ActivityTable> {
        // Every change is one insertion or removal, so a thread that panicked while it held the
        // lock left the table whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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
        /// Its last report.
        report: ProgressReport,
    },
    /// This rank is in a call and has reported no rank that it waits for.
    Busy {
        /// The rank.
        rank: usize,
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
    /// Follows the chain of waits from `peer` to its end. `ask` asks one rank for its report.
    pub(crate) fn follow(
        peer: usize,
        mut ask: impl FnMut(usize) -> Result<ProgressReport, AskError>,
    ) -> Self {
        let mut path: Vec<(usize, ProgressReport)> = Vec::new();
        let mut rank = peer;
        loop {
            if let Some(start) = path.iter().position(|(seen, _)| *seen == rank) {
                return Self::Cycle { ranks: path.split_off(start) };
            }
            let report = match ask(rank) {
                Ok(report) => report,
                Err(AskError::Silent) => return Self::Silent { rank },
                Err(AskError::Unreachable(why)) => return Self::Unreachable { rank, why },
                Err(AskError::NoTime) => return Self::Unknown { rank, asked: path.len() },
            };
            if !report.inside {
                return Self::Outside { rank, report };
            }
            let Some(next) = report.awaits else { return Self::Busy { rank, report } };
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
        match (self.inside, self.operation.as_str()) {
            (_, "") => f.write_str("has called nothing yet"),
            (true, operation) => write!(f, "is in {operation} (operation {})", self.sequence),
            (false, operation) => {
                write!(
                    f,
                    "is outside the library; its last call was {operation} (operation {})",
                    self.sequence
                )
            }
        }
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent { rank } => {
                write!(
                    f,
                    "rank {rank} does not answer: its process is stopped, or has no processor; whom \
                     it awaits is not known"
                )
            }
            Self::Unreachable { rank, why } => {
                write!(
                    f,
                    "rank {rank} cannot be reached: its process has ended, or the network to it is \
                     lost ({why})"
                )
            }
            Self::Unknown { rank, asked } => {
                write!(
                    f,
                    "{asked} ranks wait for one another in a chain that leads to rank {rank}; what \
                     that rank does is not known, because there was no time to ask it"
                )
            }
            Self::Outside { rank, report } | Self::Busy { rank, report } => {
                write!(f, "rank {rank} {report}")
            }
            Self::Cycle { ranks } => {
                f.write_str("ranks wait for one another:")?;
                for (rank, report) in ranks {
                    let next = report.awaits.unwrap_or_default();
                    write!(f, " rank {rank} {report} and awaits rank {next};")?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::calls::CallRecord;
    use std::time::Instant;

    fn inside(awaits: Option<usize>) -> Option<ProgressReport> {
        let operation = "barrier".to_owned();
        Some(ProgressReport { inside: true, sequence: 7, completed: 7, operation, awaits })
    }

    #[test]
    fn the_path_ends_at_the_straggler() {
        let outside = Some(ProgressReport {
            inside: false,
            sequence: 6,
            completed: 7,
            operation: "barrier".to_owned(),
            awaits: None,
        });
        let reports = [inside(Some(1)), inside(Some(2)), outside, inside(None), None];
        let ask = |rank: usize| match reports.get(rank) {
            Some(report) => report.clone().ok_or(AskError::Silent),
            None => Err(AskError::Unreachable("refused".to_owned())),
        };
        let said = |peer| Diagnosis::follow(peer, ask).to_string();
        assert_eq!(
            said(1),
            "rank 2 is outside the library; its last call was barrier (operation 6)"
        );
        assert_eq!(said(3), "rank 3 is in barrier (operation 7)");
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
        assert_eq!(progress.report(GroupId::WORLD).to_string(), "has called nothing yet");
        let activity = progress.open(GroupId::WORLD, &[4, 6], 0);
        activity.begin(3, &Arc::new(CallRecord::new(1, "barrier")));
        activity.pulse().enter(5);
        activity.wait(WaitTarget::Rank(1), 0, (0, 1), Instant::now());
        let report = progress.report(GroupId::WORLD);
        assert_eq!(
            (report.to_string().as_str(), report.awaits),
            ("is in barrier (operation 5)", Some(6))
        );
        activity.pulse().exit(5);
        let report = progress.report(GroupId::WORLD);
        let said = "is outside the library; its last call was barrier (operation 5)";
        assert_eq!((report.to_string().as_str(), report.awaits), (said, None));
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
        let ask = |rank: usize| reports[rank].clone().ok_or(AskError::Silent);
        let Diagnosis::Cycle { ranks } = Diagnosis::follow(0, ask) else { panic!("no cycle") };
        assert_eq!(ranks.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [1, 2]);
    }
}
