//! Ranks that are threads: one region.

use maypole_kernels::Region;
use maypole_transports::Board;
use std::sync::Arc;

/// The views that all ranks have of one board.
fn boards(ranks: usize) -> Vec<Board> {
    let region = Arc::new(Region::new(Board::bytes(ranks)));
    (0..ranks).map(|me| Board::new(Arc::clone(&region), ranks, me)).collect()
}

#[path = "contract.rs"]
mod contract;
