//! The ways to store large publications: equal bytes, different times.
//!
//! A writer fills the same few slots again and again. Its readers have read them, so an ordinary
//! store first invalidates the line on another core, at 2 GB/s on some machines and at 10 on
//! others. A store past the caches invalidates nothing; but it goes to memory, from where the
//! readers fetch it. In a deep ring the readers' caches have evicted a slot before it is filled
//! again; but so have the writer's. A virtual machine that is migrated changes its behaviour while
//! it runs.

use super::{Buffers, ExecuteError, Executor, RunObserver, slices};
use crate::lower::Program;
use maypole_kernels::{Reducer, Region, View, ViewMut};
use maypole_transports::board::{Board, SlotClass};

/// Bytes that are combined before they are copied past the caches.
const BLOCK: usize = 16 << 10;

/// A way to store publications in the large slots of a rank.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum StoreWay {
    /// By ordinary stores, in as many slots as the program needs.
    #[default]
    Ordinary,
    /// By stores past the caches, in the same slots.
    PastCaches,
    /// By ordinary stores, in all slots of a deep board.
    DeepRing,
}

/// Publications in large slots of one rank, by how they were stored.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct StoreCounts {
    /// By ordinary stores.
    pub ordinary: u64,
    /// Past the caches.
    pub past_caches: u64,
    /// By ordinary stores in a deep ring of slots.
    pub deep_ring: u64,
}

/// The most publications in large slots that a local rank makes in a call of `program`. Equal on all ranks
/// of a board.
pub(crate) fn large_publications(program: &Program) -> u64 {
    match program.class == SlotClass::Chunk && program.registered.is_none() {
        true => program.totals.iter().copied().max().unwrap_or(0),
        false => 0,
    }
}

impl Executor {
    /// True if the board has more slots than `program` needs. Equal on all ranks of a board.
    pub(crate) fn has_deep_ring(&self, program: &Program) -> bool {
        self.board.as_ref().map_or(0, Board::deep_mask) > program.mask
    }

    /// Executes `program` as [`run_observed`](Self::run_observed) does, and stores its large publications in
    /// this `way`; `None` if it has none. A rank whose limit of memory forbids a deep ring stores in the ordinary way instead.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub fn run_stored<O: RunObserver>(
        &mut self,
        way: Option<StoreWay>,
        program: &Program,
        reducer: &Reducer,
        buffers: &Buffers<'_>,
        observer: O,
    ) -> Result<(), Box<ExecuteError>> {
        let Some(way) = way else {
            return self.run_observed(program, reducer, buffers, observer);
        };
        let is_deep = self.has_deep_ring(program);
        let count = program.totals[self.me];
        match way {
            StoreWay::PastCaches => {
                if self.scratch.is_empty() {
                    self.scratch = Region::new(BLOCK);
                }
                self.past_slots = true;
                self.store_counts.past_caches += count;
            }
            StoreWay::DeepRing if is_deep => {
                self.more_slots = self.board.as_ref().map_or(0, Board::deep_mask);
                self.store_counts.deep_ring += count;
            }
            _ => self.store_counts.ordinary += count,
        }
        let done = self.run_observed(program, reducer, buffers, observer);
        (self.past_slots, self.more_slots) = (false, 0);
        done
    }

    /// How publications in the large slots of this rank were stored.
    pub fn store_counts(&self) -> StoreCounts {
        self.store_counts
    }
}

/// Combines `views`, stores the result in `into`, if that is given, and past the caches in `slot`. A
/// block of the result stays in the first cache until it is copied to the slot. `scratch` holds a block.
#[inline(never)]
pub(super) fn publish_past_caches(
    reducer: &Reducer,
    scratch: &Region,
    into: Option<ViewMut<'_>>,
    slot: ViewMut<'_>,
    views: &[View<'_>],
) {
    if let [only] = views {
        into.iter().for_each(|into| into.copy_from(*only));
        return slot.copy_past_caches(*only);
    }
    for (at, len) in reducer.blocks(slot.len(), BLOCK) {
        let block = slices(views, at, len);
        let result = match into {
            Some(into) => into.slice(at, len),
            None => scratch.view().slice(0, len),
        };
        reducer.apply(result, None, &block);
        slot.slice(at, len).copy_past_caches(result.as_view());
    }
}
