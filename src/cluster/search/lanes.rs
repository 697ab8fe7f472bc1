//! Lanes: rings over all ranks of all hosts that are used at the same time. NCCL calls a lane a
//! channel.
//!
//! Within one host there is one ring, the [best](maypole::topology::rings); or, over direct
//! links, [as many](crate::search::disjoint) as the links allow.
//!
//! Over several hosts there is one ring for each rail. It enters every host by the rail's card, at
//! the rank that the card belongs to, and passes through all ranks of the host along the host's
//! ring. It leaves by the same card if the last rank is near to that card, directly or through the
//! card's GPU. Else it leaves by the last rank's own card, which isolated rails do not allow.
//!
//! Each lane carries an equal part of the bytes, and lanes that share a link divide its bandwidth.
//! The result is the first k lanes, with the k that moves the most bytes a second.

use crate::search::disjoint;
use crate::search::rails::{RoutingTable, Unreachable};
use maypole::topology::model::class::PathClass;
use maypole::topology::model::graph::{Path, Topology};
use maypole::topology::rings;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// One ring, with the path of each hop.
#[derive(Clone, Debug, PartialEq)]
pub struct Lane {
    /// The ranks in the order of the ring. The ranks of a host are consecutive.
    pub order: Vec<usize>,
    /// The path from each rank in `order` to the next, and from the last to the first.
    pub hops: Vec<Path>,
}

/// Finds the lanes of `topology`: at least one if it has ranks.
///
/// ```
/// use maypole_cluster::build::cluster::{Fabric, named};
/// use maypole_cluster::search::lanes::{bandwidth, lanes};
/// let cluster = named("2xdgx-a100", Fabric::Flat).unwrap();
/// let lanes = lanes(&cluster).unwrap();
/// assert_eq!((lanes.len(), bandwidth(&cluster, &lanes)), (8, 8.0 * 24.0));
/// ```
///
/// # Errors
/// [`Unreachable`] if no path joins two hosts.
pub fn lanes(topology: &Topology) -> Result<Vec<Lane>, Unreachable> {
    lanes_on(topology, &RoutingTable::new(topology))
}

/// [`lanes`] by routes that are known.
pub(crate) fn lanes_on(
    topology: &Topology,
    routes: &RoutingTable<'_>,
) -> Result<Vec<Lane>, Unreachable> {
    let hosts = by_host(&routes.hosts());
    let mut cache = RingCache::default();
    let bases: Vec<Vec<Vec<usize>>> =
        hosts.iter().map(|ranks| cache.bases(routes, ranks)).collect();
    let lanes: Vec<Lane> = match &bases[..] {
        [] => Vec::new(),
        [alone] => alone.iter().map(|order| within(routes, order)).collect::<Result<_, _>>()?,
        several => {
            let rails = several
                .iter()
                .map(|bases| entries(routes, &bases[0]).len())
                .min()
                .unwrap_or(0)
                .max(1);
            let lane = |rail: usize| {
                let base = |bases: &Vec<Vec<usize>>| bases[rail % bases.len()].clone();
                across(routes, &several.iter().map(base).collect::<Vec<_>>(), rail)
            };
            (0..rails).map(lane).collect::<Result<_, _>>()?
        }
    };
    Ok(widest(topology, lanes))
}

/// Returns the bandwidth of `lanes` together, in GB/s, where each carries an equal part: the
/// number of lanes times the bandwidth of the slowest one.
pub fn bandwidth(topology: &Topology, lanes: &[Lane]) -> f64 {
    let mut users = vec![0_u32; topology.links().len()];
    for link in lanes.iter().flat_map(|lane| &lane.hops).flat_map(|path| &path.links) {
        users[*link] += 1;
    }
    let share = |(link, users): (usize, &u32)| topology.links()[link].bandwidth / f64::from(*users);
    let used = users.iter().enumerate().filter(|(_, users)| **users > 0);
    used.map(share).fold(f64::INFINITY, f64::min) * lanes.len() as f64
}

/// The first k lanes, with the k that has the most bandwidth.
fn widest(topology: &Topology, mut lanes: Vec<Lane>) -> Vec<Lane> {
    let of = |count: &usize| bandwidth(topology, &lanes[..*count]);
    // `max_by` takes the last of several maxima, and here the last one has the fewest lanes.
    let count = (1..=lanes.len()).rev().max_by(|a, b| of(a).total_cmp(&of(b)));
    lanes.truncate(count.unwrap_or(0));
    lanes
}

/// The ranks of each host. Hosts are in the order of their first ranks.
fn by_host(hosts: &[usize]) -> Vec<Vec<usize>> {
    let mut found: Vec<Vec<usize>> = Vec::new();
    for (rank, host) in hosts.iter().enumerate() {
        match found.iter_mut().find(|ranks| hosts[ranks[0]] == *host) {
            Some(ranks) => ranks.push(rank),
            None => found.push(vec![rank]),
        }
    }
    found
}

/// The classes and the numbers of direct links between the devices of one host.
#[derive(Eq, Hash, PartialEq)]
struct HostClasses {
    classes: Vec<Vec<PathClass>>,
    direct: Vec<Vec<u32>>,
}

impl HostClasses {
    fn new(routes: &RoutingTable<'_>, ranks: &[usize]) -> Self {
        let between = |a: &usize, b: &usize| match routes.path(*a, *b) {
            Ok(path) => (path.class, members(&path)),
            Err(_) => (PathClass::Net, 0),
        };
        let row = |a: &usize| ranks.iter().map(|b| between(a, b)).unzip();
        let (classes, direct) = ranks.iter().map(row).unzip();
        Self { classes, direct }
    }

    /// As many rings as the direct links allow, or else the best ring.
    fn rings(&self) -> Vec<Vec<usize>> {
        let found = disjoint::rings(&self.direct);
        if found.is_empty() { vec![super::rings::ring(&self.classes).order] } else { found }
    }
}

/// The number of bonded links of a path that is one direct link; 0 for any other path.
const fn members(path: &Path) -> u32 {
    match (path.links.len(), path.class) {
        (1, PathClass::NvLink(links) | PathClass::Xgmi(links)) => links,
        _ => 0,
    }
}

/// The rings of hosts that were searched before: most hosts of a cluster are equal.
#[derive(Default)]
struct RingCache(HashMap<HostClasses, Vec<Vec<usize>>>);

impl RingCache {
    /// The rings among the ranks of one host.
    fn bases(&mut self, routes: &RoutingTable<'_>, ranks: &[usize]) -> Vec<Vec<usize>> {
        let inside = HostClasses::new(routes, ranks);
        let rings = match self.0.entry(inside) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let rings = new.key().rings();
                new.insert(rings)
            }
        };
        rings.iter().map(|ring| ring.iter().map(|&place| ranks[place]).collect()).collect()
    }
}

/// The lane of one ring on one host.
fn within(routes: &RoutingTable<'_>, order: &[usize]) -> Result<Lane, Unreachable> {
    let hops = rings::hops(order).map(|(a, b)| routes.path(a, b)).collect::<Result<_, _>>()?;
    Ok(Lane { order: order.to_vec(), hops })
}

/// The ranks by which rings may enter a host: the first rank of each card, by card.
fn entries(routes: &RoutingTable<'_>, ranks: &[usize]) -> Vec<usize> {
    let mut cards: Vec<(usize, usize)> =
        ranks.iter().filter_map(|&rank| Some((routes.card(rank)?.0, rank))).collect();
    cards.sort_unstable();
    cards.dedup_by_key(|(card, _)| *card);
    cards.into_iter().map(|(_, rank)| rank).collect()
}

/// The part of a lane on one host: its ranks from the entry on, and the cards by which the lane
/// enters and leaves.
struct HostTraversal {
    order: Vec<usize>,
    enter: usize,
    leave: usize,
}

/// The lane of one rail over several hosts.
fn across(
    routes: &RoutingTable<'_>,
    bases: &[Vec<usize>],
    rail: usize,
) -> Result<Lane, Unreachable> {
    let missing = |ranks: &Vec<usize>| Unreachable {
        from: format!("rank {}", ranks[0]),
        to: "any network".to_owned(),
    };
    let traversals: Vec<HostTraversal> = bases
        .iter()
        .map(|ranks| traversal(routes, ranks, rail).ok_or_else(|| missing(ranks)))
        .collect::<Result<_, _>>()?;
    let mut lane = Lane { order: Vec::new(), hops: Vec::new() };
    for (nth, here) in traversals.iter().enumerate() {
        let next = &traversals[(nth + 1) % traversals.len()];
        for pair in here.order.windows(2) {
            lane.hops.push(routes.path(pair[0], pair[1])?);
        }
        let last = here.order[here.order.len() - 1];
        lane.hops.push(routes.crossing(last, (here.leave, next.enter), next.order[0])?);
        lane.order.extend(&here.order);
    }
    Ok(lane)
}

/// The part of rail `rail` on the host whose ring is `ranks`. It starts at the rank of the rail's
/// card, and takes the direction whose last rank is nearer to that card.
fn traversal(routes: &RoutingTable<'_>, ranks: &[usize], rail: usize) -> Option<HostTraversal> {
    let entries = entries(routes, ranks);
    let first = *entries.get(rail % entries.len().max(1))?;
    let enter = routes.card(first)?.0;
    let mut forth = ranks.to_vec();
    forth.rotate_left(ranks.iter().position(|&rank| rank == first)?);
    let mut back = forth.clone();
    back[1..].reverse();
    let straight = |order: &Vec<usize>| {
        let path = routes.out(order[order.len() - 1], enter);
        path.map(|path| (path.class, std::cmp::Reverse(path.links.len())))
    };
    let order = if straight(&back) > straight(&forth) { back } else { forth };
    let last = order[order.len() - 1];
    let own = routes.card(last)?.0;
    let same = routes.out(last, enter).is_some_and(|path| path.class >= PathClass::Pxb)
        || routes.cables(own, enter).is_err();
    Some(HostTraversal { order, enter, leave: if same { enter } else { own } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::cluster::{Fabric, named};

    fn found(name: &str, fabric: Fabric) -> (Topology, Vec<Lane>) {
        let cluster = named(name, fabric).unwrap();
        let lanes = lanes(&cluster).unwrap();
        for lane in &lanes {
            let mut sorted = lane.order.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..cluster.devices().len()), "{name}");
            let devices = cluster.devices();
            for ((from, to), path) in rings::hops(&lane.order).zip(&lane.hops) {
                let ends = (
                    cluster.links()[path.links[0]].from,
                    cluster.links()[path.links[path.links.len() - 1]].to,
                );
                assert_eq!(ends, (devices[from], devices[to]), "{name}");
            }
        }
        (cluster, lanes)
    }

    fn check(name: &str, fabric: Fabric, count: usize, expected: f64) {
        let (cluster, lanes) = found(name, fabric);
        let moved = bandwidth(&cluster, &lanes);
        assert!(
            (moved / expected - 1.0).abs() < 1e-9,
            "{name}: {moved} GB/s on {} lanes",
            lanes.len()
        );
        assert_eq!(lanes.len(), count, "{name}");
    }

    #[test]
    fn a_switch_needs_one_ring_and_a_mesh_needs_many() {
        check("dgx-a100", Fabric::Flat, 1, 240.0);
        check("mi300x", Fabric::Flat, 7, 7.0 * 51.2);
        check("pcie-phb", Fabric::Flat, 1, 20.0);
    }

    #[test]
    fn every_rail_has_a_ring() {
        for fabric in [Fabric::Flat, Fabric::Rails, Fabric::IsolatedRails] {
            check("2xdgx-a100", fabric, 8, 192.0);
            check("4xhgx-b200", fabric, 8, 384.0);
            // The last hop inside goes through the card's GPU, and so over NVLink once more.
            check("4xdgx-h100", fabric, 8, 18.0 * 20.6);
        }
        check("3xpcie-phb", Fabric::Flat, 1, 12.5);
    }

    #[test]
    fn hosts_without_a_network_have_no_ring() {
        let mut apart = named("dgx-a100", Fabric::Flat).unwrap();
        apart.append(&apart.clone());
        assert!(lanes(&apart).is_err());
        assert_eq!(lanes(&Topology::new()), Ok(Vec::new()));
    }
}
