//! Goodbyes that rank 0 has not confirmed yet. A patient rank that leaves waits until its calls are
//! compared with those of the others: a rank that only sends in a call completes it before the
//! others have compared it. Pure: time is an argument.

use crate::world::calls::{CallMismatch, GroupId, GroupStatus};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The longest wait of a goodbye for ranks that have done fewer operations.
const LONGEST: Duration = Duration::from_secs(4);
/// The first and the longest pause between two queries for the operation counts of the other ranks.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The goodbyes of a world.
#[derive(Debug, Default)]
pub(super) struct Farewells {
    /// Waiting ranks, with their operation count and the deadline of the wait.
    held: BTreeMap<usize, (u64, Instant)>,
    /// The last reported operation count of each rank.
    completed: BTreeMap<usize, u64>,
    /// For each group, by its number and first member: the calls of the first member that left.
    first_calls: BTreeMap<(GroupId, usize), GroupStatus>,
    next_question: Option<(Instant, Duration)>,
}

impl Farewells {
    /// Rank `rank` leaves after `last` operations and waits for the confirmation.
    pub(super) fn hold(&mut self, rank: usize, last: u64, now: Instant) {
        self.held.insert(rank, (last, now + LONGEST));
        self.next_question.get_or_insert((now + FIRST_PAUSE, FIRST_PAUSE));
    }

    /// True if the goodbye of `rank` waits.
    pub(super) fn holds(&self, rank: usize) -> bool {
        self.held.contains_key(&rank)
    }

    /// Notes the operation count of `rank`.
    pub(super) fn note(&mut self, rank: usize, completed: u64) {
        self.completed.insert(rank, completed);
    }

    /// Compares the calls of a leaving rank with those of the first member of the group that left.
    pub(super) fn compare(&mut self, calls: &GroupStatus) -> Option<CallMismatch> {
        let lead = calls.members.first().copied().unwrap_or_default();
        let first = self.first_calls.entry((calls.group, lead));
        first.or_insert_with(|| calls.clone()).compare(calls)
    }

    /// Takes the ranks whose wait has ended: all others are `gone` or have done as many operations.
    pub(super) fn release(
        &mut self,
        world: usize,
        now: Instant,
        gone: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        let completed = |rank| self.completed.get(&rank).copied().unwrap_or(0);
        let over = |(rank, (last, until)): (&usize, &(u64, Instant))| {
            let mut others = (0..world).filter(|other| other != rank);
            let all_done = others.all(|other| gone(other) || completed(other) >= *last);
            (all_done || *until <= now).then_some(*rank)
        };
        let ranks: Vec<usize> = self.held.iter().filter_map(over).collect();
        self.forget(&ranks)
    }

    /// Takes all ranks that wait.
    pub(super) fn release_all(&mut self) -> Vec<usize> {
        let ranks: Vec<usize> = self.held.keys().copied().collect();
        self.forget(&ranks)
    }

    /// Removes `ranks` from those that wait.
    pub(super) fn forget(&mut self, ranks: &[usize]) -> Vec<usize> {
        self.held.retain(|rank, _| !ranks.contains(rank));
        if self.held.is_empty() {
            self.next_question = None;
        }
        ranks.to_vec()
    }

    /// The next deadline for [`is_question_due`](Self::is_question_due) or
    /// [`release`](Self::release).
    pub(super) fn deadline(&self) -> Option<Instant> {
        let ends = self.held.values().map(|(_, until)| *until);
        ends.chain(self.next_question.map(|(when, _)| when)).min()
    }

    /// True if a query for the operation counts of the remaining ranks is due.
    pub(super) fn is_question_due(&mut self, now: Instant) -> bool {
        match self.next_question {
            Some((when, pause)) if when <= now => {
                let pause = (2 * pause).min(LONGEST_PAUSE);
                self.next_question = Some((now + pause, pause));
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_waits_until_the_others_have_done_as_much() {
        let mut farewells = Farewells::default();
        let now = Instant::now();
        farewells.hold(1, 5, now);
        farewells.note(0, 5);
        farewells.note(2, 4);
        assert!(farewells.release(3, now, |_| false).is_empty());
        assert!(farewells.is_question_due(now + FIRST_PAUSE));
        assert!(!farewells.is_question_due(now + FIRST_PAUSE));
        farewells.note(2, 5);
        assert_eq!(farewells.release(3, now, |_| false), [1]);
        assert_eq!(farewells.deadline(), None);
    }

    #[test]
    fn ranks_that_are_gone_are_not_waited_for_and_others_not_for_ever() {
        let mut farewells = Farewells::default();
        let now = Instant::now();
        farewells.hold(0, 1, now);
        farewells.hold(1, 1, now);
        assert!(farewells.release(3, now, |rank| rank == 2).is_empty());
        farewells.note(1, 1);
        assert_eq!(farewells.release(3, now, |rank| rank == 2), [0]);
        assert_eq!(farewells.release(3, now + LONGEST, |_| false), [1]);
    }
}
