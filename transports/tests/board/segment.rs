//! Ranks that are processes: a segment that each has mapped for itself.

use maypole_transports::Board;
use maypole_transports::shm::Segment;

/// The views that all ranks have of one board.
fn boards(ranks: usize) -> Vec<Board> {
    let bytes = Board::bytes(ranks);
    let made = Segment::create(bytes).unwrap();
    let passed = || Segment::from_fd(made.fd().try_clone_to_owned().unwrap(), bytes).unwrap();
    (0..ranks).map(|me| Board::new(passed(), ranks, me)).collect()
}

#[path = "contract.rs"]
mod contract;
