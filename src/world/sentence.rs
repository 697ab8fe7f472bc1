//! Sentences that name ranks. A rank has one number in the world and another in each group. A sentence
//! keeps the world's numbers, and is printed with the numbers of the group whose member reads it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A sentence that names ranks of the world. `Display` prints the numbers of the world.
///
/// ```
/// use maypole::world::RankSentence;
/// let sentence = RankSentence::default().rank(3).words(" died");
/// assert_eq!(sentence.to_string(), "rank 3 died");
/// assert_eq!(sentence.in_group(&[1, 3]), "rank 1 (rank 3 of the world) died");
/// assert_eq!(sentence.in_group(&[1, 2]), "rank 3 of the world died");
/// ```
#[derive(Clone, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct RankSentence(Vec<SentencePart>);

#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
enum SentencePart {
    Words(String),
    Rank(usize),
}

impl RankSentence {
    /// Adds words that name no rank.
    #[must_use]
    pub fn words(mut self, words: impl Into<String>) -> Self {
        self.0.push(SentencePart::Words(words.into()));
        self
    }

    /// Adds the name of this rank of the world.
    #[must_use]
    pub fn rank(mut self, rank: usize) -> Self {
        self.0.push(SentencePart::Rank(rank));
        self
    }

    /// Appends another sentence.
    #[must_use]
    pub fn then(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// The sentence for a member of the group of the ranks `members` of the world.
    pub fn in_group(&self, members: &[usize]) -> String {
        self.print(|world| match members.iter().position(|member| *member == world) {
            Some(rank) => rank_name(rank, world),
            None => format!("rank {world} of the world"),
        })
    }

    /// The sentence with the names that `name` gives ranks of the world.
    pub(crate) fn print(&self, name: impl Fn(usize) -> String) -> String {
        let part = |part: &SentencePart| match part {
            SentencePart::Words(words) => words.clone(),
            SentencePart::Rank(rank) => name(*rank),
        };
        self.0.iter().map(part).collect()
    }
}

impl fmt::Display for RankSentence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.print(|rank| format!("rank {rank}")))
    }
}

/// The name of rank `rank` of a group, which is rank `world` of the world: `rank 1`, or
/// `rank 1 (rank 3 of the world)` where the numbers differ.
pub(crate) fn rank_name(rank: usize, world: usize) -> String {
    match rank == world {
        true => format!("rank {rank}"),
        false => format!("rank {rank} (rank {world} of the world)"),
    }
}

/// The group of the ranks `members` of the world, in words; `None` if its members have the numbers
/// that they have in the world.
pub(crate) fn group_name(members: &[usize]) -> Option<String> {
    let differs = members.iter().enumerate().any(|(rank, world)| rank != *world);
    differs.then(|| format!("the group of ranks {} of the world", list_ranks(members)))
}

/// The most ranks that one sentence names.
const MAX_NAMES: usize = 8;

/// The ranks, or the first few of many and the number of the others.
pub(crate) fn list_ranks(ranks: &[usize]) -> String {
    let shown = ranks.len().min(MAX_NAMES);
    match ranks.len() - shown {
        0 => list(ranks),
        others => format!("{} and {others} others", list(&ranks[..shown])),
    }
}

/// The items with commas between them.
pub(crate) fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}
