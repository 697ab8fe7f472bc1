//! Trees over all ranks of a topology: a double binary tree over hosts, a chain within each host.
//!
//! Between hosts, the two trees are those of [`double_tree`](maypole::algorithms::double_tree). They
//! are derived from its schedules, so they are the trees that run. An inner host of one tree is a
//! leaf of the other. Within a host, the ranks are a chain along the host's ring, from the rank by
//! which the lane enters the host. A single host has a chain and its reverse. Both leave out the
//! worst hop of the ring.

use crate::search::lanes::Lane;
use maypole::algorithms::Algorithm;
use maypole::schedule::Step;
use maypole::schedule::collective::Collective;
use maypole::topology::rings;

/// A tree over ranks.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Tree {
    /// By rank: its parent; `None` for the root.
    pub parents: Vec<Option<usize>>,
}

impl Tree {
    /// Returns the children of a rank, in ascending order.
    pub fn children(&self, rank: usize) -> Vec<usize> {
        (0..self.parents.len()).filter(|&child| self.parents[child] == Some(rank)).collect()
    }

    /// Returns the number of hops from the root to the farthest rank.
    pub fn height(&self) -> usize {
        let above = |rank: &usize| self.parents[*rank];
        let depth = |rank| std::iter::successors(Some(rank), above).count() - 1;
        (0..self.parents.len()).map(depth).max().unwrap_or(0)
    }

    /// The chain of `order`, whose first rank is the root.
    fn chain(order: &[usize]) -> Self {
        let mut tree = Self { parents: vec![None; order.len()] };
        tree.link(order);
        tree
    }

    fn link(&mut self, order: &[usize]) {
        order.windows(2).for_each(|pair| self.parents[pair[1]] = Some(pair[0]));
    }
}

/// Builds two trees along `lane`, each for one half of the vector. `hosts` is the host of each
/// rank.
///
/// ```
/// use maypole_cluster::build::cluster::{Fabric, named};
/// use maypole_cluster::search::lanes::lanes;
/// use maypole_cluster::search::rails::RoutingTable;
/// use maypole_cluster::search::trees::trees;
/// let cluster = named("4xdgx-a100", Fabric::Flat).unwrap();
/// let hosts = RoutingTable::new(&cluster).hosts();
/// let [one, other] = trees(&lanes(&cluster).unwrap()[0], &hosts);
/// // Below the first rank of host 2 are two hosts, and its host's own chain.
/// assert_eq!(one.parents[0], None);
/// assert_eq!(one.children(16), [8, 23, 24]);
/// assert_eq!(other.children(16).len(), 1);
/// ```
///
/// # Panics
/// If there is not one host for each rank of the lane.
pub fn trees(lane: &Lane, hosts: &[usize]) -> [Tree; 2] {
    assert_eq!(lane.order.len(), hosts.len(), "one host for each rank");
    let chains: Vec<&[usize]> = lane.order.chunk_by(|a, b| hosts[*a] == hosts[*b]).collect();
    if chains.len() < 2 {
        let chain = without_worst(lane);
        let back: Vec<usize> = chain.iter().rev().copied().collect();
        return [Tree::chain(&chain), Tree::chain(&back)];
    }
    [0, 1].map(|half| {
        let mut tree = Tree { parents: vec![None; hosts.len()] };
        chains.iter().for_each(|chain| tree.link(chain));
        for (host, chain) in chains.iter().enumerate() {
            tree.parents[chain[0]] = parent(chains.len(), host, half).map(|above| chains[above][0]);
        }
        tree
    })
}

/// The rank that sends half `half` of a broadcast from rank 0 to `rank`.
fn parent(world: usize, rank: usize, half: usize) -> Option<usize> {
    let schedule =
        Algorithm::DoubleTree.schedule(Collective::Broadcast { root: 0 }, world, rank)?;
    schedule.steps.iter().find_map(|step| match step {
        Step::Recv { into, from } if into.chunk == half => Some(*from),
        _ => None,
    })
}

/// The ring as a chain, cut at its worst hop.
fn without_worst(lane: &Lane) -> Vec<usize> {
    let width = |at: usize| lane.hops.get(at).map_or(f64::INFINITY, |path| path.bandwidth);
    let count = rings::hops(&lane.order).count();
    // Among several worst hops it is the last one: then the chain has the order of the ring.
    let worst = (0..count).min_by(|&a, &b| width(a).total_cmp(&width(b)).then(b.cmp(&a)));
    let mut chain = lane.order.clone();
    chain.rotate_left(worst.map_or(0, |worst| (worst + 1) % count));
    chain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::cluster::{Fabric, named};
    use crate::search::lanes::lanes;
    use crate::search::rails::RoutingTable;

    fn both(name: &str) -> ([Tree; 2], usize) {
        let cluster = named(name, Fabric::Flat).unwrap();
        let routes = RoutingTable::new(&cluster);
        (trees(&lanes(&cluster).unwrap()[0], &routes.hosts()), routes.world())
    }

    #[test]
    fn every_rank_is_below_one_root() {
        for hosts in 1..=9 {
            let (trees, world) = both(&format!("{hosts}xdgx-a100"));
            for tree in trees {
                assert_eq!(tree.parents.iter().filter(|parent| parent.is_none()).count(), 1);
                assert!(tree.height() < world, "no rank is above itself");
                let below: usize = (0..world).map(|rank| tree.children(rank).len()).sum();
                assert_eq!(below, world - 1);
            }
        }
    }

    #[test]
    fn an_inner_host_of_one_tree_is_a_leaf_of_the_other() {
        let ([one, other], _) = both("8xdgx-a100");
        let inner = |tree: &Tree, host: usize| {
            tree.children(host * 8).iter().filter(|child| **child / 8 != host).count() > 0
        };
        // Host 0 is the root of both.
        assert!((1..8).all(|host| inner(&one, host) != inner(&other, host)));
    }

    #[test]
    fn a_chain_lacks_the_worst_hop() {
        let host = named("cpu:2x2", Fabric::Flat).unwrap();
        let mut lane = lanes(&host).unwrap().remove(0);
        lane.hops[1].bandwidth = 0.5;
        assert_eq!(without_worst(&lane), [2, 3, 0, 1]);
    }
}
