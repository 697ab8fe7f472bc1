//! Goodbyes that rank 0 has not confirmed yet. A patient rank that leaves waits until its calls are
//! compared with those of the others: a rank whose part in a call was only to send has done it
//! before the others have looked at it. Pure: time is an argument.

use crate::world::calls::{CallMismatch, GroupId, GroupStatus};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a goodbye waits for ranks that have done fewer operations.
const LONGEST: Duration = Duration::from_secs(4);
/// The pauses between two questions how many operations the other ranks have done: the first one,
/// and the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The goodbyes of a world.
#[derive(Debug, Default)]
pub(super) struct Farewells {
    /// Ranks that wait, how many operations they have done, and until when they wait at most.
    held: BTreeMap<usize, (u64, Instant)>,
    /// How many operations each rank has done, as far as is known.
    completed: BTreeMap<usize, u64>,
    /// For each group, by its number and first member: the calls of the member that said goodbye
    /// first.
    first_calls: BTreeMap<(GroupId, usize), GroupStatus>,
    next_question: Option<(Instant, Duration)>,
}

impl Farewells {
    /// Rank `rank` leaves after `last` operations and waits for the confirmation.
    pub(super) fn hold(&mut self, rank: usize, last: u64, now: Instant) {
        self.held.insert(rank, (last, now + LONGEST));
        self.next_question.get_or_insert((now + FIRST_PAUSE, FIRST_PAUSE));
    }

    /// True if `rank` has said goodbye and waits.
    pub(super) fn holds(&self, rank: usize) -> bool {
        self.held.contains_key(&rank)
    }

    /// Notes how many operations `rank` has done.
    pub(super) fn note(&mut self, rank: usize, completed: u64) {
        self.completed.insert(rank, completed);
    }

    /// Compares the calls of a rank that leaves with those of the member of the group that left first.
    pub(super) fn compare(&mut self, calls: &GroupStatus) -> Option<CallMismatch> {
        let lead = calls.members.first().copied().unwrap_or_default();
        let first = self.first_calls.entry((calls.group, lead));
        first.or_insert_with(|| calls.clone()).compare(calls)
    }

    /// Takes the ranks whose wait is over: all others are `gone` or have done as many operations.
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

    /// When [`is_question_due`](Self::is_question_due) or [`release`](Self::release) has something
    /// to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let ends = self.held.values().map(|(_, until)| *until);
        ends.chain(self.next_question.map(|(when, _)| when)).min()
    }

    /// True if the ranks that are not gone should be asked now how many operations they have done.
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
