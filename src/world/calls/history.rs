//! The calls of one rank in one group, the last ones by number.

use super::{CallMismatch, CallRecord};
use serde::{Deserialize, Serialize};
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
    /// What was called.
    pub call: Arc<CallRecord>,
    /// When its first operation was prepared.
    pub since: Instant,
}

/// The last [`RUNS_KEPT`] runs of a rank in a group.
///
/// A history grows only when a rank makes another call than the one before. How many operations the
/// last run has follows from the number of operations that the rank has begun, which its
/// [pulse](super::Pulse) tells.
#[derive(Debug, Default)]
pub struct CallHistory(VecDeque<CallRun>);

impl CallHistory {
    /// Notes that the operations from `sequence` on are `call`.
    pub fn begin(&mut self, sequence: u64, call: &Arc<CallRecord>) {
        // An operation that was noted and did not begin is replaced.
        self.0.pop_back_if(|last| last.first == sequence);
        let same = |last: &CallRun| last.call.fingerprint == call.fingerprint;
        if self.0.back().is_some_and(same) {
            return;
        }
        if self.0.len() == RUNS_KEPT {
            self.0.pop_front();
        }
        let call = Arc::clone(call);
        self.0.push_back(CallRun { first: sequence, call, since: Instant::now() });
    }

    /// Returns the last run.
    pub fn last(&self) -> Option<&CallRun> {
        self.0.back()
    }

    /// Returns the call that operation `sequence` is, if it is still known.
    pub fn call_at(&self, sequence: u64) -> Option<&CallRecord> {
        let run = self.0.iter().rfind(|run| run.first <= sequence)?;
        Some(&run.call)
    }

    /// Iterates over all runs, the oldest first.
    pub fn runs(&self) -> impl DoubleEndedIterator<Item = &CallRun> {
        self.0.iter()
    }

    /// Returns the last `most` runs that begin before operation `end`. Of the rank's
    /// operations, `begun` have begun.
    pub fn excerpt(&self, end: u64, most: usize, begun: u64) -> CallExcerpt {
        let told = end.min(begun);
        let early = self.0.iter().filter(|run| run.first < told);
        let mut runs: Vec<_> =
            early.rev().take(most).map(|run| (run.first, CallRecord::clone(&run.call))).collect();
        runs.reverse();
        CallExcerpt { told, runs, left: false }
    }

    /// Returns the first operation that this rank and another one both have begun and that differs,
    /// with both calls: this rank's, of which `begun` operations have begun, and that of `theirs`.
    pub fn compare<'a>(
        &'a self,
        begun: u64,
        theirs: &'a CallExcerpt,
    ) -> Option<(u64, &'a CallRecord, &'a CallRecord)> {
        let mine: Vec<(u64, &CallRecord)> =
            self.0.iter().map(|run| (run.first, &*run.call)).collect();
        first_difference(&mine, &theirs.runs(), begun.min(theirs.told))
    }
}

/// The first operation before `end` that differs, with both calls. Both lists are in order.
fn first_difference<'a>(
    mine: &[(u64, &'a CallRecord)],
    theirs: &[(u64, &'a CallRecord)],
    end: u64,
) -> Option<(u64, &'a CallRecord, &'a CallRecord)> {
    let start = mine.first()?.0.max(theirs.first()?.0);
    let firsts = mine.iter().chain(theirs).map(|(first, _)| *first);
    let mut numbers: Vec<u64> =
        firsts.chain([start]).filter(|number| (start..end).contains(number)).collect();
    numbers.sort_unstable();
    numbers.into_iter().find_map(|number| {
        let my_call = call_at(mine, number)?;
        let their_call = call_at(theirs, number)?;
        let differ = my_call.fingerprint != their_call.fingerprint;
        differ.then_some((number, my_call, their_call))
    })
}

fn call_at<'a>(runs: &[(u64, &'a CallRecord)], number: u64) -> Option<&'a CallRecord> {
    let after = runs.partition_point(|(first, _)| *first <= number);
    Some(runs[after.checked_sub(1)?].1)
}

/// Some runs of a rank in a group, as another rank is told them.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct CallExcerpt {
    /// The runs tell of the operations before this number. The rank may have begun later ones, which
    /// need not belong to the last run: the question names an end, and both ranks go on meanwhile.
    pub told: u64,
    /// The number of the first operation of each run, and what was called. Runs follow one another
    /// without a gap.
    pub runs: Vec<(u64, CallRecord)>,
    /// True if the rank has left the group. It begins no operation there any more.
    pub left: bool,
}

impl CallExcerpt {
    fn runs(&self) -> Vec<(u64, &CallRecord)> {
        self.runs.iter().map(|(first, call)| (*first, call)).collect()
    }

    /// Compares the calls of rank `me`, which these are, with those of rank `peer`. Returns the
    /// first two calls that do not match, the lower rank first.
    pub fn compare(&self, me: usize, peer: usize, theirs: &Self) -> Option<CallMismatch> {
        let end = self.told.min(theirs.told);
        let (sequence, mine, theirs) = first_difference(&self.runs(), &theirs.runs(), end)?;
        Some(CallMismatch::between(sequence, (me, mine), (peer, theirs)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let firsts: Vec<u64> = history(&[7, 7, 7, 8, 7]).runs().map(|run| run.first).collect();
        assert_eq!(firsts, [0, 3, 4]);
    }

    #[test]
    fn an_operation_that_did_not_begin_is_replaced() {
        let mut history = history(&[7, 7]);
        history.begin(2, &call(8));
        history.begin(2, &call(7));
        assert_eq!(history.runs().count(), 1);
    }

    #[test]
    fn no_more_than_the_last_runs_are_kept() {
        let calls: Vec<u64> = (0..100_000).collect();
        let history = history(&calls);
        assert_eq!(history.runs().count(), RUNS_KEPT);
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
            let begun = theirs.len() as u64;
            let excerpt = history(&theirs).excerpt(end as u64, most, begun);
            let known_from = excerpt.runs[0].0 as usize;
            let mine_history = history(&mine);
            let found = mine_history.compare(mine.len() as u64, &excerpt);
            let both = mine.iter().zip(&theirs).enumerate().take(end).skip(known_from);
            let expected = both.clone().find(|(_, (mine, theirs))| mine != theirs);
            prop_assert_eq!(
                found.map(|(number, mine, theirs)| (number, mine.fingerprint, theirs.fingerprint)),
                expected.map(|(number, (mine, theirs))| (number as u64, *mine, *theirs))
            );
        }
    }
}
