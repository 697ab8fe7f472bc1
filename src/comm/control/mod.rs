//! The control plane as a communicator sees it: how its ranks agree, get connected and fail
//! together.
//!
//! Ranks that are threads of one process share a table behind a lock ([`threads`]). Ranks that are
//! processes ask the service of their process ([`processes`]). Neither is on the data path, so a
//! trait object serves both.

mod close;
pub(crate) mod join;
mod join_report;
pub(crate) mod local;
mod processes;
mod summary;
mod threads;

use crate::execute::AnyStream;
use crate::execute::messages::Connector;
use crate::world::service::{Cause, Pulse};
use maypole_transports::{Alarm, Board};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

/// Why a wait for a peer does not end.
#[derive(Debug)]
pub(crate) struct Straggler {
    /// What the ranks report about themselves, in words.
    pub(crate) report: String,
    /// The rank that holds the others up; `None` if no single member of the group does.
    pub(crate) rank: Option<usize>,
}

/// One rank's handle on its group. Ranks are those of the group.
pub(crate) trait Control: Connector + Send + Sync + Debug {
    /// Raised when the group cannot go on.
    fn alarm(&self) -> Arc<Alarm>;

    /// Returns the blobs of all ranks, by rank. All ranks of the group call this, in the same
    /// order.
    fn exchange(&self, blob: Vec<u8>, deadline: Instant) -> Result<Vec<Vec<u8>>, String>;

    /// Returns the board that the ranks `locals` share. This rank is `locals[me]`. All of them call
    /// this.
    fn board(&self, locals: &[usize], me: usize, deadline: Instant) -> Result<Board, String>;

    /// Returns a stream to `peer`. Both ends call this.
    fn stream(&self, peer: usize, deadline: Instant) -> Result<AnyStream, String>;

    /// Returns the word in which calls record which operation this rank is in.
    fn pulse(&self) -> Arc<Pulse>;

    /// Records what this rank does from operation `sequence` on.
    fn record(&self, sequence: u64, what: String);

    /// Returns what `peer` recorded last, if the answer comes within a second.
    fn inquire(&self, peer: usize) -> Option<String>;

    /// Finds what holds `peer` up, as far as that is possible within a second.
    fn locate(&self, peer: usize) -> Option<Straggler>;

    /// Tells all ranks that the group has failed, and why. Returns the first cause that is known.
    fn fail(&self, cause: Cause) -> Cause;

    /// Returns the first cause that is known, if the group has failed.
    fn cause(&self) -> Option<Cause>;

    /// Returns this rank's handle on a new group of the ranks `members`, of which this rank is one.
    /// `number` is equal on all of them and was not used in this group before.
    fn subgroup(&self, members: &[usize], number: u64) -> Arc<dyn Control>;

    /// Tells all ranks that this rank takes part in no operation from `sequence` on.
    fn leave(&self, sequence: u64);
}
