//! The number of elements of each rank in a random call.

use maypole::schedule::collective::{Collective, HeldChunks};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::ops::Range;

/// The counts of one call.
#[derive(Clone, Debug)]
pub enum Lengths {
    /// Elements of the vector, or of the block of every rank.
    Even(usize),
    /// Elements of each rank's block.
    Blocks(Vec<usize>),
    /// `[s][r]`: elements from rank `s` to rank `r`.
    Pairs(Vec<Vec<usize>>),
}

/// One of a rank's two buffers.
#[derive(Clone, Copy, Debug)]
pub enum Side {
    Input,
    Output,
}

impl Lengths {
    /// True if ranks differ, so that the call is one of the variable-count forms.
    pub fn differ(&self) -> bool {
        !matches!(self, Self::Even(_))
    }

    /// Where the blocks of buffer `side` of `rank` begin, and at the end where the last block ends.
    pub fn starts(
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

    /// Elements of the longest buffer. For an all-to-all of unequal blocks, of all inputs together.
    pub fn total(&self) -> usize {
        match self {
            Self::Even(count) => *count,
            Self::Blocks(counts) => counts.iter().sum(),
            Self::Pairs(rows) => rows.iter().flatten().sum(),
        }
    }
}

/// The elements of the whole that `held` holds, whose blocks begin at `starts`.
pub fn elements(held: HeldChunks, starts: &[usize]) -> Range<usize> {
    match held {
        HeldChunks::Nothing => 0..0,
        HeldChunks::One(rank) => starts[rank]..starts[rank + 1],
        HeldChunks::All => 0..starts[starts.len() - 1],
    }
}

const LITTLE: [usize; 10] = [0, 1, 2, 3, 5, 7, 8, 13, 31, 64];
const PRIMES: [usize; 5] = [97, 251, 1009, 2053, 4099];

/// The counts of a random call of `collective` among `world` ranks, with elements of `size` bytes.
pub fn lengths(collective: Collective, size: usize, world: usize) -> BoxedStrategy<Lengths> {
    let even = |blocks| count(size, blocks).prop_map(Lengths::Even);
    match collective {
        Collective::Barrier => Just(Lengths::Even(0)).boxed(),
        Collective::AllToAll => {
            let pairs = vec(vec(small_count(), world), world).prop_map(Lengths::Pairs);
            prop_oneof![pairs, even(world)].boxed()
        }
        _ if collective.is_blocked() => {
            prop_oneof![vec(small_count(), world).prop_map(Lengths::Blocks), even(world)].boxed()
        }
        _ => even(1).boxed(),
    }
}

/// Nothing, a small number, a prime, or more elements than a slot holds.
fn small_count() -> impl Strategy<Value = usize> {
    prop_oneof![
        40 => Just(0),
        100 => select(&LITTLE[..]),
        20 => select(&PRIMES[..3]),
        1 => Just(20_011),
    ]
}

/// A small number, a prime, about a window, or several windows.
fn count(size: usize, blocks: usize) -> impl Strategy<Value = usize> {
    let bytes = move |bytes: usize| bytes / size / blocks;
    prop_oneof![
        40 => select(&LITTLE[..]),
        22 => select(&PRIMES[..]).prop_map(move |prime| prime / blocks.min(2)),
        14 => (0..40_000_usize).prop_map(bytes),
        3 => (65_537..315_537_usize).prop_map(bytes),
        1 => (1 << 20..3_usize << 19).prop_map(bytes),
    ]
}
