//! The contract of the board for ranks that are threads: all use one region.

use maypole_kernels::SharedRegion;
use maypole_transports::Board;
use maypole_transports::board::SlotClass;
use std::sync::Arc;

/// Chunk slots of each of `ranks`.
fn chunk_slots(ranks: usize) -> usize {
    SlotClass::Chunk.slots(ranks)
}

/// Returns the view of one board that each rank has.
fn boards(ranks: usize) -> Vec<Board> {
    let region = Arc::new(SharedRegion::new(Board::bytes(ranks)));
    (0..ranks).map(|me| Board::new(Arc::clone(&region), ranks, me)).collect()
}

#[path = "contract.rs"]
mod contract;
