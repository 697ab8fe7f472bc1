//! The two kinds of first cause that a comparison of activities yields. All ranks of the group
//! receive the same cause, field by field.

use super::RecentCalls;
use crate::world::{RankSentence, group_name, rank_name};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The first two calls that do not match. Equal on all ranks of the group.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[non_exhaustive]
pub struct CallMismatch {
    /// The sequence number of the operation: how many operations of the group precede it.
    pub sequence: u64,
    /// The calls of two ranks. A rank that received an unexpected message comes first; else the
    /// lower rank does.
    pub calls: [RankCall; 2],
    /// The arguments that differ, in words, such as `algorithm (ring, tree)`. `None` for calls of
    /// different operations.
    pub difference: Option<String>,
    /// The number in the world of each rank above that has another number there.
    pub world_ranks: BTreeMap<usize, usize>,
}

/// The call of one rank.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[non_exhaustive]
pub struct RankCall {
    /// The rank, as numbered in the group.
    pub rank: usize,
    /// The call in words.
    pub call: String,
}

/// The first deadline that passed. Equal on all ranks of the group.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[non_exhaustive]
pub struct MissedDeadline {
    /// The sequence number of the operation: how many operations of the group precede it.
    pub sequence: u64,
    /// The rank whose deadline passed.
    pub waiter: usize,
    /// The rank that it waited for; `None` for a receive from any rank.
    pub peer: Option<usize>,
    /// The call of `waiter`.
    pub operation: String,
    /// The number of the fold in the program, or of the message in its group.
    pub step: usize,
    /// The timeout of `waiter`.
    pub after: Duration,
    /// The ranks' own reports.
    pub detail: Option<String>,
    /// The rank that blocks the others: the end of the chain of waits that begins at `peer`.
    pub culprit: Option<usize>,
    /// The number in the world of each rank above that has another number there.
    pub world_ranks: BTreeMap<usize, usize>,
}

/// Maps each of `ranks` to its number in the world where the two differ. `members` are the world
/// ranks of the group.
fn world_ranks(
    ranks: impl IntoIterator<Item = usize>,
    members: &[usize],
) -> BTreeMap<usize, usize> {
    let pairs = ranks.into_iter().filter_map(|rank| Some((rank, *members.get(rank)?)));
    pairs.filter(|(rank, world)| rank != world).collect()
}

/// The sentence with the group's numbers, and the world's where `world_ranks` holds a different
/// one.
fn with_both_numbers(sentence: &RankSentence, world_ranks: &BTreeMap<usize, usize>) -> String {
    sentence.print(|world| {
        let known = world_ranks.iter().find(|(_, number)| **number == world);
        rank_name(known.map_or(world, |(rank, _)| *rank), world)
    })
}

/// ` of the group of ranks 1, 3 of the world`; nothing for the world.
fn of_group(members: &[usize]) -> String {
    group_name(members).map_or_else(String::new, |name| format!(" of {name}"))
}

impl CallMismatch {
    pub(crate) fn new(
        sequence: u64,
        calls: [(usize, &str); 2],
        difference: Option<String>,
    ) -> Self {
        let calls = calls.map(|(rank, call)| RankCall { rank, call: call.to_owned() });
        Self { sequence, calls, difference, world_ranks: BTreeMap::new() }
    }

    /// The calls of two ranks, the lower rank first.
    pub(crate) fn between(
        sequence: u64,
        one: (usize, &RecentCalls),
        other: (usize, &RecentCalls),
    ) -> Self {
        let [low, high] = if one.0 < other.0 { [one, other] } else { [other, one] };
        let difference = low.1.difference(high.1);
        Self::new(sequence, [(low.0, &*low.1.call), (high.0, &*high.1.call)], difference)
    }

    /// The same for the group of the world's ranks `members`.
    pub(crate) fn in_group(mut self, members: &[usize]) -> Self {
        self.world_ranks = world_ranks(self.calls.iter().map(|call| call.rank), members);
        self
    }

    /// True if the mismatch contains the call of `rank` as operation `sequence`.
    pub(crate) fn tells(&self, rank: usize, sequence: u64) -> bool {
        self.sequence == sequence && self.calls.iter().any(|call| call.rank == rank)
    }

    /// The sentence for ranks outside the group too. `members` are the world ranks of the group.
    pub(crate) fn sentence(&self, members: &[usize]) -> RankSentence {
        let Self { sequence, calls: [one, other], difference, world_ranks } = self;
        let world = |rank: &usize| world_ranks.get(rank).copied().unwrap_or(*rank);
        let place = of_group(members);
        let text = RankSentence::default().words("ranks do not match: ").rank(world(&one.rank));
        let text = text.words(format!(" calls {} as operation {sequence}{place}, but ", one.call));
        let text = text.rank(world(&other.rank)).words(format!(" calls {}", other.call));
        match difference {
            Some(difference) => text.words(format!("; they differ in {difference}")),
            None => text,
        }
    }
}

impl MissedDeadline {
    /// The same for the group of the world's ranks `members`.
    pub(crate) fn in_group(mut self, members: &[usize]) -> Self {
        let named = [Some(self.waiter), self.peer, self.culprit];
        self.world_ranks = world_ranks(named.into_iter().flatten(), members);
        self
    }

    /// The sentence without the ranks' own reports, for ranks outside the group too. `members` are
    /// the world ranks of the group.
    pub(crate) fn sentence(&self, members: &[usize]) -> RankSentence {
        let Self { waiter, operation, sequence, step, world_ranks, .. } = self;
        let world = |rank: &usize| world_ranks.get(rank).copied().unwrap_or(*rank);
        let waited = format!(" waited {} s for ", self.after.as_secs_f64());
        let text = RankSentence::default().rank(world(waiter)).words(waited);
        let place = of_group(members);
        match &self.peer {
            Some(peer) => text
                .rank(world(peer))
                .words(format!(" in step {step} of {operation}{place} (operation {sequence})")),
            None => text.words(format!(
                "a message of any rank in {operation}{place} (operation {sequence})"
            )),
        }
    }
}

impl fmt::Display for CallMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&with_both_numbers(&self.sentence(&[]), &self.world_ranks))
    }
}

impl fmt::Display for MissedDeadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&with_both_numbers(&self.sentence(&[]), &self.world_ranks))?;
        match &self.detail {
            Some(detail) => write!(f, "; {detail}"),
            None => Ok(()),
        }
    }
}
