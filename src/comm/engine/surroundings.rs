//! What ranks know of where they run, alike on all of them but for how each waits.

use crate::tuner::CostTable;
use maypole_transports::Waiting;

/// Where a group of ranks runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings {
    /// How this rank waits: a matter of its machine's cores and of all ranks there, whatever group
    /// they are in.
    pub(crate) waiting: Waiting,
    /// How many ranks share a core where they are most crowded, rounded up.
    pub(crate) crowding: usize,
    /// What messages and bytes cost: rank 0's table, on every rank.
    pub(crate) costs: CostTable,
}
