//! The price of a collective in a group of ranks, by the library's prices of schedules on the
//! topology.
//!
//! What it does: a group along an axis of the mesh has every `stride`-th rank. Those on one host
//! are its *local* ranks. For each shape of group this page builds the group's own topology: its
//! devices, the cards nearest to them, and its share of the bandwidth of every shared link while all
//! groups of that shape exchange concurrently. On that topology, [`CostModel`] prices the schedules
//! of several algorithms, and the fastest counts.
//!
//! A flat ring of `n` ranks has `n` times `n` messages, so groups of more than 32 ranks on several
//! hosts are priced on fewer hosts and extrapolated. With the bytes kept, a ring's time multiplied by
//! `n / (n - 1)` is a straight line in `n`: the bytes do not change and each rank adds a hop. For an
//! all-to-all the same holds with hosts for ranks. The time of trees and of halving grows with the
//! logarithm of the hosts.
//!
//! What is sharded, which collective runs where: nothing here.

use crate::cluster::AcceleratorCluster;
use maypole::algorithms::Algorithm;
use maypole::algorithms::hierarchical::Levels;
use maypole::schedule::collective::Collective;
use maypole::topology::{LinkKind, NodeKind, PathClass, Topology};
use maypole_cluster::build::cluster::{Fabric, several_of};
use maypole_cluster::predict::lane_algorithm::LaneAlgorithm;
use maypole_cluster::predict::{CollectiveCost, CostModel};
use maypole_trainer::model::config::divisor;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::rc::Rc;

/// How the ranks of a group are spread over hosts.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct GroupShape {
    /// Ranks of the group on one host.
    pub local: usize,
    /// Distance between neighbours in the group, in ranks.
    pub stride: usize,
    /// Hosts of the group.
    pub hosts: usize,
}

/// The collectives that are priced.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum PricedCollective {
    /// All-reduce of a vector.
    AllReduce,
    /// All-gather or reduce-scatter of a vector.
    AllGather,
    /// All-to-all: the bytes of one rank's send buffer.
    AllToAll,
    /// One rank of two sends to the other.
    Send,
}

/// The most ranks of a group on several hosts whose schedules are made.
const EXACT: usize = 32;
/// The most ranks of a host whose schedules are made.
const MOST_LOCAL: usize = 64;

/// How the time of an algorithm grows beyond the hosts that it is priced on.
#[derive(Clone, Copy, Debug)]
enum HostGrowth {
    Linear,
    Logarithmic,
}

/// Costs of one algorithm on a smaller and on a larger number of hosts.
struct AlgorithmPrice {
    growth: HostGrowth,
    small: Option<CollectiveCost>,
    large: CollectiveCost,
}

/// The costs of a collective in a shape of group.
struct ShapePrices {
    /// What `n` of `n / (n - 1)` counts for each host: its ranks, or 1 for an all-to-all, whose
    /// time is that of the bytes to other hosts.
    unit: usize,
    hosts: usize,
    /// The two numbers of hosts that were priced; equal if `hosts` itself was priced.
    small: usize,
    large: usize,
    algorithms: Vec<AlgorithmPrice>,
}

/// Prices of collectives in groups of one cluster. Each is computed once and cached.
pub struct GroupPrices<'a> {
    cluster: &'a AcceleratorCluster,
    shapes: RefCell<HashMap<(GroupShape, PricedCollective), Rc<ShapePrices>>>,
    seconds: RefCell<HashMap<(GroupShape, PricedCollective, u64), f64>>,
}

impl<'a> GroupPrices<'a> {
    /// Starts with an empty cache.
    pub fn new(cluster: &'a AcceleratorCluster) -> Self {
        Self { cluster, shapes: RefCell::default(), seconds: RefCell::default() }
    }

    /// The shape of a group of `size` ranks that are `stride` apart.
    pub fn shape(&self, stride: usize, size: usize) -> GroupShape {
        let per_host = self.cluster.per_host();
        let fitting = per_host / stride;
        let local = divisor(size, fitting.max(1));
        let stride = if local == 1 { per_host } else { stride };
        GroupShape { local, stride, hosts: size / local }
    }

    /// Seconds of a collective in a group of `shape`; zero in a group of one. `bytes` counts the
    /// vector of an all-reduce, all blocks of an all-gather or reduce-scatter, the send buffer of one
    /// rank in an all-to-all, or the message of a send.
    ///
    /// # Errors
    /// A sentence, if the topology has no path between two ranks.
    pub fn seconds(
        &self,
        shape: GroupShape,
        collective: PricedCollective,
        bytes: f64,
    ) -> Result<f64, String> {
        if shape.local * shape.hosts == 1 || bytes <= 0.0 {
            return Ok(0.0);
        }
        // Bytes that differ by less than a thousandth have one price.
        let key = (shape, collective, bytes.to_bits() >> 42);
        if let Some(seconds) = self.seconds.borrow().get(&key) {
            return Ok(*seconds);
        }
        let seconds = self.prices(shape, collective)?.seconds(bytes);
        self.seconds.borrow_mut().insert(key, seconds);
        Ok(seconds)
    }

    fn prices(
        &self,
        shape: GroupShape,
        collective: PricedCollective,
    ) -> Result<Rc<ShapePrices>, String> {
        if let Some(known) = self.shapes.borrow().get(&(shape, collective)) {
            return Ok(Rc::clone(known));
        }
        let made = Rc::new(ShapePrices::new(self.cluster, shape, collective)?);
        self.shapes.borrow_mut().insert((shape, collective), Rc::clone(&made));
        Ok(made)
    }
}

impl ShapePrices {
    fn new(
        cluster: &AcceleratorCluster,
        shape: GroupShape,
        collective: PricedCollective,
    ) -> Result<Self, String> {
        let local = shape.local.min(MOST_LOCAL);
        let most = (EXACT / local).max(2);
        let large = shape.hosts.min(most);
        let continued = shape.hosts > large;
        let small = if continued { (large / 2).max(1) } else { large };
        let priced = |hosts| prices_on(cluster, GroupShape { local, hosts, ..shape }, collective);
        let mut before = if continued { priced(small)? } else { Vec::new() };
        let algorithms = priced(large)?.into_iter().filter_map(|(algorithm, growth, large)| {
            let at = before.iter().position(|other| other.0 == algorithm);
            let small = at.map(|at| before.swap_remove(at).2);
            (small.is_some() || !continued).then_some(AlgorithmPrice { growth, small, large })
        });
        let algorithms: Vec<_> = algorithms.collect();
        if algorithms.is_empty() {
            return Err(format!("no algorithm runs {collective:?} in a group of {shape:?}"));
        }
        let unit = if collective == PricedCollective::AllToAll { 1 } else { local };
        Ok(Self { unit, hosts: shape.hosts, small, large, algorithms })
    }

    fn seconds(&self, bytes: f64) -> f64 {
        let all = self.algorithms.iter().map(|price| self.continued(price, bytes));
        all.fold(f64::INFINITY, f64::min)
    }

    fn continued(&self, price: &AlgorithmPrice, bytes: f64) -> f64 {
        let at = price.large.predict(bytes).seconds;
        let Some(small) = &price.small else { return at };
        let before = small.predict(bytes).seconds;
        let [hosts, large, few] = [self.hosts, self.large, self.small].map(|hosts| hosts as f64);
        let grown = match price.growth {
            HostGrowth::Logarithmic => {
                at + (at - before) * (hosts / large).log2() / (large / few).log2()
            }
            HostGrowth::Linear => {
                let unit = self.unit as f64;
                let factor = |hosts: f64| (unit * hosts) / (unit * hosts - 1.0);
                let line = at * factor(large);
                // With `n` of 1, `n / (n - 1)` has no value: the line is taken as level.
                let start = if unit * few > 1.0 { before * factor(few) } else { line };
                let slope = (line - start) / (large - few);
                (line + slope.max(0.0) * (hosts - large)) / factor(hosts)
            }
        };
        grown.max(at)
    }
}

/// The costs of the algorithms for a collective in a group that is small enough.
fn prices_on(
    cluster: &AcceleratorCluster,
    shape: GroupShape,
    collective: PricedCollective,
) -> Result<Vec<(LaneAlgorithm, HostGrowth, CollectiveCost)>, String> {
    let topology = group_topology(cluster, shape);
    let model = CostModel::new(&topology).map_err(|error| error.to_string())?;
    let priced = match collective {
        PricedCollective::AllReduce => Collective::AllReduce,
        PricedCollective::AllGather => Collective::AllGather,
        PricedCollective::AllToAll => Collective::AllToAll,
        PricedCollective::Send => Collective::Broadcast { root: 0 },
    };
    let mut found = Vec::new();
    for (algorithm, growth) in candidates(shape) {
        let supported = match algorithm {
            LaneAlgorithm::Flat(flat) => flat.supports(priced),
            LaneAlgorithm::Levels(levels) => levels.across.supports(priced),
        };
        if !supported {
            continue;
        }
        let cost = model.cost(priced, algorithm).map_err(|error| error.to_string())?;
        found.extend(cost.map(|cost| (algorithm, growth, cost)));
    }
    Ok(found)
}

/// The algorithms: rings, trees, halving and exchanges; on several hosts also two levels: a ring within
/// each host, and a ring or trees across hosts.
fn candidates(shape: GroupShape) -> Vec<(LaneAlgorithm, HostGrowth)> {
    use HostGrowth::{Linear, Logarithmic};
    let flat = [
        (Algorithm::Ring, Linear),
        (Algorithm::Pairwise, Linear),
        (Algorithm::DoubleTree, Logarithmic),
        (Algorithm::HalvingDoubling, Logarithmic),
        (Algorithm::RecursiveDoubling, Logarithmic),
        (Algorithm::Binomial, Logarithmic),
    ];
    let across = [(Algorithm::Ring, Linear), (Algorithm::DoubleTree, Logarithmic)];
    let levels = across.map(|(across, growth)| {
        (LaneAlgorithm::Levels(Levels { local: Algorithm::Ring, across }), growth)
    });
    let flat = flat.map(|(algorithm, growth)| (LaneAlgorithm::Flat(algorithm), growth));
    let several = shape.hosts > 1 && shape.local > 1;
    flat.into_iter().chain(levels.into_iter().filter(|_| several)).collect()
}

/// The topology of a group: its part of each host, on its part of the network.
fn group_topology(cluster: &AcceleratorCluster, shape: GroupShape) -> Topology {
    let (host, speeds) = host_of_group(cluster, shape);
    if shape.hosts == 1 {
        return host;
    }
    several_of(&host, shape.hosts, &speeds, Fabric::Flat)
}

/// The devices of the group on a host and the cards nearest to them, with the bandwidth of each
/// card on the network. Shared links keep the group's part of their bandwidth.
fn host_of_group(cluster: &AcceleratorCluster, shape: GroupShape) -> (Topology, Vec<f64>) {
    let host = &cluster.host;
    let devices = host.devices();
    let members: Vec<usize> =
        (0..shape.local).map(|nth| devices[(nth * shape.stride) % devices.len()]).collect();
    let cards = host.nodes_of(NodeKind::Nic);
    let chosen = nearest_cards(host, &devices, &cards);
    let users = |card: usize, of: &[usize]| {
        let uses = |device: &&usize| {
            let at = devices.iter().position(|other| other == *device);
            at.is_some_and(|at| chosen[at] == Some(card))
        };
        of.iter().filter(uses).count() as f64
    };
    let part = members.len() as f64 / devices.len() as f64;
    let mut group = Topology::new();
    let mut speeds = Vec::new();
    let mut numbers = vec![None; host.nodes().len()];
    for (node, known) in host.nodes().iter().enumerate() {
        let device = devices.contains(&node);
        let card = cards.iter().position(|card| *card == node);
        let used = card.map(|_| users(node, &members) / users(node, &devices).max(1.0));
        if (device && !members.contains(&node)) || used == Some(0.0) {
            continue;
        }
        speeds.extend(card.zip(used).map(|(card, used)| cluster.speeds[card] * used));
        numbers[node] = Some(group.add(known.kind, known.host, known.name.clone()));
    }
    for link in host.links() {
        let (Some(from), Some(to)) = (numbers[link.from], numbers[link.to]) else { continue };
        let ends = [link.from, link.to];
        let card = ends.into_iter().find(|end| cards.contains(end));
        let share = match card {
            Some(card) => users(card, &members) / users(card, &devices).max(1.0),
            None if ends.iter().any(|end| devices.contains(end)) => 1.0,
            None => part,
        };
        if link.kind != LinkKind::Network {
            group.add_link(from, to, link.kind, link.bandwidth * share);
        }
    }
    (group, speeds)
}

/// By device: the card that it uses, the nearest one. Devices that are equally near to several
/// cards take different ones.
fn nearest_cards(host: &Topology, devices: &[usize], cards: &[usize]) -> Vec<Option<usize>> {
    let mut taken: HashMap<usize, usize> = HashMap::new();
    let mut chosen = Vec::with_capacity(devices.len());
    for device in devices {
        let paths = host.paths(*device);
        let near = |card: &usize| -> Option<(PathClass, Reverse<usize>)> {
            paths.to(*card).map(|path| (path.class, Reverse(path.links.len())))
        };
        let reached = cards.iter().filter_map(|card| Some((near(card)?, *card)));
        let free = |card: usize| Reverse(taken.get(&card).copied().unwrap_or(0));
        let best = reached.max_by_key(|(near, card)| (*near, free(*card), Reverse(*card)));
        let card = best.map(|(_, card)| card);
        if let Some(card) = card {
            *taken.entry(card).or_default() += 1;
        }
        chosen.push(card);
    }
    chosen
}
