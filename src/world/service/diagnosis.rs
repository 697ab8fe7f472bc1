//! Finds the straggler in the reports of all ranks.

use crate::world::calls::{GroupId, RankStatus};
use crate::world::{RankSentence, group_name};
use std::fmt;

/// The most ranks of a chain that a sentence contains, in addition to its end.
const LINKS_TOLD: usize = 3;

/// Why a query has no reply.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum AskError {
    /// The kernel of the rank's host has accepted the connection, but the rank has not replied.
    Silent,
    /// No process accepts connections at the rank's address, for this reason.
    Unreachable(String),
    /// The deadline passed before the query could complete.
    NoTime,
}

/// A rank of a chain of waits, in the call in which it waits.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ChainLink {
    /// The rank.
    pub rank: usize,
    /// The call in words.
    pub call: String,
    /// The rank of the world that it waits for.
    pub awaits: Option<usize>,
    group: GroupId,
    sequence: u64,
    /// The group in words, if another rank waits for this one in a different group.
    place: String,
}

impl ChainLink {
    /// The call in `status` that keeps rank `rank` from a member of the group `asked`; `None` if it
    /// is in no call.
    fn of(rank: usize, asked: GroupId, status: &RankStatus) -> Option<Self> {
        let (group, pending) = status.held_in(asked)?;
        let place = match group_name(&group.members) {
            _ if group.group == asked => String::new(),
            None => " of another communicator".to_owned(),
            Some(name) => format!(" of {name}, whose numbers it uses"),
        };
        let awaits = pending.awaits.and_then(|rank| group.members.get(rank).copied());
        let (call, sequence) = (pending.call.clone(), pending.sequence);
        Some(Self { rank, call, awaits, group: group.group, sequence, place })
    }
}

impl fmt::Display for ChainLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, sequence, place, .. } = self;
        write!(f, "is in {call} (operation {sequence}{place})")
    }
}

/// The past calls, in the group `asked`, of a rank outside the library.
fn absence(asked: GroupId, status: &RankStatus) -> String {
    let done = status.group(asked).and_then(|group| group.done());
    match done {
        Some(done) => format!("is outside the library {done}"),
        None if status.groups.iter().all(|group| group.done().is_none()) => {
            "has called nothing yet".to_owned()
        }
        None => "is outside the library, and has called nothing in this group yet".to_owned(),
    }
}

/// The reason of a wait without end, by the statuses of all ranks.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Diagnosis {
    /// This rank's process does not reply: it is stopped or has no processor time, or its host or
    /// the network to it has failed.
    Silent {
        /// The rank.
        rank: usize,
    },
    /// No process accepts connections at this rank's address: it has ended, or the network to it is
    /// lost.
    Unreachable {
        /// The rank.
        rank: usize,
        /// The ranks of the chain before it.
        path: Vec<ChainLink>,
        /// The error of the connection to it.
        why: String,
    },
    /// The chain of waits leads to this rank, and the deadline passed before its query.
    Unknown {
        /// The rank.
        rank: usize,
        /// How many ranks before it have replied.
        asked: usize,
    },
    /// This rank is not in a call of the library.
    Outside {
        /// The rank.
        rank: usize,
        /// The ranks of the chain before it.
        path: Vec<ChainLink>,
        /// Its past calls, in words.
        done: String,
    },
    /// This rank is in a call and has reported no rank that it waits for.
    Busy {
        /// The rank in its call.
        link: ChainLink,
        /// The ranks of the chain before it.
        path: Vec<ChainLink>,
    },
    /// A deadlock: each of these ranks waits for the next, and the last for the first.
    Cycle {
        /// The ranks.
        path: Vec<ChainLink>,
    },
}

impl Diagnosis {
    /// Follows the chain of waits from `peer`, which is awaited in `group`, to its end. `ask`
    /// queries one rank's status, for the group in which it is awaited.
    pub fn follow(
        group: GroupId,
        peer: usize,
        mut ask: impl FnMut(usize, GroupId) -> Result<RankStatus, AskError>,
    ) -> Self {
        let mut path: Vec<ChainLink> = Vec::new();
        let mut asked = Vec::new();
        let (mut rank, mut group) = (peer, group);
        loop {
            if let Some(start) = asked.iter().position(|it| *it == (rank, group)) {
                return Self::Cycle { path: path.split_off(start) };
            }
            asked.push((rank, group));
            let status = match ask(rank, group) {
                Ok(status) => status,
                Err(AskError::Silent) => return Self::Silent { rank },
                Err(AskError::Unreachable(why)) => return Self::Unreachable { rank, path, why },
                Err(AskError::NoTime) => return Self::Unknown { rank, asked: path.len() },
            };
            let Some(link) = ChainLink::of(rank, group, &status) else {
                return Self::Outside { rank, path, done: absence(group, &status) };
            };
            let is_same = |seen: &ChainLink| (seen.rank, seen.group) == (rank, link.group);
            if let Some(start) = path.iter().position(is_same) {
                return Self::Cycle { path: path.split_off(start) };
            }
            let Some(next) = link.awaits else { return Self::Busy { link, path } };
            (rank, group) = (next, link.group);
            path.push(link);
        }
    }

    /// The rank that blocks the others; `None` if the chain's end is unknown, and for a cycle,
    /// which no single rank causes.
    pub fn culprit(&self) -> Option<usize> {
        match self {
            Self::Silent { rank } | Self::Unreachable { rank, .. } | Self::Outside { rank, .. } => {
                Some(*rank)
            }
            Self::Busy { link, .. } => Some(link.rank),
            Self::Unknown { .. } | Self::Cycle { .. } => None,
        }
    }

    /// The result as a sentence.
    pub fn sentence(&self) -> RankSentence {
        let text = RankSentence::default();
        let ends = |rank: usize, does: &dyn fmt::Display, path: &[ChainLink]| {
            // Ranks that wait in the failed call itself are not listed.
            let elsewhere = path.iter().filter(|link| !link.place.is_empty());
            let text = RankSentence::default().rank(rank).words(format!(" {does}"));
            elsewhere.take(LINKS_TOLD).fold(text, |text, link| chained(text.words("; "), link))
        };
        match self {
            Self::Silent { rank } => text.rank(*rank).words(
                " does not answer: its process is stopped or has no processor, or its host or the \
                 network to it is down; whom it awaits is not known",
            ),
            Self::Unreachable { rank, why, .. } => text.rank(*rank).words(format!(
                " cannot be reached: its process has ended, or the network to it is lost ({why})"
            )),
            Self::Unknown { rank, asked } => text
                .words(format!("{asked} ranks wait for one another in a chain that leads to "))
                .rank(*rank)
                .words("; what that rank does is not known, because there was no time to ask it"),
            Self::Outside { rank, path, done } => ends(*rank, done, path),
            Self::Busy { link, path } => ends(link.rank, link, path),
            Self::Cycle { path } => {
                path.iter().fold(text.words("ranks wait for one another:"), |text, link| {
                    chained(text.words(" "), link).words(";")
                })
            }
        }
    }
}

/// Adds the call of a rank in a chain, and the rank it awaits.
fn chained(text: RankSentence, link: &ChainLink) -> RankSentence {
    let text = text.rank(link.rank).words(format!(" {link} and awaits "));
    text.rank(link.awaits.unwrap_or_default())
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sentence().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::calls::{CallRecord, GroupStatus, WaitTarget};
    use crate::world::service::ProgressTable;
    use std::sync::Arc;
    use std::time::Instant;

    const WORLD: GroupId = GroupId::WORLD;
    const OTHER: GroupId = GroupId { parent_epoch: 1, counter: 2 };

    /// The status of a rank, for a rank that waits in `group`.
    fn status(progress: &ProgressTable, group: GroupId, waits: bool) -> RankStatus {
        RankStatus::of((1, 3), &progress.activities(Some(group)), waits, Some(group))
    }

    /// The status of a rank in operation 7 of the world, or after that many.
    fn in_world(is_inside: bool, awaits: Option<usize>) -> RankStatus {
        let progress = ProgressTable::default();
        let activity = progress.open(WORLD, &[0, 1, 2, 3, 4], 0);
        activity.begin(0, &Arc::new(CallRecord::new(1, "barrier()")));
        if is_inside {
            activity.pulse().enter(7);
        } else {
            activity.pulse().exit(6);
        }
        if let Some(rank) = awaits {
            activity.wait(WaitTarget::Rank(rank), 0, (0, 1), Instant::now());
        }
        status(&progress, WORLD, false)
    }

    fn inside(awaits: Option<usize>) -> RankStatus {
        in_world(true, awaits)
    }

    /// The diagnosis for a rank that waits in the world for this rank, and the rank that this one
    /// awaits.
    fn told(progress: &ProgressTable) -> (String, Option<usize>) {
        let found = Diagnosis::follow(WORLD, 1, |rank, group| match rank {
            1 => Ok(status(progress, group, false)),
            _ => Err(AskError::Unreachable(String::new())),
        });
        match found {
            Diagnosis::Outside { done, .. } => (done, None),
            Diagnosis::Busy { link, .. } => (link.to_string(), None),
            Diagnosis::Unreachable { path, .. } => (path[0].to_string(), path[0].awaits),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_path_ends_at_the_straggler() {
        let statuses = [inside(Some(1)), inside(Some(2)), in_world(false, None), inside(None)];
        let ask = |rank: usize, _| match statuses.get(rank) {
            Some(status) => Ok(status.clone()),
            None if rank == 4 => Err(AskError::Silent),
            None => Err(AskError::Unreachable("refused".to_owned())),
        };
        let said = |peer| Diagnosis::follow(WORLD, peer, ask).to_string();
        assert_eq!(
            said(1),
            "rank 2 is outside the library after 7 operations, the last of them barrier()"
        );
        assert_eq!(said(3), "rank 3 is in barrier() (operation 7)");
        let busy = [inside(Some(1)), inside(Some(3))];
        let through = |rank: usize, _| Ok(busy.get(rank).unwrap_or(&statuses[3]).clone());
        assert_eq!(Diagnosis::follow(WORLD, 0, through).culprit(), Some(3));
        assert_eq!(
            said(4),
            "rank 4 does not answer: its process is stopped or has no processor, or its host or the \
             network to it is down; whom it awaits is not known"
        );
        assert_eq!(
            said(9),
            "rank 9 cannot be reached: its process has ended, or the network to it is lost \
             (refused)"
        );
    }

    #[test]
    fn a_status_tells_the_operation_and_the_awaited_rank() {
        let progress = ProgressTable::default();
        assert_eq!(told(&progress), ("has called nothing yet".to_owned(), None));
        let activity = progress.open(WORLD, &[4, 6], 0);
        activity.begin(3, &Arc::new(CallRecord::new(1, "barrier()")));
        activity.pulse().enter(5);
        activity.wait(WaitTarget::Rank(1), 0, (0, 1), Instant::now());
        assert_eq!(told(&progress), ("is in barrier() (operation 5)".to_owned(), Some(6)));
        activity.pulse().exit(5);
        let said = "is outside the library after 6 operations, the last of them barrier()";
        assert_eq!(told(&progress), (said.to_owned(), None));
        let other = status(&progress, OTHER, false);
        let said = "is outside the library, and has called nothing in this group yet";
        assert_eq!(absence(OTHER, &other), said);
        progress.close(WORLD);
        assert_eq!(absence(OTHER, &status(&progress, OTHER, false)), said);
        assert_eq!(absence(WORLD, &status(&progress, WORLD, false)), absence(WORLD, &other));
    }

    #[test]
    fn a_rank_that_waits_in_another_group_is_followed_there() {
        let waiting = ProgressTable::default();
        waiting.open(WORLD, &[0, 1, 2], 1);
        let there = waiting.open(OTHER, &[2, 1], 1);
        let ended = || {
            let groups = in_world(false, None).groups.into_iter();
            groups.map(|group| GroupStatus { group: OTHER, ..group }).collect()
        };
        there.begin_messages();
        assert!(told(&waiting).0.starts_with("is in a message to or from"));
        there.begin_message(0, "recv(1 x u8, from rank 0, tag 5)".to_owned());
        there.wait(WaitTarget::Rank(0), 0, (0, 1), Instant::now());
        let ask = |rank, group| match rank {
            1 => Ok(status(&waiting, group, false)),
            _ if group == OTHER => Ok(RankStatus { groups: ended(), ..RankStatus::default() }),
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
        // A request that no thread waits for does not block another call.
        there.set_background(true);
        assert_eq!(Diagnosis::follow(WORLD, 1, ask).culprit(), Some(1));
        let waits = |rank, group| match rank {
            1 => Ok(status(&waiting, group, true)),
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
        assert_eq!(told(&progress).1, None);
        activity.note_missing(1);
        assert_eq!(told(&progress).1, Some(5));
    }

    #[test]
    fn a_cycle_is_named_without_the_ranks_that_lead_to_it() {
        let statuses = [inside(Some(1)), inside(Some(2)), inside(Some(1))];
        let ask = |rank: usize, _| Ok(statuses[rank].clone());
        let Diagnosis::Cycle { path } = Diagnosis::follow(WORLD, 0, ask) else {
            panic!("no cycle")
        };
        assert_eq!(path.iter().map(|link| link.rank).collect::<Vec<_>>(), [1, 2]);
    }
}
