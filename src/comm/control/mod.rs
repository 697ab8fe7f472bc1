//! What a communicator needs besides moving bytes: to agree, to be connected, and to fail together.
//!
//! Ranks that are threads of one process have a [`Hub`](crate::comm::control::threads::Hub); ranks that are processes
//! have the service of their process. Both are off the data path, so a trait object serves.

pub(crate) mod ending;
pub(crate) mod join;
pub(crate) mod local;
pub(crate) mod offer;
pub(crate) mod processes;
pub(crate) mod summary;
pub(crate) mod threads;

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
    /// What the ranks report that they do.
    pub(crate) report: String,
    /// The rank that holds the others up; `None` if no single member of the group does.
    pub(crate) rank: Option<usize>,
}

/// One rank's handle on its group. Ranks are those of the group.
pub(crate) trait Control: Connector + Send + Sync + Debug {
    /// Raised when the group cannot go on.
    fn alarm(&self) -> Arc<Alarm>;

    /// Everybody's blob, by rank. All members call it, in the same order.
    fn exchange(&self, blob: Vec<u8>, deadline: Instant) -> Result<Vec<Vec<u8>>, String>;

    /// The board that ranks `locals` share, of which this rank is number `me`. All of them call it.
    fn board(&self, locals: &[usize], me: usize, deadline: Instant) -> Result<Board, String>;

    /// A stream to `peer`; both ends call it.
    fn stream(&self, peer: usize, deadline: Instant) -> Result<AnyStream, String>;

    /// The word by which calls tell where they are.
    fn pulse(&self) -> Arc<Pulse>;

    /// Notes what this rank does from operation `sequence` on.
    fn record(&self, sequence: u64, what: String);

    /// What `peer` noted last, if it can be had soon.
    fn inquire(&self, peer: usize) -> Option<String>;

    /// What holds `peer` up, as far as it can be found out within a second.
    fn locate(&self, peer: usize) -> Option<Straggler>;

    /// Tells everybody that the group has failed, and why; returns the first cause that is known.
    fn fail(&self, cause: Cause) -> Cause;

    /// The first cause known, if the group has failed.
    fn cause(&self) -> Option<Cause>;

    /// The handle of a new group of these ranks of ours, among which this one is. `number` is equal
    /// on all of them and new in this group.
    fn subgroup(&self, members: &[usize], number: u64) -> Arc<dyn Control>;

    /// Says goodbye: nothing after operation `sequence` comes from this rank.
    fn leave(&self, sequence: u64);
}
