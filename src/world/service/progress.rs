//! Where every rank is: what an executor notes once it has become slow, and what follows from
//! everybody's notes.

use super::GroupId;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a rank noted last about what it does in a group.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct ProgressReport {
    /// Whether it is in a call of the library.
    pub inside: bool,
    /// Which operation.
    pub sequence: u64,
    /// What it called, in words.
    pub operation: String,
    /// The rank that it waits for.
    pub awaits: Option<usize>,
}

/// Where a rank is within its calls, in one word that costs a call next to nothing: zero before the
/// first one, odd inside and even after an operation.
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

    /// Operation `sequence` has not begun, whatever was said before.
    pub fn back(&self, sequence: u64) {
        self.0.store(2 * sequence, Ordering::Relaxed);
    }

    /// Whether the rank is in a call, and which operation that is or was; `None` before the first.
    fn read(&self) -> Option<(bool, u64)> {
        let word = self.0.load(Ordering::Relaxed);
        (word > 0).then(|| (word % 2 == 1, (word - 1) / 2))
    }
}

/// One rank's notes, a place for each group. Written on cold paths, read by the service thread when
/// another rank asks.
#[derive(Debug, Default)]
pub struct ProgressTable(Mutex<HashMap<GroupId, GroupProgress>>);

#[derive(Debug, Default)]
struct GroupProgress {
    place: ProgressReport,
    pulse: Arc<Pulse>,
}

impl ProgressTable {
    /// GroupProgress that `operation`, number `sequence`, has begun, and that those after it are like it.
    pub fn enter(&self, group: GroupId, sequence: u64, operation: String) {
        self.change(group, |place| {
            *place = ProgressReport { inside: true, sequence, operation, awaits: None }
        });
    }

    /// GroupProgress whom the current operation waits for (a world rank).
    pub fn awaits(&self, group: GroupId, peer: Option<usize>) {
        self.change(group, |place| place.awaits = peer);
    }

    /// GroupProgress that the call is over; what it was stays known.
    pub fn exit(&self, group: GroupId) {
        self.change(group, |place| (place.inside, place.awaits) = (false, None));
    }

    /// The word by which the calls of `group` tell where they are; it overrules what was noted.
    pub fn pulse(&self, group: GroupId) -> Arc<Pulse> {
        Arc::clone(&self.notes().entry(group).or_default().pulse)
    }

    /// The notes about `group`; an empty place if there are none.
    pub fn place(&self, group: GroupId) -> ProgressReport {
        let notes = self.notes();
        let Some(GroupProgress { place, pulse }) = notes.get(&group) else {
            return ProgressReport::default();
        };
        match pulse.read() {
            Some((inside, sequence)) => ProgressReport { inside, sequence, ..place.clone() },
            None => place.clone(),
        }
    }

    fn notes(&self) -> MutexGuard<'_, HashMap<GroupId, GroupProgress>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, group: GroupId, change: impl FnOnce(&mut ProgressReport)) {
        change(&mut self.notes().entry(group).or_default().place);
    }
}

/// Why a wait does not end, as far as everybody's notes tell.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Diagnosis {
    /// This rank's process does not answer: it is stopped, or starved.
    Silent {
        /// Who.
        rank: usize,
    },
    /// This rank is not in a call of the library.
    Outside {
        /// Who.
        rank: usize,
        /// What it did last.
        place: ProgressReport,
    },
    /// This rank is in a call and waits for nobody that it knows of.
    Busy {
        /// Who.
        rank: usize,
        /// What it does.
        place: ProgressReport,
    },
    /// These ranks wait for one another, each for the next and the last for the first.
    Cycle {
        /// Who, and in what.
        ranks: Vec<(usize, ProgressReport)>,
    },
}

impl Diagnosis {
    /// Follows "whom do you await" from `peer` on, to the rank that holds up everybody. `places`
    /// has a place per world rank, `None` of those that did not answer.
    pub fn follow(peer: usize, places: &[Option<ProgressReport>]) -> Self {
        let mut path: Vec<(usize, ProgressReport)> = Vec::new();
        let mut rank = peer;
        loop {
            if let Some(start) = path.iter().position(|(seen, _)| *seen == rank) {
                return Self::Cycle { ranks: path.split_off(start) };
            }
            let Some(Some(place)) = places.get(rank).cloned() else { return Self::Silent { rank } };
            if !place.inside {
                return Self::Outside { rank, place };
            }
            let Some(next) = place.awaits else { return Self::Busy { rank, place } };
            path.push((rank, place));
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
            Self::Outside { rank, place } | Self::Busy { rank, place } => {
                write!(f, "rank {rank} {place}")
            }
            Self::Cycle { ranks } => {
                f.write_str("ranks wait for one another:")?;
                for (rank, place) in ranks {
                    let next = place.awaits.unwrap_or_default();
                    write!(f, " rank {rank} {place} and awaits rank {next};")?;
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
        let places = [inside(Some(1)), inside(Some(2)), outside, inside(None), None];
        let said = |peer| Diagnosis::follow(peer, &places).to_string();
        assert_eq!(
            said(1),
            "rank 2 is outside the library; its last call was barrier (operation 6)"
        );
        assert_eq!(said(3), "rank 3 is in barrier (operation 7)");
        assert_eq!(said(4), "rank 4 does not answer: its process is stopped, or has no processor");
        assert_eq!(said(9), "rank 9 does not answer: its process is stopped, or has no processor");
    }

    #[test]
    fn the_pulse_overrules_the_notes() {
        let progress = ProgressTable::default();
        let pulse = progress.pulse(GroupId::WORLD);
        progress.enter(GroupId::WORLD, 3, "barrier".to_owned());
        assert_eq!(
            progress.place(GroupId::WORLD),
            inside(None).map(|place| ProgressReport { sequence: 3, ..place }).unwrap()
        );
        pulse.enter(5);
        assert_eq!(progress.place(GroupId::WORLD).to_string(), "is in barrier (operation 5)");
        pulse.exit(5);
        let said = progress.place(GroupId::WORLD).to_string();
        assert_eq!(said, "is outside the library; its last call was barrier (operation 5)");
    }

    #[test]
    fn a_cycle_is_named_without_the_way_to_it() {
        let places = [inside(Some(1)), inside(Some(2)), inside(Some(1))];
        let Diagnosis::Cycle { ranks } = Diagnosis::follow(0, &places) else { panic!("no cycle") };
        assert_eq!(ranks.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [1, 2]);
    }
}
