//! The parts of a communicator that messages need.

use crate::execute::{AnyStream, WaitWatcher};
use crate::schedule::hosts::Boards;
use maypole_transports::{Alarm, Waiting};
use std::time::Instant;

/// Makes the links of one rank: the part of the group's control plane that messages need.
pub(crate) trait Connector: WaitWatcher {
    /// Makes a stream on which this rank sends messages to each of `peers`, without their help, and
    /// returns the streams in their order. Each rank makes it at most once for each peer.
    ///
    /// # Errors
    /// Of each: the reason why there is no stream by `deadline`, as a sentence.
    fn dial_all(&self, peers: &[usize], deadline: Instant) -> Vec<Result<AnyStream, String>>;

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
