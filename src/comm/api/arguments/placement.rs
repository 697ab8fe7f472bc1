//! Where the two buffers of a call lie, for callers that pass addresses.

use crate::schedule::collective::{Collective, HeldChunks};
use std::ops::Range;

/// How the two buffers of a call lie, as one rank passes them by their addresses: the one rule of all
/// bindings. Slices of Rust cannot overlap; memory of another language can.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BufferPlacement {
    /// The buffers have no byte in common.
    Apart,
    /// The call works in place, and the longer buffer, which is the input, is the one to pass.
    InInput,
    /// The call works in place, and the longer buffer, which is the output, is the one to pass. Also if
    /// both are one.
    InOutput,
    /// The buffers overlap in another way. The call must read a copy of the input, or be refused before
    /// anything is sent.
    Overlapping,
}

impl BufferPlacement {
    /// The placement of the buffers of `collective` on rank `rank` of `world`. `input` and `output` are
    /// the addresses of their bytes. `is_even` is false if the blocks have counts of their own: then
    /// there is no call in place.
    ///
    /// In place, a vector and its result are the same bytes, and a single block is this rank's block
    /// of the whole.
    ///
    /// ```
    /// use maypole::BufferPlacement as Placement;
    /// use maypole::schedule::collective::Collective;
    /// let of = |input, output| Placement::of(Collective::AllGather, (1, 2), input, output, true);
    /// assert_eq!(of(8..16, 0..16), Placement::InOutput);
    /// assert_eq!(of(0..8, 0..16), Placement::Overlapping);
    /// assert_eq!(of(16..24, 0..16), Placement::Apart);
    /// ```
    pub fn of(
        collective: Collective,
        (rank, world): (usize, usize),
        input: Range<usize>,
        output: Range<usize>,
        is_even: bool,
    ) -> Self {
        if input.is_empty() || output.is_empty() {
            return Self::Apart;
        }
        if input.end <= output.start || output.end <= input.start {
            return Self::Apart;
        }
        let is_own_block = |block: &Range<usize>, whole: &Range<usize>| {
            block.len() * world == whole.len() && block.start == whole.start + rank * block.len()
        };
        match (collective.input(rank), collective.output(rank)) {
            _ if !is_even => Self::Overlapping,
            (HeldChunks::One(_), HeldChunks::All) if is_own_block(&input, &output) => {
                Self::InOutput
            }
            (HeldChunks::All, HeldChunks::One(_)) if is_own_block(&output, &input) => Self::InInput,
            (HeldChunks::One(_), HeldChunks::All) | (HeldChunks::All, HeldChunks::One(_)) => {
                Self::Overlapping
            }
            _ if input == output => Self::InOutput,
            _ => Self::Overlapping,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORLD: usize = 3;
    const BLOCK: usize = 8;

    /// Every placement of a block or a whole in another, byte by byte, on every rank.
    #[test]
    fn only_a_rank_s_own_block_or_the_same_bytes_are_in_place() {
        for (collective, rank) in
            Collective::all(1).into_iter().flat_map(|it| (0..WORLD).map(move |rank| (it, rank)))
        {
            let bytes = |held| match held {
                HeldChunks::Nothing => 0,
                HeldChunks::All if collective.is_blocked() => WORLD * BLOCK,
                HeldChunks::All | HeldChunks::One(_) => BLOCK,
            };
            let (read, written) = (bytes(collective.input(rank)), bytes(collective.output(rank)));
            for at in 0..100 {
                let (input, output) = (50..50 + read, at..at + written);
                let shared = input.clone().filter(|byte| output.contains(byte)).count();
                let own = |whole: &Range<usize>| match read == written {
                    true => whole.start,
                    false => whole.start + rank * BLOCK,
                };
                let expected = match () {
                    () if shared == 0 => BufferPlacement::Apart,
                    () if written >= read && input.start == own(&output) => {
                        BufferPlacement::InOutput
                    }
                    () if written < read && output.start == own(&input) => BufferPlacement::InInput,
                    () => BufferPlacement::Overlapping,
                };
                let of = |is_even| {
                    let (input, output) = (input.clone(), output.clone());
                    BufferPlacement::of(collective, (rank, WORLD), input, output, is_even)
                };
                assert_eq!(of(true), expected, "{collective:?} {rank} {input:?} {output:?}");
                let unequal = if shared == 0 { expected } else { BufferPlacement::Overlapping };
                assert_eq!(of(false), unequal, "{collective:?} {rank} {input:?} {output:?}");
            }
        }
    }

    #[test]
    fn buffers_of_wrong_lengths_are_not_in_place() {
        let of = |collective, input, output| {
            BufferPlacement::of(collective, (0, 2), input, output, true)
        };
        let overlapping = BufferPlacement::Overlapping;
        assert_eq!(of(Collective::AllGather, 0..9, 0..16), overlapping);
        assert_eq!(of(Collective::ReduceScatter, 0..16, 0..7), overlapping);
        assert_eq!(of(Collective::AllReduce, 0..16, 0..8), overlapping);
    }
}
