//! Which rank failed first, by the reports of failed ranks.

use std::collections::BTreeMap;

use maypole::comm::status::RankStatus;
use serde::{Deserialize, Serialize};

/// The rank that failed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FirstFailure {
    pub(super) rank: usize,
    /// It did not do its part in time, so it may run for long.
    pub(super) was_late: bool,
}

/// By rank: which rank it names.
#[derive(Debug, Default)]
pub(super) struct Verdicts(BTreeMap<usize, FirstFailure>);

impl Verdicts {
    /// Takes the report of a rank. `timed_out`: it reports that a deadline has passed.
    pub(super) fn note(&mut self, status: &RankStatus, timed_out: bool) {
        match (&status.failure, status.culprit) {
            (Some(_), Some(rank)) => {
                let was_late = timed_out || self.0.get(&status.rank).is_some_and(|it| it.was_late);
                self.0.insert(status.rank, FirstFailure { rank, was_late });
            }
            // A program may have made a new world since.
            (None, _) => drop(self.0.remove(&status.rank)),
            (Some(_), None) => {}
        }
    }

    pub(super) fn agreed(&self) -> Option<FirstFailure> {
        most_named(self.0.values().copied())
    }
}

/// The one that most name; of several, the lowest rank.
pub(super) fn most_named(named: impl Iterator<Item = FirstFailure>) -> Option<FirstFailure> {
    let mut counts: BTreeMap<usize, (usize, bool)> = BTreeMap::new();
    for FirstFailure { rank, was_late } in named {
        let (count, late) = counts.entry(rank).or_default();
        *count += 1;
        *late |= was_late;
    }
    let most = counts.into_iter().rev().max_by_key(|(_, (count, _))| *count);
    most.map(|(rank, (_, was_late))| FirstFailure { rank, was_late })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status(rank: usize, failure: Option<&str>, culprit: Option<usize>) -> RankStatus {
        let network = json!({ "refused": 0, "half_open": 0, "left": [], "silent": [] });
        let status = json!({
            "rank": rank, "world": 4, "process": 1, "unix_seconds": 0.0, "groups": [],
            "network": network, "failure": failure, "culprit": culprit,
        });
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn the_rank_that_most_name_failed_first() {
        let mut verdicts = Verdicts::default();
        assert_eq!(verdicts.agreed(), None);
        for (rank, culprit) in [(3, 3), (0, 2), (1, 2)] {
            verdicts.note(&status(rank, Some("so"), Some(culprit)), rank == 1);
        }
        verdicts.note(&status(2, Some("so"), None), false);
        assert_eq!(verdicts.agreed(), Some(FirstFailure { rank: 2, was_late: true }));
        // A later report no longer mentions the deadline.
        verdicts.note(&status(1, Some("so"), Some(2)), false);
        assert_eq!(verdicts.agreed(), Some(FirstFailure { rank: 2, was_late: true }));
        for rank in [0, 1] {
            verdicts.note(&status(rank, None, None), false);
        }
        assert_eq!(verdicts.agreed(), Some(FirstFailure { rank: 3, was_late: false }));
    }
}
