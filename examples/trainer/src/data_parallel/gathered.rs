//! The weights of ZeRO stages 1 and 2: a rank has all of them, updates its shard of each unit, and
//! then all-gathers the shards of the others.
//!
//! * **Sharded:** nothing; the optimizer's state is elsewhere.
//! * **Collective:** one all-gather for each unit.
//! * **Cost:** (n-1)/n numbers a parameter leave each rank. Where the ranks share a host, the
//!   weights are in a registered buffer, and each rank reads the others' shards in place.

use crate::data_parallel::shards::Shards;
use crate::ranks::group::RankGroup;
use crate::ranks::memory::MemoryKind;
use crate::tensor::math::FloatElement;
use maypole::{Arena, RegisteredBuffer, Result};
use std::ops::{Deref, DerefMut};

/// A page: buffers of an arena begin at one.
const PAGE: usize = 4096;

/// Returns the bytes of an arena for `buffers` buffers of `elements` elements together.
pub fn arena_bytes<T>(elements: usize, buffers: usize) -> usize {
    elements * size_of::<T>() + buffers * PAGE
}

/// All weights of a rank, in a flat buffer.
#[derive(Debug)]
pub struct GatheredWeights<T> {
    weights: RegisteredBuffer<T>,
    /// Has room for `weights`, and for the largest part that this rank sends.
    arena: Arena,
    /// Elements of the largest part that this rank sends.
    largest: usize,
}

impl<T: FloatElement> GatheredWeights<T> {
    /// A copy of `weights`, which are equal on all ranks of `group`, divided by `shards`. All ranks
    /// call it.
    ///
    /// # Errors
    /// If the ranks cannot make memory that they share.
    pub fn new(weights: &[T], shards: &Shards, group: &RankGroup) -> Result<Self> {
        let largest = shards.mine.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
        let arena = group.arena(arena_bytes::<T>(weights.len() + largest, 2))?;
        let mut copy = arena.alloc(weights.len());
        copy.copy_from_slice(weights);
        Ok(Self { weights: copy, arena, largest })
    }

    /// All-gathers the shards of all ranks, after each has updated its own. All ranks call it.
    ///
    /// # Errors
    /// As the library's.
    pub fn all_gather(&mut self, shards: &Shards, group: &RankGroup) -> Result<()> {
        // The send buffer of a call must not overlap its receive buffer, so this rank sends a copy.
        let mut mine = MemoryKind::Units.hold(|| self.arena.alloc(self.largest));
        for (unit, part) in shards.units.iter().zip(&shards.mine) {
            let mine = &mut mine[..part.len()];
            mine.copy_from_slice(&self.weights[part.clone()]);
            group.all_gather_into(mine, &mut self.weights[unit.clone()])?;
        }
        Ok(())
    }
}

impl<T> Deref for GatheredWeights<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.weights
    }
}

impl<T> DerefMut for GatheredWeights<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.weights
    }
}
