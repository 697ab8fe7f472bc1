//! The board and the streams of a group, made when a program first needs them.

use crate::engine::Engine;
use crate::error::Result;
use crate::lower::Program;
use crate::world::calls::CallRecord;
use crate::world::service::ServiceError;
use maypole_transports::board::Board;
use std::sync::Arc;

impl Engine {
    /// Connects the ranks for `program`, which runs `call`. Meanwhile this rank's state for peers
    /// is `call`.
    pub(super) fn connect_for(&mut self, call: &Arc<CallRecord>, program: &Program) -> Result<()> {
        self.health.record(call);
        self.health.enter();
        match self.connect(program) {
            Ok(()) => {
                self.health.exit_uncounted();
                Ok(())
            }
            Err(error) => Err(self.explain_control(call.call.clone(), error)),
        }
    }

    /// Makes the board at the first call, and the streams of `program` that do not exist yet.
    fn connect(&mut self, program: &Program) -> std::result::Result<(), ServiceError> {
        let deadline = self.limits.deadline();
        if !self.connected {
            self.check_memory().map_err(ServiceError::Refused)?;
            let locals = self.boards.locals(self.rank);
            let me = self.boards.index(self.rank);
            let board = self.health.control().board(&locals, me, deadline)?;
            self.executor.share(board, locals, me, self.allows_deep_ring());
            self.connected = true;
        }
        let peers = program.streams.iter().map(|link| link.peer as usize);
        let absent = peers.filter(|peer| !self.executor.has_stream(*peer)).collect::<Vec<_>>();
        self.check_registered(&absent).map_err(ServiceError::Refused)?;
        let streams = self.health.control().streams(&absent, deadline)?;
        for (peer, stream) in absent.into_iter().zip(streams) {
            self.executor.streams().insert(peer, stream);
        }
        Ok(())
    }

    /// Bytes that the streams to `peers` register with an RDMA device.
    fn registered(&self, peers: impl Iterator<Item = usize>) -> usize {
        peers.map(|peer| self.health.control().registered_bytes(peer)).sum()
    }

    /// Bytes that the streams of this rank have registered with an RDMA device.
    fn held(&self) -> usize {
        let world = self.boards.world();
        self.registered((0..world).filter(|peer| self.executor.has_stream(*peer)))
    }

    /// Refuses streams to `peers` that exceed the user's limit of registered memory.
    fn check_registered(&self, peers: &[usize]) -> std::result::Result<(), String> {
        let Some(limit) = self.settings.memory_limit else { return Ok(()) };
        let more = self.registered(peers.iter().copied());
        let held = self.held() + self.board_share();
        if more == 0 || held + more <= limit {
            return Ok(());
        }
        Err(format!(
            "{} connections by verbs register {more} bytes, this rank holds {held}, and \
             MAYPOLE_MEMORY allows {limit}; raise it, or use MAYPOLE_TRANSPORT=tcp",
            peers.len()
        ))
    }

    /// Refuses a board that exceeds the user's limit of memory.
    fn check_memory(&self) -> std::result::Result<(), String> {
        let Some(limit) = self.settings.memory_limit else { return Ok(()) };
        let ranks = self.boards.locals(self.rank).len();
        let share = board_share(ranks);
        if share <= limit {
            return Ok(());
        }
        Err(format!(
            "a board of {ranks} ranks takes {} bytes, {share} a rank, and MAYPOLE_MEMORY allows \
             {limit}; raise it, or use MAYPOLE_TRANSPORT=tcp",
            Board::bytes(ranks)
        ))
    }

    /// Bytes of shared and registered memory that collectives leave to messages between two ranks.
    pub(crate) fn memory_for_messages(&self) -> usize {
        let Some(limit) = self.settings.memory_limit else { return usize::MAX };
        limit.saturating_sub(self.board_share() + self.held())
    }

    /// True if this rank's publications may fill a deep ring: that must leave half of the user's
    /// limit.
    fn allows_deep_ring(&self) -> bool {
        let ranks = self.boards.locals(self.rank).len();
        let deep = Board::deep_bytes(ranks).div_ceil(ranks);
        self.settings.memory_limit.is_none_or(|limit| deep <= limit / 2)
    }

    /// Bytes of the board that count as this rank's.
    fn board_share(&self) -> usize {
        let ranks = self.boards.locals(self.rank).len();
        match self.allows_deep_ring() {
            true if ranks > 1 => Board::deep_bytes(ranks).div_ceil(ranks),
            _ => board_share(ranks),
        }
    }
}

/// Bytes of a board of `ranks` ranks that count as one rank's, without a deep ring.
fn board_share(ranks: usize) -> usize {
    if ranks == 1 { 0 } else { Board::bytes(ranks).div_ceil(ranks) }
}

#[cfg(test)]
mod tests {
    use super::{Board, board_share};
    use crate::comm::join::local::Local;
    use crate::world::launch::VARIABLES;

    /// The description of the variable states a rank's need, and that nothing limits it.
    #[test]
    fn memory_is_what_its_variable_says() {
        let variable = VARIABLES.iter().find(|it| it.name == "MAYPOLE_MEMORY").unwrap();
        for ranks in [2, 8, 64] {
            let mib = board_share(ranks) as f64 / f64::from(1 << 20);
            let said = format!("{mib:.1} MiB for each of {ranks}");
            assert!(variable.meaning.contains(&said), "{said}: {}", variable.meaning);
            let deep = Board::deep_bytes(ranks).div_ceil(ranks) as f64 / f64::from(1 << 20);
            assert_eq!(format!("{deep:.1}"), "2.2");
        }
        assert!(variable.meaning.contains("Default: no limit."));
        let mut comm = Local::new(1).build().remove(0);
        assert_eq!(comm.engine.get_mut().settings().memory_limit, None);
    }
}
