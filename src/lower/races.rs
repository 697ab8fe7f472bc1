//! Whether ranks that reach one another's memory could touch a byte at the same time.
//!
//! Every rank has a vector clock (L. Lamport, CACM 1978; C. Fidge, F. Mattern, 1988). A message
//! carries the sender's clock, and its consumption carries the reader's. Two accesses to one span
//! are in order if the later rank's clock has seen the earlier one. Messages and their receivers
//! are constants, so the clocks are those of every run, however fast each rank is: one run shows
//! that there is no race, or where one is.

use super::folds::{FusedFolds, Origin};
use super::order::Matching;
use crate::schedule::{Placement, Span};
use std::collections::HashMap;

/// By rank: how many of its folds have happened before.
type VectorClock = Vec<u64>;

/// The accesses to one window of a span of a rank.
#[derive(Default)]
struct Accesses {
    /// The last write: rank, and its time there.
    written: Option<(usize, u64)>,
    /// By rank: the time of its last read since.
    read: HashMap<usize, u64>,
}

/// The clocks of all ranks, and their accesses.
pub(super) struct RaceDetector<'a> {
    folds: &'a FusedFolds,
    matching: &'a Matching,
    placement: Placement,
    clocks: Vec<VectorClock>,
    /// By fold and window: the clock of its rank, once it had run.
    done: HashMap<(usize, u32), VectorClock>,
    touched: HashMap<(usize, Span, u32), Accesses>,
}

impl<'a> RaceDetector<'a> {
    /// For folds of all ranks, which have touched nothing yet.
    pub(super) fn new(folds: &'a FusedFolds, matching: &'a Matching, placement: Placement) -> Self {
        let world = folds.ranks().len();
        Self {
            folds,
            matching,
            placement,
            clocks: vec![vec![0; world]; world],
            done: HashMap::new(),
            touched: HashMap::new(),
        }
    }

    /// Executes window `k` of a fold of a rank, which has waited for the receivers at the places
    /// `flushes`. Returns false if it touches what another rank may touch at the same time.
    pub(super) fn execute(&mut self, rank: usize, fold: usize, k: u32, flushes: &[usize]) -> bool {
        let matching = self.matching;
        let senders = matching.senders(self.folds, fold).map(|(_, sent)| sent);
        let awaited = senders.chain(flushes.iter().map(|place| matching.taken(*place)));
        let clocks = awaited.filter_map(|fold| self.done.get(&(fold, k)));
        let mut clock = clocks.fold(self.clocks[rank].clone(), joined);
        clock[rank] += 1;
        let is_ordered = self.reads(rank, fold, k, &clock) && self.writes(rank, fold, k, &clock);
        self.done.insert((fold, k), clock.clone());
        self.clocks[rank] = clock;
        is_ordered
    }

    fn reads(&mut self, rank: usize, fold: usize, k: u32, clock: &VectorClock) -> bool {
        let folds = self.folds;
        let passes_on = folds.pushes(fold).next().is_some();
        folds.sources(fold).iter().all(|source| {
            let read = match source {
                Origin::Local(span) => Some((rank, *span)),
                // Pushed data is read only to be pushed on.
                Origin::Pushed(_) => Some((rank, folds.shape(fold))).filter(|_| passes_on),
                _ => source.of_peer(),
            };
            let Some((owner, span)) = read else { return true };
            let accesses = self.accesses(owner, span, k);
            accesses.read.insert(rank, clock[rank]);
            accesses.written.is_none_or(|(writer, time)| clock[writer] >= time)
        })
    }

    fn writes(&mut self, rank: usize, fold: usize, k: u32, clock: &VectorClock) -> bool {
        let folds = self.folds;
        let own = folds.changed(fold, self.placement).map(|span| (rank, span));
        own.into_iter().chain(folds.pushes(fold)).all(|(owner, span)| {
            let accesses = self.accesses(owner, span, k);
            let written = accesses.written.replace((rank, clock[rank]));
            let mut earlier = accesses.read.drain().chain(written);
            earlier.all(|(other, time)| clock[other] >= time)
        })
    }

    fn accesses(&mut self, owner: usize, span: Span, k: u32) -> &mut Accesses {
        self.touched.entry((owner, span.in_place(self.placement), k)).or_default()
    }
}

fn joined(mut clock: VectorClock, other: &VectorClock) -> VectorClock {
    clock.iter_mut().zip(other).for_each(|(time, other)| *time = (*time).max(*other));
    clock
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{input, output};

    /// Folds of two ranks: those of rank 0, then those of rank 1.
    fn two_ranks(ranks: [&dyn Fn(&mut FusedFolds); 2]) -> (FusedFolds, Matching) {
        let mut folds = FusedFolds::reaching(0..2, 0);
        for add in ranks {
            add(&mut folds);
            folds.end_rank();
        }
        let matching = Matching::new(&folds).unwrap();
        (folds, matching)
    }

    /// Runs these folds, each with its rank and with the receivers that it waits for. True if no two
    /// of them race.
    fn is_ordered(
        (folds, matching): &(FusedFolds, Matching),
        placement: Placement,
        runs: &[(usize, usize, &[usize])],
    ) -> bool {
        let mut races = RaceDetector::new(folds, matching, placement);
        let mut runs = runs.iter();
        runs.all(|(rank, fold, flushes)| races.execute(*rank, *fold, 0, flushes))
    }

    #[test]
    fn overwriting_what_a_peer_may_read_is_a_race_without_a_wait() {
        let folds = two_ranks([
            &|folds| {
                folds.store(output(0), &[Origin::Local(input(0))]);
                folds.reach_last(1, None);
                folds.store(output(0), &[Origin::Local(input(1))]);
            },
            &|folds| folds.store(output(0), &[Origin::Pulled(0, output(0))]),
        ]);
        for (flushes, ordered) in [(&[0][..], true), (&[], false)] {
            let runs = [(0, 0, &[][..]), (1, 2, &[]), (0, 1, flushes)];
            assert_eq!(is_ordered(&folds, Placement::Apart, &runs), ordered);
        }
    }

    #[test]
    fn reading_before_the_message_is_a_race() {
        let early = two_ranks([
            &|folds| {
                folds.add(None, input(0), [Origin::Local(input(0))]);
                folds.reach_last(1, Some(output(0)));
            },
            &|folds| {
                folds.store(output(1), &[Origin::Local(output(0))]);
                folds.store(output(0), &[Origin::Pushed(0)]);
            },
        ]);
        let runs = [(0, 0, &[][..]), (1, 1, &[])];
        assert!(is_ordered(&early, Placement::Apart, &runs[..1]));
        assert!(!is_ordered(&early, Placement::Apart, &runs));
    }

    #[test]
    fn input_that_is_lent_in_place_must_not_be_overwritten() {
        let folds =
            two_ranks([&|folds| folds.store(output(0), &[Origin::Local(input(1))]), &|folds| {
                folds.store(output(1), &[Origin::Lent(0, input(0))])
            }]);
        let runs = [(1, 1, &[][..]), (0, 0, &[])];
        for (placement, ordered) in [(Placement::Apart, true), (Placement::InPlace, false)] {
            assert_eq!(is_ordered(&folds, placement, &runs), ordered);
        }
    }
}
