//! The calls of one rank in one group, the last ones by number.

use super::{CallRecord, RecentCalls};
use crate::world::keep_last;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// How many entries of a history are kept. Equal calls in a row are one entry.
pub const RUNS_KEPT: usize = 1000;

/// Equal calls in a row. The run ends where the next one begins.
#[derive(Clone, Debug)]
pub struct CallRun {
    /// The number of its first operation.
    pub first: u64,
    /// The call.
    pub call: Arc<CallRecord>,
    /// When its first operation was prepared.
    pub since: Instant,
}

/// The last [`RUNS_KEPT`] runs of a rank in a group.
///
/// A history grows only when a call differs from the one before. The length of the last run follows
/// from the number of operations begun, which the [pulse](super::Pulse) counts.
#[derive(Debug, Default)]
pub struct CallHistory(VecDeque<CallRun>);

impl CallHistory {
    /// Notes that the operations from `sequence` on are `call`.
    pub fn begin(&mut self, sequence: u64, call: &Arc<CallRecord>) {
        // Replaces an operation that was noted and did not begin.
        if self.0.back().is_some_and(|last| last.first == sequence) {
            self.0.pop_back();
        }
        let same = |last: &CallRun| last.call.fingerprint == call.fingerprint;
        if self.0.back().is_some_and(same) {
            return;
        }
        let run = CallRun { first: sequence, call: Arc::clone(call), since: Instant::now() };
        keep_last(&mut self.0, RUNS_KEPT, run);
    }

    /// Returns the last run.
    pub fn last(&self) -> Option<&CallRun> {
        self.0.back()
    }

    /// Returns the call of operation `sequence`, if the history still holds it.
    pub fn call_at(&self, sequence: u64) -> Option<&CallRecord> {
        let run = self.0.iter().rfind(|run| run.first <= sequence)?;
        Some(&run.call)
    }

    /// Returns the last `most` runs of the operations before `end`.
    pub fn recent(&self, end: u64, most: usize) -> Vec<RecentCalls> {
        let now = Instant::now();
        let mut next = end;
        let mut recent: Vec<RecentCalls> = Vec::new();
        for run in self.0.iter().rev().filter(|run| run.first < end).take(most) {
            recent.push(RecentCalls::of(run, next - run.first, now));
            next = run.first;
        }
        recent.reverse();
        recent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::calls::GroupStatus;
    use proptest::prelude::*;

    fn call(fingerprint: u64) -> Arc<CallRecord> {
        Arc::new(CallRecord::new(fingerprint, format!("call {fingerprint}")))
    }

    fn history(calls: &[u64]) -> CallHistory {
        let mut history = CallHistory::default();
        for (sequence, fingerprint) in calls.iter().enumerate() {
            history.begin(sequence as u64, &call(*fingerprint));
        }
        history
    }

    #[test]
    fn equal_calls_in_a_row_are_one_run() {
        let runs = |end, most| -> Vec<_> {
            let recent = history(&[7, 7, 7, 8, 7]).recent(end, most);
            recent.iter().map(|run| (run.first, run.count, run.fingerprint)).collect()
        };
        assert_eq!(runs(5, 9), [(0, 3, 7), (3, 1, 8), (4, 1, 7)]);
        assert_eq!(runs(4, 9), [(0, 3, 7), (3, 1, 8)], "a call that is prepared has not begun");
        assert_eq!(runs(2, 1), [(0, 2, 7)]);
    }

    #[test]
    fn an_operation_that_did_not_begin_is_replaced() {
        let mut history = history(&[7, 7]);
        history.begin(2, &call(8));
        history.begin(2, &call(7));
        assert_eq!(history.0.len(), 1);
    }

    #[test]
    fn no_more_than_the_last_runs_are_kept() {
        let calls: Vec<u64> = (0..100_000).collect();
        let history = history(&calls);
        assert_eq!(history.0.len(), RUNS_KEPT);
        assert_eq!(history.last().unwrap().first, 99_999);
    }

    proptest! {
        #[test]
        fn the_first_difference_is_found(
            mine in prop::collection::vec(0u64..3, 1..30),
            theirs in prop::collection::vec(0u64..3, 1..30),
            most in 1usize..30,
            end in 1usize..40,
        ) {
            let told = |calls: &[u64], rank, end: usize, most| {
                let recent = history(calls).recent(end.min(calls.len()) as u64, most);
                GroupStatus { rank, recent, ..GroupStatus::default() }
            };
            let excerpt = told(&theirs, 1, end, most);
            let known_from = excerpt.recent[0].first as usize;
            let found = told(&mine, 0, usize::MAX, usize::MAX).compare(&excerpt);
            let both = mine.iter().zip(&theirs).enumerate().take(end).skip(known_from);
            let expected = both.clone().find(|(_, (mine, theirs))| mine != theirs);
            let expected = expected.map(|(number, (mine, theirs))| {
                (number as u64, [mine, theirs].map(|it| format!("call {it}")))
            });
            prop_assert_eq!(
                found.map(|found| (found.sequence, found.calls.map(|it| it.call))),
                expected
            );
        }
    }
}
