//! The parts of a communicator that messages need.

use crate::execute::{AnyStream, WaitWatcher};
use crate::schedule::hosts::Boards;
use maypole_transports::{Alarm, Waiting};
use std::time::Instant;

/// Makes the links of one rank: the part of the group's control plane that messages need.
pub(crate) trait Connector: WaitWatcher {
    /// Makes a stream on which this rank sends messages to `peer`, without the help of `peer`. Each
    /// rank makes it at most once for each peer.
    ///
    /// # Errors
    /// The reason why there is no stream by `deadline`, as a sentence.
    fn dial(&self, peer: usize, deadline: Instant) -> Result<AnyStream, String>;

    /// As [`dial`](Self::dial) for each of `peers`, concurrently; results in their order.
    fn dial_all(&self, peers: &[usize], deadline: Instant) -> Vec<Result<AnyStream, String>> {
        peers.iter().map(|peer| self.dial(*peer, deadline)).collect()
    }

    /// Takes the streams that peers have made to this rank since the last call, each with its peer.
    fn callers(&self) -> Vec<(usize, AnyStream)>;
}

/// The parts of a communicator that a batch needs while it runs.
pub(crate) struct BatchContext<'a> {
    pub(crate) connector: &'a dyn Connector,
    pub(crate) waiting: Waiting,
    pub(crate) alarm: &'a Alarm,
    /// The ranks of one board can share memory.
    pub(crate) boards: &'a Boards,
}
