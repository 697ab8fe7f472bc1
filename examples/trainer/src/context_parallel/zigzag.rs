//! Zig-zag: the positions of a sequence are divided over the context axis so that all ranks do
//! equal work in causal attention.
//!
//! What it does: position `i` attends to the `i + 1` positions up to itself. So in a contiguous
//! division the last ranks do most of the work, and the others wait for them. Zig-zag cuts the
//! sequence into twice as many chunks as ranks. Rank `r` has the chunks `r` and
//! `2 * ranks - 1 - r`: one with few pairs of positions and one with many.
//!
//! ```text
//! 4 ranks   contiguous  0 0 1 1 2 2 3 3     most pairs of a rank / mean: 1.74 (T = 64)
//!           zig-zag     0 1 2 3 3 2 1 0                                  1.00
//! ```
//!
//! What is sharded: positions, and with them all activations. Which collective runs where: none.
//! Cost: nothing is sent. A rank has two pieces of a sequence instead of one, so attention has more
//! and smaller matrix products.

use std::ops::Range;

/// How positions are divided among the ranks of the context axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PositionDivision {
    /// The sequence is cut into `ranks` chunks, and rank `r` has chunk `r`.
    Contiguous,
    /// The sequence is cut into `2 * ranks` chunks, and rank `r` has chunks `r` and
    /// `2 * ranks - 1 - r`.
    ZigZag,
}

impl PositionDivision {
    /// Returns the number of chunks into which a sequence is cut for `ranks` ranks.
    pub fn chunks(self, ranks: usize) -> usize {
        match self {
            Self::Contiguous => ranks,
            // A single rank has the whole sequence, in one piece.
            Self::ZigZag if ranks == 1 => 1,
            Self::ZigZag => 2 * ranks,
        }
    }

    /// Returns the positions of `rank` as ascending ranges, one for each piece.
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

    /// Returns the positions of `rank`, in the order in which the rank keeps them.
    ///
    /// # Panics
    /// As [`pieces`](Self::pieces).
    pub fn positions(self, rank: usize, ranks: usize, sequence: usize) -> Vec<usize> {
        self.pieces(rank, ranks, sequence).into_iter().flatten().collect()
    }
}

/// Which keys of a piece the queries of a piece of the same length attend to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// None: all keys are later.
    Nothing,
    /// Each query attends to the keys up to itself: both pieces are the same positions.
    Triangle,
    /// All: all keys are earlier.
    Everything,
}

impl Visibility {
    /// Returns which of the positions `keys` the positions `queries` attend to.
    ///
    /// # Panics
    /// If the ranges overlap but are not equal, which no [`PositionDivision`] gives.
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

    /// The work of the busiest rank divided by the mean. The work of a rank in attention is the number
    /// of its pairs of a query and a key at or before it.
    fn imbalance(division: PositionDivision, ranks: usize, sequence: usize) -> f64 {
        let pairs = |rank| {
            let positions = division.positions(rank, ranks, sequence).into_iter();
            positions.map(|position| position + 1).sum::<usize>()
        };
        let pairs: Vec<usize> = (0..ranks).map(pairs).collect();
        let mean = pairs.iter().sum::<usize>() as f64 / ranks as f64;
        *pairs.iter().max().unwrap() as f64 / mean
    }

    #[test]
    fn zig_zag_divides_work_equally_and_a_contiguous_division_does_not() {
        for ranks in [2, 4, 8] {
            assert_eq!(imbalance(PositionDivision::ZigZag, ranks, 64), 1.0);
            // The last rank's share: (2 ranks - 1) / ranks as the sequence grows.
            let contiguous = imbalance(PositionDivision::Contiguous, ranks, 4096);
            assert!(
                (contiguous - (2.0 - 1.0 / ranks as f64)).abs() < 1e-3,
                "{ranks} ranks: {contiguous}"
            );
        }
        assert!((imbalance(PositionDivision::Contiguous, 4, 64) - 1.738).abs() < 1e-3);
    }

    #[test]
    fn visibility_is_that_of_the_causal_mask() {
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
