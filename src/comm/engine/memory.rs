//! How much memory a rank may share with others.

use crate::comm::engine::Engine;
use maypole_transports::board::Board;

impl Engine {
    /// Refuses boards that the user has no memory for.
    pub(crate) fn check_memory(&self) -> std::result::Result<(), String> {
        let Some(limit) = self.memory else { return Ok(()) };
        let (ranks, share) = (self.neighbours(), self.board_share());
        if share <= limit {
            return Ok(());
        }
        Err(format!(
            "a board of {ranks} ranks takes {} bytes, {share} a rank, and MAYPOLE_MEMORY allows {limit}; \
             raise it, or use MAYPOLE_TRANSPORT=tcp",
            Board::bytes(ranks)
        ))
    }

    /// Ranks that share a board with this one, itself among them.
    fn neighbours(&self) -> usize {
        self.boards.locals(self.rank).len()
    }

    /// Bytes of the board that count as this rank's.
    pub(crate) fn board_share(&self) -> usize {
        let ranks = self.neighbours();
        if ranks == 1 { 0 } else { Board::bytes(ranks).div_ceil(ranks) }
    }

    /// Bytes of shared memory that the board leaves to messages.
    pub(crate) fn memory_for_messages(&self) -> usize {
        self.memory.map_or(usize::MAX, |limit| limit.saturating_sub(self.board_share()))
    }
}
