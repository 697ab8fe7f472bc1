//! The faults of a simulated network, and their moments.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::Rng;

/// A fault of a simulated network. By default, the seed chooses the moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum SimulatedFault {
    /// The rank is dropped, as if its process were killed.
    Drop {
        /// The rank.
        rank: usize,
        /// How many steps it makes before: uses of a link, and turns of a wait. `None` leaves the
        /// choice to the seed.
        step: Option<u64>,
    },
    /// Some bits of one byte of a message's head are flipped on the way.
    CorruptHead,
    /// Some bits of one byte of a message's body are flipped on the way.
    CorruptBody,
}

/// A byte that was corrupted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CorruptedByte {
    /// The rank that sent it.
    pub from: usize,
    /// The rank that it was sent to.
    pub to: usize,
    /// True for a byte of a head, false for a byte of a body.
    pub in_head: bool,
}

/// A byte that will be corrupted.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlannedCorruption {
    pub(super) in_head: bool,
    /// Bytes of heads, or of bodies, that are sent before it on all links together.
    pub(super) before: u64,
    /// The bits that are flipped.
    pub(super) bits: u8,
}

impl PlannedCorruption {
    pub(super) fn new(in_head: bool, random: &mut SplitMix64) -> Self {
        let before = skewed(random, 12);
        let bits = 1 + below(random, 255) as u8;
        Self { in_head, before, bits }
    }

    /// Corrupts its byte, if that is among `bytes`. True once that has happened.
    pub(super) fn pass(&mut self, bytes: &mut [u8]) -> bool {
        match bytes.get_mut(usize::try_from(self.before).unwrap_or(usize::MAX)) {
            Some(byte) => {
                *byte ^= self.bits;
                true
            }
            None => {
                self.before -= bytes.len() as u64;
                false
            }
        }
    }
}

/// A number below `end`, which is not zero.
pub(super) fn below(random: &mut SplitMix64, end: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(end)) >> 64) as u64
}

/// True once in `of` times.
pub(super) fn once_in(random: &mut SplitMix64, of: u64) -> bool {
    below(random, of) == 0
}

/// A number below `2^bits`. Each order of magnitude is as likely as any other, so that short runs
/// and long ones both have their faults.
pub(super) fn skewed(random: &mut SplitMix64, bits: u64) -> u64 {
    let magnitude = below(random, bits) + 1;
    below(random, 1 << magnitude)
}
