//! What ranks know of where they run, alike on all of them but for how each waits.

use crate::tuner::CostTable;
use maypole_transports::Waiting;
use maypole_transports::board::MAX_RANKS;
use std::collections::HashMap;

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

/// Splits hosts with more ranks than a board serves.
pub(crate) fn boards_of(hosts: &[usize]) -> Vec<usize> {
    let mut numbers: HashMap<(usize, usize), usize> = HashMap::new();
    let mut seen: HashMap<usize, usize> = HashMap::new();
    let mut boards = Vec::with_capacity(hosts.len());
    for host in hosts {
        let nth = seen.entry(*host).or_default();
        let fresh = numbers.len();
        boards.push(*numbers.entry((*host, *nth / MAX_RANKS)).or_insert(fresh));
        *nth += 1;
    }
    boards
}
