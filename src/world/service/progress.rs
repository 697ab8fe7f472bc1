//! Progress reports: what each rank does in each group, and which rank holds the others up
//! according to all reports. An executor writes its report once a wait has become slow.

use super::GroupId;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a rank last reported that it does in a group.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct ProgressReport {
    /// Whether the rank is in a call of the library.
    pub inside: bool,
    /// The number of the operation.
    pub sequence: u64,
    /// The call, in words.
    pub operation: String,
    /// The world rank that it waits for.
    pub awaits: Option<usize>,
}

/// Whether a rank is in a call, and in which, as one atomic word: zero before the first operation,
/// `2 n + 1` within operation `n`, `2 n + 2` after it. Writing it costs a call one store.
#[derive(Debug, Default)]
pub struct Pulse(AtomicU64);

impl Pulse {
    /// Operation `sequence` begins.
    #[inline(always)]
    pub fn enter(&self, sequence: u64) {
        self.0.store(2 * sequence + 1, Ordering::Relaxed);
    }

    /// Operation `sequence` is over.
    #[inline(always)]
    pub fn exit(&self, sequence: u64) {
        self.0.store(2 * sequence + 2, Ordering::Relaxed);
    }

    /// Undoes [`enter`](Self::enter): operation `sequence` has not begun.
    pub fn back(&self, sequence: u64) {
        self.0.store(2 * sequence, Ordering::Relaxed);
    }

    /// Whether the rank is in a call, and the number of its current or last operation; `None`
    /// before the first.
    fn read(&self) -> Option<(bool, u64)> {
        let word = self.0.load(Ordering::Relaxed);
        (word > 0).then(|| (word % 2 == 1, (word - 1) / 2))
    }
}

/// The progress reports of one rank, one for each group. Written when a wait is slow, read by the
/// service thread when another rank asks.
#[derive(Debug, Default)]
pub struct ProgressTable(Mutex<HashMap<GroupId, GroupProgress>>);

#[derive(Debug, Default)]
struct GroupProgress {
    report: ProgressReport,
    pulse: Arc<Pulse>,
}

impl ProgressTable {
    /// Reports that `operation`, number `sequence`, has begun. Later operations count as the same
    /// call until the next report.
    pub fn enter(&self, group: GroupId, sequence: u64, operation: String) {
        self.change(group, |report| {
            *report = ProgressReport { inside: true, sequence, operation, awaits: None }
        });
    }

    /// Reports which world rank the current operation waits for.
    pub fn awaits(&self, group: GroupId, peer: Option<usize>) {
        self.change(group, |report| report.awaits = peer);
    }

    /// Reports that the call is over. The report still names it.
    pub fn exit(&self, group: GroupId) {
        self.change(group, |report| {
            report.inside = false;
            report.awaits = None;
        });
    }

    /// The word that the calls of `group` write; its number overrules that of the report.
    pub fn pulse(&self, group: GroupId) -> Arc<Pulse> {
        Arc::clone(&self.groups().entry(group).or_default().pulse)
    }

    /// The report about `group`; an empty one if there is none.
    pub fn report(&self, group: GroupId) -> ProgressReport {
        let groups = self.groups();
        let Some(GroupProgress { report, pulse }) = groups.get(&group) else {
            return ProgressReport::default();
        };
        match pulse.read() {
            Some((inside, sequence)) => ProgressReport { inside, sequence, ..report.clone() },
            None => report.clone(),
        }
    }

    fn groups(&self) -> MutexGuard<'_, HashMap<GroupId, GroupProgress>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, group: GroupId, change: impl FnOnce(&mut ProgressReport)) {
        change(&mut self.groups().entry(group).or_default().report);
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
    /// Follows the chain of waits from `peer` to its end. `reports` has the report of each world
    /// rank, `None` of ranks that did not answer.
    pub fn follow(peer: usize, reports: &[Option<ProgressReport>]) -> Self {
        let mut path: Vec<(usize, ProgressReport)> = Vec::new();
        let mut rank = peer;
        loop {
            if let Some(start) = path.iter().position(|(seen, _)| *seen == rank) {
                return Self::Cycle { ranks: path.split_off(start) };
            }
            let Some(Some(report)) = reports.get(rank).cloned() else {
                return Self::Silent { rank };
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
    /// The rank that holds the others up; `None` of a cycle, in which no rank is to blame alone.
    pub fn culprit(&self) -> Option<usize> {
        match self {
            Self::Silent { rank } | Self::Outside { rank, .. } | Self::Busy { rank, .. } => {
                Some(*rank)
            }
            Self::Cycle { .. } => None,
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
                    "rank {rank} does not answer: its process is stopped, or has no processor"
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

    fn inside(awaits: Option<usize>) -> Option<ProgressReport> {
        Some(ProgressReport { inside: true, sequence: 7, operation: "barrier".to_owned(), awaits })
    }

    #[test]
    fn the_path_ends_at_the_straggler() {
        let outside = Some(ProgressReport {
            inside: false,
            sequence: 6,
            operation: "barrier".to_owned(),
            awaits: None,
        });
        let reports = [inside(Some(1)), inside(Some(2)), outside, inside(None), None];
        let said = |peer| Diagnosis::follow(peer, &reports).to_string();
        assert_eq!(
            said(1),
            "rank 2 is outside the library; its last call was barrier (operation 6)"
        );
        assert_eq!(said(3), "rank 3 is in barrier (operation 7)");
        assert_eq!(said(4), "rank 4 does not answer: its process is stopped, or has no processor");
        assert_eq!(said(9), "rank 9 does not answer: its process is stopped, or has no processor");
    }

    #[test]
    fn the_pulse_overrules_the_report() {
        let progress = ProgressTable::default();
        let pulse = progress.pulse(GroupId::WORLD);
        progress.enter(GroupId::WORLD, 3, "barrier".to_owned());
        assert_eq!(
            progress.report(GroupId::WORLD),
            inside(None).map(|report| ProgressReport { sequence: 3, ..report }).unwrap()
        );
        pulse.enter(5);
        assert_eq!(progress.report(GroupId::WORLD).to_string(), "is in barrier (operation 5)");
        pulse.exit(5);
        let said = progress.report(GroupId::WORLD).to_string();
        assert_eq!(said, "is outside the library; its last call was barrier (operation 5)");
    }

    #[test]
    fn a_cycle_is_named_without_the_ranks_that_lead_to_it() {
        let reports = [inside(Some(1)), inside(Some(2)), inside(Some(1))];
        let Diagnosis::Cycle { ranks } = Diagnosis::follow(0, &reports) else { panic!("no cycle") };
        assert_eq!(ranks.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [1, 2]);
    }
}
