//! Zig-zag: which positions of a sequence each rank of the context axis takes, so that all
//! ranks do equal work in causal attention.
//!
//! What it does: position `i` looks at the `i + 1` positions up to itself, so the last ranks of a
//! plain division do most of the work and the others wait for them. Zig-zag cuts the sequence into
//! twice as many chunks as ranks and gives rank `r` the chunks `r` and `2 * ranks - 1 - r`: one
//! with few pairs of positions and one with many.
//!
//! ```text
//! 4 ranks   contiguous  0 0 1 1 2 2 3 3     most pairs of a rank / mean: 1.73 (T = 64)
//!           zig-zag     0 1 2 3 3 2 1 0                                  1.00
//! ```
//!
//! What is sharded: positions, and with them all activations. Which collective runs where: none;
//! this is arithmetic. Cost: none at run time; two pieces of a sequence instead of one, so twice as
//! many, smaller, products in attention.

use std::ops::Range;

/// How positions are divided among the ranks of the context axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PositionDivision {
    /// Rank `r` has the `r`-th part.
    Contiguous,
    /// Rank `r` has the parts `r` and `2 * ranks - 1 - r` of twice as many.
    ZigZag,
}

impl PositionDivision {
    /// Into how many chunks `ranks` ranks cut a sequence.
    pub fn chunks(self, ranks: usize) -> usize {
        match self {
            Self::Contiguous => ranks,
            // One rank has the whole in either case; two halves would be the same positions in two
            // pieces.
            Self::ZigZag if ranks == 1 => 1,
            Self::ZigZag => 2 * ranks,
        }
    }

    /// The positions of `rank`, piece by piece, ascending.
    ///
    /// # Panics
    /// If the chunks do not divide the sequence.
    pub fn pieces(self, rank: usize, ranks: usize, sequence: usize) -> Vec<Range<usize>> {
        let chunks = self.chunks(ranks);
        assert!(
            sequence.is_multiple_of(chunks),
            "{chunks} chunks do not divide {sequence} positions"
        );
        let length = sequence / chunks;
        let mine = if chunks == ranks { vec![rank] } else { vec![rank, chunks - 1 - rank] };
        mine.into_iter().map(|chunk| chunk * length..(chunk + 1) * length).collect()
    }

    /// The positions of `rank`, in the order in which it keeps them.
    ///
    /// # Panics
    /// As [`pieces`](Self::pieces).
    pub fn positions(self, rank: usize, ranks: usize, sequence: usize) -> Vec<usize> {
        self.pieces(rank, ranks, sequence).into_iter().flatten().collect()
    }

    /// How many pairs (query, key at or before it) each rank has: its work in attention.
    ///
    /// # Panics
    /// As [`pieces`](Self::pieces).
    pub fn pairs(self, ranks: usize, sequence: usize) -> Vec<usize> {
        let work = |rank| {
            self.positions(rank, ranks, sequence).into_iter().map(|position| position + 1).sum()
        };
        (0..ranks).map(work).collect()
    }

    /// The work of the busiest rank over the mean: 1 is fair.
    ///
    /// # Panics
    /// As [`pieces`](Self::pieces).
    pub fn imbalance(self, ranks: usize, sequence: usize) -> f64 {
        let pairs = self.pairs(ranks, sequence);
        let mean = pairs.iter().sum::<usize>() as f64 / ranks as f64;
        *pairs.iter().max().expect("there is a rank") as f64 / mean
    }
}

/// What a piece of queries sees of a piece of keys of the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// The keys are all later.
    Nothing,
    /// The same positions: each query sees the keys up to itself.
    Triangle,
    /// The keys are all earlier.
    Everything,
}

impl Visibility {
    /// What `queries` see of `keys`.
    ///
    /// # Panics
    /// If they overlap without being the same: no layout cuts so.
    pub fn of(queries: &Range<usize>, keys: &Range<usize>) -> Self {
        match () {
            () if queries == keys => Self::Triangle,
            () if keys.end <= queries.start => Self::Everything,
            () if queries.end <= keys.start => Self::Nothing,
            () => panic!("{queries:?} and {keys:?} overlap"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_has_one_owner() {
        for layout in [PositionDivision::Contiguous, PositionDivision::ZigZag] {
            for ranks in [1, 2, 3, 4, 8] {
                let mut all: Vec<usize> =
                    (0..ranks).flat_map(|rank| layout.positions(rank, ranks, 48)).collect();
                all.sort_unstable();
                assert_eq!(all, (0..48).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn zig_zag_is_exactly_fair_and_a_plain_division_is_not() {
        for ranks in [2, 4, 8] {
            assert_eq!(PositionDivision::ZigZag.imbalance(ranks, 64), 1.0);
            // The last rank's share: (2 ranks - 1) / ranks as the sequence grows.
            let plain = PositionDivision::Contiguous.imbalance(ranks, 4096);
            assert!((plain - (2.0 - 1.0 / ranks as f64)).abs() < 1e-3, "{ranks} ranks: {plain}");
        }
        assert!((PositionDivision::Contiguous.imbalance(4, 64) - 1.738).abs() < 1e-3);
    }

    #[test]
    fn sight_is_what_the_causal_mask_says() {
        let pieces: Vec<_> =
            (0..4).flat_map(|rank| PositionDivision::ZigZag.pieces(rank, 4, 32)).collect();
        for queries in &pieces {
            for keys in &pieces {
                let pairs: usize =
                    queries.clone().map(|q| keys.clone().filter(|k| *k <= q).count()).sum();
                let expected = match Visibility::of(queries, keys) {
                    Visibility::Nothing => 0,
                    Visibility::Triangle => 4 * 5 / 2,
                    Visibility::Everything => 16,
                };
                assert_eq!(pairs, expected);
            }
        }
    }
}
