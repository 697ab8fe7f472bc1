//! Random counts of elements.

use super::common::Lot;
use maypole::schedule::collective::{Collective, HeldChunks};
use std::ops::Range;

/// The counts of one call.
#[derive(Clone, Debug)]
pub(crate) enum Lengths {
    /// Of the vector, or of the block of every rank.
    Even(usize),
    /// Of each rank's block.
    Blocks(Vec<usize>),
    /// `[s][r]`: from rank `s` to rank `r`.
    Pairs(Vec<Vec<usize>>),
}

/// One of a rank's two buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    Input,
    Output,
}

impl Lengths {
    pub(crate) fn draw(lot: &mut Lot, collective: Collective, size: usize, world: usize) -> Self {
        let counts = |lot: &mut Lot| (0..world).map(|_| draw_little(lot)).collect::<Vec<_>>();
        match collective {
            Collective::Barrier => Self::Even(0),
            Collective::AllToAll if lot.below(2) == 0 => {
                Self::Pairs((0..world).map(|_| counts(lot)).collect())
            }
            Collective::AllToAll => Self::Even(draw_count(lot, size, world)),
            _ if collective.is_blocked() && lot.below(2) == 0 => Self::Blocks(counts(lot)),
            _ => Self::Even(draw_count(lot, size, if collective.is_blocked() { world } else { 1 })),
        }
    }

    /// True if ranks differ, so that the call is one of the variable-count forms.
    pub(crate) fn differ(&self) -> bool {
        !matches!(self, Self::Even(_))
    }

    /// Where the blocks of buffer `side` of `rank` begin, and at the end where the last block ends.
    pub(crate) fn starts(
        &self,
        collective: Collective,
        world: usize,
        rank: usize,
        side: Side,
    ) -> Vec<usize> {
        let counts: Vec<usize> = match (self, side) {
            (Self::Even(count), _) if collective.is_blocked() => vec![*count; world],
            (Self::Even(count), _) => vec![*count],
            (Self::Blocks(counts), _) => counts.clone(),
            (Self::Pairs(rows), Side::Input) => rows[rank].clone(),
            (Self::Pairs(rows), Side::Output) => rows.iter().map(|row| row[rank]).collect(),
        };
        let ends = counts.iter().scan(0, |end, count| {
            *end += count;
            Some(*end)
        });
        std::iter::once(0).chain(ends).collect()
    }

    /// Elements in all, of the longest buffer.
    pub(crate) fn total(&self) -> usize {
        match self {
            Self::Even(count) => *count,
            Self::Blocks(counts) => counts.iter().sum(),
            Self::Pairs(rows) => rows.iter().flatten().sum(),
        }
    }
}

/// The elements of the whole that `held` holds, whose blocks begin at `starts`.
pub(crate) fn elements(held: HeldChunks, starts: &[usize]) -> Range<usize> {
    match held {
        HeldChunks::Nothing => 0..0,
        HeldChunks::One(rank) => starts[rank]..starts[rank + 1],
        HeldChunks::All => 0..starts[starts.len() - 1],
    }
}

const LITTLE: [usize; 10] = [0, 1, 2, 3, 5, 7, 8, 13, 31, 64];
const PRIMES: [usize; 5] = [97, 251, 1009, 2053, 4099];

/// Nothing, little, or a prime.
fn draw_little(lot: &mut Lot) -> usize {
    match lot.below(8) {
        0..2 => 0,
        2..7 => LITTLE[lot.below(LITTLE.len())],
        _ => PRIMES[lot.below(3)],
    }
}

/// Nothing, little, a prime, around a window, or several windows.
fn draw_count(lot: &mut Lot, size: usize, blocks: usize) -> usize {
    match lot.below(80) {
        0..40 => LITTLE[lot.below(LITTLE.len())],
        40..62 => PRIMES[lot.below(PRIMES.len())] / blocks.min(2),
        62..76 => lot.below(40_000) / size / blocks,
        76..79 => (65_537 + lot.below(250_000)) / size / blocks,
        _ => ((1 << 20) + lot.below(1 << 19)) / size / blocks,
    }
}
