//! The conditions that calls run under.

use crate::topology::StreamLinks;
use crate::tuner::CostTable;
use maypole_transports::Waiting;

/// Inputs of choices and waits other than the call. Equal on all ranks except `waiting`.
#[derive(Clone, Debug)]
pub(crate) struct RunConditions {
    /// How this rank waits. Depends on the cores of its host and on all ranks there, also on those
    /// that are not in this group.
    pub(crate) waiting: Waiting,
    /// The most ranks that share a core, rounded up.
    pub(crate) crowding: usize,
    /// The costs of messages and bytes: rank 0's table, on every rank.
    pub(crate) costs: CostTable,
    /// Streams are encrypted.
    pub(crate) encrypts: bool,
    /// The transport of streams.
    pub(crate) links: StreamLinks,
}

impl RunConditions {
    /// The costs by which calls of this group are priced: those of streams are their transport's.
    pub(crate) fn prices(&self) -> CostTable {
        match self.links {
            StreamLinks::Tcp(_) => self.costs,
            _ => self.costs.with_streams_by_verbs(),
        }
    }
}
