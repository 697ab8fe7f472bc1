//! Worlds that are no power of two: extra ranks are folded into partners before, and get the result
//! after.
//!
//! Algorithms that double distances need `2^k` *core* ranks. Of `2^k + e` ranks, the first `2 e`
//! form pairs of neighbours; the lower rank of a pair is a core rank and the upper one is *extra*.
//! All other ranks are core ranks without an extra rank. An extra rank sends its input to its
//! partner before the algorithm, and receives its result from it afterwards. The ranks of
//! consecutive core ranks, with their extra ranks, are consecutive, so partners can combine their
//! parts in the order of the ranks.
//!
//! ```text
//! rank    0   1   2   3   4   5        six ranks: four core ranks and two extra ranks
//! core    0 <-0   1 <-1   2   3
//! ```
//!
//! **Cost**: one more step before and one after, with a whole vector each where the algorithm
//! combines.
//!
//! **Source**: R. Rabenseifner, J. L. Traff, "More efficient reduction algorithms for
//! non-power-of-two number of processors in message-passing parallel systems", EuroPVM/MPI 2004 (as
//! the method that the paper improves on).

use super::steps::{receive, send};
use crate::schedule::{Schedule, input};
use std::ops::Range;

/// The largest power of two of ranks that fits into a world.
#[derive(Clone, Copy)]
pub(super) struct CoreRanks {
    /// How many core ranks there are: a power of two.
    pub(super) count: usize,
    extra: usize,
}

/// A rank of the algorithm itself.
#[derive(Clone, Copy)]
pub(super) struct CoreRank {
    /// Its number among the core ranks.
    pub(super) index: usize,
    /// The extra rank that is folded into it, if there is one.
    pub(super) extra: Option<usize>,
}

impl CoreRanks {
    /// The core ranks of `world` ranks.
    pub(super) const fn new(world: usize) -> Self {
        let count = 1 << world.ilog2();
        Self { count, extra: world - count }
    }

    /// How often the core ranks can be halved.
    pub(super) const fn levels(&self) -> usize {
        self.count.ilog2() as usize
    }

    /// The rank of core rank `index`; for `count` itself, the number of all ranks.
    pub(super) const fn rank(&self, index: usize) -> usize {
        if index < self.extra { 2 * index } else { index + self.extra }
    }

    /// The ranks of the core ranks `indices` and of their extra ranks.
    pub(super) const fn ranks(&self, indices: Range<usize>) -> Range<usize> {
        self.rank(indices.start)..self.rank(indices.end)
    }

    /// `rank` as a core rank. `Err` has the partner of an extra rank.
    pub(super) const fn find(&self, rank: usize) -> Result<CoreRank, usize> {
        match (rank < 2 * self.extra, rank % 2) {
            (true, 0) => Ok(CoreRank { index: rank / 2, extra: Some(rank + 1) }),
            (true, _) => Err(rank - 1),
            (false, _) => Ok(CoreRank { index: rank - self.extra, extra: None }),
        }
    }
}

/// The steps of an extra rank: it sends its whole input of `chunks` chunks to its partner, which
/// sends the chunks `results` back.
pub(super) fn folded(
    partner: usize,
    chunks: usize,
    results: impl IntoIterator<Item = usize>,
) -> Schedule {
    let steps = send(partner, (0..chunks).map(input)).chain(receive(partner, results));
    Schedule::new(chunks, steps.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_has_one_role() {
        for world in 1..100 {
            let core_ranks = CoreRanks::new(world);
            let mut found = vec![0; world];
            for index in 0..core_ranks.count {
                for rank in core_ranks.ranks(index..index + 1) {
                    found[rank] += 1;
                    match core_ranks.find(rank) {
                        Ok(core) => assert_eq!(core.index, index),
                        Err(partner) => assert_eq!(partner, core_ranks.rank(index)),
                    }
                }
            }
            assert!(found.iter().all(|&times| times == 1), "world {world}");
        }
    }
}
