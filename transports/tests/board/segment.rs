//! The contract of the board for ranks that are processes: each maps the segment for itself.

use maypole_transports::Board;
use maypole_transports::board::MOST_CHUNK_SLOTS;
use maypole_transports::shm::Segment;

/// Chunk slots of each of `ranks`: these boards are deep.
fn chunk_slots(_: usize) -> usize {
    MOST_CHUNK_SLOTS
}

/// Returns the view of one board that each rank has.
fn boards(ranks: usize) -> Vec<Board> {
    let bytes = Board::deep_bytes(ranks);
    let made = Segment::create(bytes).unwrap();
    let passed = || Segment::from_fd(made.fd().try_clone_to_owned().unwrap(), bytes).unwrap();
    (0..ranks).map(|me| Board::new(passed(), ranks, me)).collect()
}

#[path = "contract.rs"]
mod contract;
