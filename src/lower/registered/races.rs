//! Whether ranks that reach one another's memory could touch a byte at the same time.
//!
//! Every rank has a vector clock (L. Lamport, CACM 1978; C. Fidge, F. Mattern, 1988). A message
//! carries the sender's clock, and what a rank has consumed carries the reader's. Two accesses to
//! one span are in order if the later rank's clock has seen the earlier one. Messages and their
//! receivers are constants, so the clocks are those of every run, however fast each rank is: one
//! run shows that there is no race, or where one is.

use super::fold::{FoldId, ReachFold, ReachSource};
use crate::schedule::{Placement, Span};
use std::collections::HashMap;

/// By rank: how many of its folds have happened before.
type VectorClock = Vec<u64>;

/// A window of a fold.
type Execution = (FoldId, u32);

/// The accesses to one window of a span of a rank.
#[derive(Default)]
struct Accesses {
    /// The last write: rank, and its time there.
    written: Option<(usize, u64)>,
    /// By rank: the time of its last read since.
    read: HashMap<usize, u64>,
}

/// The clocks of all ranks, and what they have touched.
pub(super) struct RaceDetector {
    placement: Placement,
    clocks: Vec<VectorClock>,
    /// The clock of the writer, when it published.
    published: HashMap<Execution, VectorClock>,
    /// The clocks of the readers together, when they consumed.
    consumed: HashMap<Execution, VectorClock>,
    touched: HashMap<(usize, Span, u32), Accesses>,
}

impl RaceDetector {
    pub(super) fn new(world: usize, placement: Placement) -> Self {
        Self {
            placement,
            clocks: vec![vec![0; world]; world],
            published: HashMap::new(),
            consumed: HashMap::new(),
            touched: HashMap::new(),
        }
    }

    /// Executes window `k` of `fold`. Returns false if it touches what another rank may touch at the
    /// same time.
    pub(super) fn execute(&mut self, id: FoldId, k: u32, fold: &ReachFold) -> bool {
        let rank = id.0;
        let messages = fold.senders().filter_map(|from| self.published.get(&(from, k)));
        let drains = fold.drains.iter().filter_map(|read| self.consumed.get(&((rank, *read), k)));
        let mut clock = messages.chain(drains).fold(self.clocks[rank].clone(), joined);
        clock[rank] += 1;
        let is_ordered = self.reads(rank, k, fold, &clock) && self.writes(rank, k, fold, &clock);
        for from in fold.senders() {
            let consumed = self.consumed.entry((from, k)).or_insert_with(|| clock.clone());
            *consumed = joined(std::mem::take(consumed), &clock);
        }
        self.published.insert((id, k), clock.clone());
        self.clocks[rank] = clock;
        is_ordered
    }

    fn reads(&mut self, rank: usize, k: u32, fold: &ReachFold, clock: &VectorClock) -> bool {
        fold.sources.iter().all(|source| {
            let (owner, span) = match *source {
                ReachSource::Own(span) => (rank, span),
                ReachSource::Pulled((peer, _), span) | ReachSource::Lent(peer, span) => {
                    (peer, span)
                }
                // What was pushed here is read only to be pushed on.
                ReachSource::Pushed(_) if !fold.pushes.is_empty() => (rank, fold.shape),
                ReachSource::Message(_) | ReachSource::Pushed(_) => return true,
            };
            let accesses = self.accesses(owner, span, k);
            accesses.read.insert(rank, clock[rank]);
            accesses.written.is_none_or(|(writer, time)| clock[writer] >= time)
        })
    }

    fn writes(&mut self, rank: usize, k: u32, fold: &ReachFold, clock: &VectorClock) -> bool {
        let is_stored = !fold.is_pushed() && !fold.is_self_copy(self.placement);
        let own = fold.into.filter(|_| is_stored).map(|span| (rank, span));
        own.into_iter().chain(fold.pushes.iter().copied()).all(|(owner, span)| {
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

    fn fold(into: Option<Span>, sources: &[ReachSource], to: &[usize]) -> ReachFold {
        let (sources, to) = (sources.to_vec(), to.to_vec());
        let shape = output(0);
        ReachFold { into, sources, to, pushes: Vec::new(), drains: Vec::new(), shape }
    }

    /// Rank 1 reads rank 0's output, and rank 0 then overwrites it: with and without a wait.
    fn overwritten(drains: &[usize]) -> bool {
        let mut races = RaceDetector::new(2, Placement::Apart);
        let first = fold(Some(output(0)), &[ReachSource::Own(input(0))], &[1]);
        let reads = fold(Some(output(0)), &[ReachSource::Pulled((0, 0), output(0))], &[]);
        let mut again = fold(Some(output(0)), &[ReachSource::Own(input(1))], &[]);
        again.drains = drains.to_vec();
        races.execute((0, 0), 0, &first)
            && races.execute((1, 0), 0, &reads)
            && races.execute((0, 1), 0, &again)
    }

    #[test]
    fn overwriting_what_a_peer_may_read_is_a_race_without_a_wait() {
        assert!(overwritten(&[0]));
        assert!(!overwritten(&[]));
    }

    #[test]
    fn reading_before_the_message_is_a_race() {
        let mut races = RaceDetector::new(2, Placement::Apart);
        let mut pushes = fold(None, &[ReachSource::Own(input(0))], &[1]);
        pushes.pushes = vec![(1, output(0))];
        let reads = fold(Some(output(1)), &[ReachSource::Own(output(0))], &[]);
        assert!(races.execute((0, 0), 0, &pushes));
        assert!(!races.execute((1, 0), 0, &reads));
    }

    #[test]
    fn input_that_is_lent_in_place_must_not_be_overwritten() {
        for (placement, is_ordered) in [(Placement::Apart, true), (Placement::InPlace, false)] {
            let mut races = RaceDetector::new(2, placement);
            let lent = fold(Some(output(1)), &[ReachSource::Lent(0, input(0))], &[]);
            let stores = fold(Some(output(0)), &[ReachSource::Own(input(1))], &[]);
            assert!(races.execute((1, 0), 0, &lent));
            assert_eq!(races.execute((0, 0), 0, &stores), is_ordered);
        }
    }
}
