//! The board and the streams of a group, made when a program first needs them.

use crate::engine::Engine;
use crate::error::Result;
use crate::lower::Program;
use crate::world::calls::CallRecord;
use crate::world::service::ServiceError;
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
            let locals = self.boards.locals(self.rank);
            let me = self.boards.index(self.rank);
            let board = self.health.control.board(&locals, me, deadline)?;
            self.executor.share(board, locals, me);
            self.connected = true;
        }
        let (peers, made) = (program.streams.iter(), self.executor.streams());
        let peers = peers.map(|link| link.peer as usize);
        let absent = peers.filter(|peer| !made.contains(*peer)).collect::<Vec<_>>();
        let streams = self.health.control.streams(&absent, deadline)?;
        for (peer, stream) in absent.into_iter().zip(streams) {
            self.executor.streams().insert(peer, stream);
        }
        Ok(())
    }
}
