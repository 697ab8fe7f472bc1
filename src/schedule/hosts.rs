//! The placement of ranks: their hosts and boards.
//!
//! [`Hosts`] is a fact about machines: ranks of one host share its cores, its clock and its memory.
//! [`Boards`] is a decision about transport: ranks of one board read each other's memory, and
//! streams join all others. Within a host of many ranks there are several boards, because a board
//! serves at most [`MAX_RANKS`] ranks. Over TCP alone every rank has a board of its own.
//!
//! ```
//! use maypole::schedule::hosts::{Boards, Hosts};
//! let hosts = Hosts::new(&["a", "a", "b"]);
//! assert_eq!((hosts.numbers(), hosts.count()), (&[0, 0, 1][..], 2));
//! assert_eq!(Boards::within(&hosts).numbers(), [0, 0, 1]);
//! // The same hosts over TCP.
//! assert_eq!(Boards::separate(3).numbers(), [0, 1, 2]);
//! ```

use crate::labels;
use maypole_transports::board::MAX_RANKS;
use std::hash::Hash;
use std::ops::Deref;

/// The host of each rank.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Hosts(RankGroups);

/// The board of each rank.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Boards(RankGroups);

/// How the ranks of a board reach one another's buffers during a call, where they use no slots.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReachedMemory {
    /// Registered memory, which every rank maps: it is read and written directly.
    Registered,
    /// A rank's private memory, which the kernel copies from: it is read as a whole, into memory of
    /// the reading rank, and never written.
    Copied,
}

/// Ranks sorted into groups. Groups are numbered from 0, in the order of their lowest ranks.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RankGroups {
    numbers: Vec<usize>,
    count: usize,
}

impl Hosts {
    /// Ranks with equal labels are on one host: there is one label for each rank.
    pub fn new<T: Eq + Hash>(labels: &[T]) -> Self {
        Self(RankGroups::new(labels))
    }

    /// The hosts of the ranks `members` alone, which become ranks 0, 1 and so on.
    ///
    /// # Panics
    /// If a member is not one of the ranks.
    #[must_use]
    pub fn subset(&self, members: &[usize]) -> Self {
        Self(self.0.subset(members))
    }
}

impl Boards {
    /// Ranks with equal labels share a board: there is one label for each rank.
    ///
    /// A label may occur more than [`MAX_RANKS`] times: schedules can be priced and lowered for
    /// boards that no memory could hold. [`within`](Self::within) makes boards that can.
    pub fn new<T: Eq + Hash>(labels: &[T]) -> Self {
        Self(RankGroups::new(labels))
    }

    /// As few boards as can serve the ranks of each host: a host with more than [`MAX_RANKS`] ranks
    /// has several.
    pub fn within(hosts: &Hosts) -> Self {
        Self::within_but(hosts, |_| false)
    }

    /// As [`within`](Self::within), but each rank of a host that `lacks` shared memory has a board of its
    /// own.
    pub(crate) fn within_but(hosts: &Hosts, lacks: impl Fn(usize) -> bool) -> Self {
        let label = |rank| match (hosts.of(rank), hosts.index(rank)) {
            (host, index) if lacks(host) => (host, index),
            (host, index) => (host, index / MAX_RANKS),
        };
        Self::new(&(0..hosts.world()).map(label).collect::<Vec<_>>())
    }

    /// A board of its own for each of `world` ranks, so that streams join any two of them.
    pub fn separate(world: usize) -> Self {
        Self::new(&(0..world).collect::<Vec<_>>())
    }

    /// The boards of the ranks `members` alone, which become ranks 0, 1 and so on.
    ///
    /// # Panics
    /// If a member is not one of the ranks.
    #[must_use]
    pub fn subset(&self, members: &[usize]) -> Self {
        Self(self.0.subset(members))
    }
}

impl RankGroups {
    fn new<T: Eq + Hash>(labels: &[T]) -> Self {
        let numbers = labels::numbers(labels);
        let count = numbers.iter().max().map_or(0, |last| last + 1);
        Self { numbers, count }
    }

    fn subset(&self, members: &[usize]) -> Self {
        Self::new(&members.iter().map(|member| self.of(*member)).collect::<Vec<_>>())
    }

    /// How many ranks there are.
    #[inline]
    pub fn world(&self) -> usize {
        self.numbers.len()
    }

    /// How many groups there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// For each rank the number of its group.
    pub fn numbers(&self) -> &[usize] {
        &self.numbers
    }

    /// The number of the group that `rank` is in.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn of(&self, rank: usize) -> usize {
        self.numbers[rank]
    }

    /// True if both ranks are in one group.
    ///
    /// # Panics
    /// If there are no such ranks.
    pub fn together(&self, a: usize, b: usize) -> bool {
        self.numbers[a] == self.numbers[b]
    }

    /// The ranks in the group of `rank`, itself among them, in ascending order.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn locals(&self, rank: usize) -> Vec<usize> {
        (0..self.world()).filter(|other| self.together(*other, rank)).collect()
    }

    /// The place of `rank` in its group: how many of its [`locals`](Self::locals) have a lower
    /// rank.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn index(&self, rank: usize) -> usize {
        (0..rank).filter(|other| self.together(*other, rank)).count()
    }

    /// By group, how many ranks it has.
    pub fn sizes(&self) -> Vec<usize> {
        let mut sizes = vec![0; self.count];
        for group in &self.numbers {
            sizes[*group] += 1;
        }
        sizes
    }

    /// The ranks of each group, if all have equally many, and those of each group follow one another.
    pub fn width(&self) -> Option<usize> {
        let width = self.world().checked_div(self.count)?;
        let is_regular = |(rank, group): (usize, &usize)| rank / width == *group;
        self.numbers.iter().enumerate().all(is_regular).then_some(width)
    }

    /// True if some group has several ranks.
    pub fn is_shared(&self) -> bool {
        self.count < self.world()
    }

    /// True if all ranks are in one group.
    pub fn is_one(&self) -> bool {
        self.count <= 1
    }

    /// True if there are several groups, and one of them has several ranks.
    pub fn has_levels(&self) -> bool {
        self.is_shared() && !self.is_one()
    }
}

impl Deref for Hosts {
    type Target = RankGroups;

    #[inline]
    fn deref(&self) -> &RankGroups {
        &self.0
    }
}

impl Deref for Boards {
    type Target = RankGroups;

    #[inline]
    fn deref(&self) -> &RankGroups {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_numbered_by_their_lowest_ranks() {
        let hosts = Hosts::new(&[7, 3, 7, 9, 3]);
        assert_eq!(hosts.numbers(), [0, 1, 0, 2, 1]);
        assert_eq!(hosts.sizes(), [2, 2, 1]);
        assert_eq!(hosts.locals(4), [1, 4]);
        assert_eq!([0, 1, 2, 3, 4].map(|rank| hosts.index(rank)), [0, 0, 1, 0, 1]);
        assert_eq!(hosts.subset(&[4, 3, 1]).numbers(), [0, 1, 0]);
    }

    #[test]
    fn a_host_with_too_many_ranks_for_a_board_has_several() {
        let ranks = 2 * MAX_RANKS + 1;
        let boards = Boards::within(&Hosts::new(&vec![0; ranks]));
        assert_eq!(boards.sizes(), [MAX_RANKS, MAX_RANKS, 1]);
        assert_eq!(boards.index(ranks - 2), MAX_RANKS - 1);
        assert!(boards.has_levels());
    }

    #[test]
    fn each_separate_board_has_one_rank() {
        let boards = Boards::separate(3);
        assert!(!boards.is_shared() && !boards.is_one() && !boards.has_levels());
        let alone = Boards::separate(1);
        assert!(!alone.is_shared() && alone.is_one() && !alone.has_levels());
    }
}
