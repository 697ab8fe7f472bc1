//! What a batch that did not end means, and to whom it is told.

use crate::comm::engine::Engine;
use crate::comm::error::Error;
use crate::execute::messages::{Batch, Part, Stop, Why};
use crate::world::service::CauseKind;

impl Engine {
    /// The communicator has failed because of `stop`: says so to everybody, and to the caller.
    #[cold]
    pub(crate) fn explain_stop(&mut self, batch: &Batch<'_>, stop: Stop) -> Error {
        let Stop { part, peer, why } = stop;
        let (rank, operation, sequence) = (self.rank, batch.describe(part), self.sequence);
        let step = batch.place(part);
        let whom = peer.unwrap_or(rank);
        // Who has failed leaves, too.
        let why = if matches!(why, Why::Left | Why::Lost(_)) && self.control.alarm().raised() {
            Why::Alarmed
        } else {
            why
        };
        let (kind, error) = match why {
            Why::Unconnected(why) => return self.unconnected(operation, why),
            Why::Alarmed => {
                let error = self.aborted(operation);
                return self.fail(error);
            }
            Why::Mismatch(theirs) => (
                CauseKind::Mismatch,
                Error::Mismatch { rank, peer: whom, operation, sequence, theirs: Some(theirs) },
            ),
            Why::TimedOut => (CauseKind::Timeout, self.late(peer, operation, step)),
            Why::Left => (
                CauseKind::Death,
                Error::PeerLost { rank, peer: whom, operation, sequence, why: left() },
            ),
            Why::Lost(fault) => {
                let why = if self.control.has_left(whom) { left() } else { fault.to_string() };
                (CauseKind::Death, Error::PeerLost { rank, peer: whom, operation, sequence, why })
            }
        };
        let blamed = if kind == CauseKind::Death { whom } else { rank };
        let error = self.settle(batch.describe(part), error, kind, blamed);
        self.fail(error)
    }

    fn late(&self, peer: Option<usize>, operation: String, step: usize) -> Error {
        let (rank, sequence, after) = (self.rank, self.sequence, self.allowed());
        let Some(peer) = peer else { return Error::NoMessage { rank, operation, sequence, after } };
        self.timed_out(peer, operation, step)
    }

    /// Notes, for others that ask, what this rank waits for.
    #[cold]
    pub(crate) fn note_batch(&self, batch: &Batch<'_>) {
        let (part, _): (Part, _) = batch.awaited();
        self.control.record(self.sequence, batch.describe(part));
        self.pulse.enter(self.sequence);
    }

    /// Takes that note back.
    #[cold]
    pub(crate) fn note_outside(&mut self) {
        self.pulse.back(self.sequence);
        // The next call says anew what it is.
        self.forget_current();
    }
}

fn left() -> String {
    "it has left".to_owned()
}
