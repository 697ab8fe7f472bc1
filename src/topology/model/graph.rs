//! The graph: devices, what stands between them, and directed links; built by hand, asked for
//! paths.

use crate::topology::model::class::PathClass;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a node is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum NodeKind {
    /// A GPU: a rank may sit on it.
    Gpu,
    /// A core or a process on the CPU: a rank may sit on it.
    Core,
    /// A network card.
    Nic,
    /// A switch between GPUs.
    GpuSwitch,
    /// A PCI bridge or switch below a host bridge.
    PciSwitch,
    /// A PCI host bridge.
    HostBridge,
    /// A NUMA node.
    Numa,
    /// A switch of a network, or all of a network that nothing is known of.
    NetworkSwitch,
}

/// One thing that links end at.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Node {
    /// What it is.
    pub kind: NodeKind,
    /// On which host; a network's switches are on none.
    pub host: Option<usize>,
    /// What people call it: `GPU0`, `mlx5_0`.
    pub name: String,
}

/// What a link is made of.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum LinkKind {
    /// This many NVLinks.
    NvLink(u32),
    /// This many XGMI links.
    Xgmi(u32),
    /// PCI, up to and including the root port.
    Pci,
    /// Within a NUMA node: between host bridges, memory and cores.
    Local,
    /// Between NUMA nodes.
    Sockets,
    /// A network's cable.
    Network,
}

impl LinkKind {
    /// What a path pays to cross it: more for one that is farther than for any number of nearer
    /// ones.
    const fn price(self) -> u64 {
        match self {
            Self::NvLink(_) | Self::Xgmi(_) => 1,
            Self::Pci => 100,
            Self::Local => 10_000,
            Self::Sockets => 1_000_000,
            Self::Network => 100_000_000,
        }
    }

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NvLink(_) => "NVLink",
            Self::Xgmi(_) => "XGMI",
            Self::Pci => "PCI",
            Self::Local => "memory",
            Self::Sockets => "sockets",
            Self::Network => "network",
        }
    }
}

/// One direction between two nodes. What crosses it shares its bandwidth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// The node that it leaves.
    pub from: usize,
    /// The node that it reaches.
    pub to: usize,
    /// What it is made of.
    pub kind: LinkKind,
    /// GB/s, this way.
    pub bandwidth: f64,
}

/// A way from a node to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// Numbers of links, from the first one on; none from a node to itself.
    pub links: Vec<usize>,
    /// That of its worst hop.
    pub class: PathClass,
    /// GB/s: that of its narrowest link, infinite from a node to itself.
    pub bandwidth: f64,
}

/// Devices and the links that join them. Nodes and links are named by their numbers, in the order
/// of adding.
///
/// ```
/// use maypole::topology::{PathClass, NodeKind, LinkKind, Topology};
/// let mut host = Topology::new();
/// let switch = host.add(NodeKind::PciSwitch, Some(0), "PCI0");
/// let gpus = [0, 1].map(|nth| host.add(NodeKind::Gpu, Some(0), format!("GPU{nth}")));
/// for gpu in gpus {
///     host.join(gpu, switch, LinkKind::Pci, 24.0);
/// }
/// let path = host.path(gpus[0], gpus[1]).unwrap();
/// assert_eq!((path.class, path.bandwidth, path.links.len()), (PathClass::Pix, 24.0, 2));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    nodes: Vec<Node>,
    links: Vec<Link>,
    /// By node: the links that leave it.
    leaving: Vec<Vec<usize>>,
}

impl Topology {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self { nodes: Vec::new(), links: Vec::new(), leaving: Vec::new() }
    }

    /// Adds a node; its number.
    pub fn add(&mut self, kind: NodeKind, host: Option<usize>, name: impl Into<String>) -> usize {
        self.nodes.push(Node { kind, host, name: name.into() });
        self.leaving.push(Vec::new());
        self.nodes.len() - 1
    }

    /// Adds a link from `from` to `to` of `bandwidth` GB/s; its number.
    ///
    /// # Panics
    /// If there is no such node, or the bandwidth is not a positive number.
    pub fn add_link(&mut self, from: usize, to: usize, kind: LinkKind, bandwidth: f64) -> usize {
        assert!(from.max(to) < self.nodes.len(), "a link joins nodes that there are");
        assert!(bandwidth > 0.0, "a link from {} carries something", self.nodes[from].name);
        self.links.push(Link { from, to, kind, bandwidth });
        self.leaving[from].push(self.links.len() - 1);
        self.links.len() - 1
    }

    /// Adds a full-duplex link: one each way, of `bandwidth` GB/s each.
    ///
    /// # Panics
    /// As [`add_link`](Self::add_link).
    pub fn join(&mut self, one: usize, other: usize, kind: LinkKind, bandwidth: f64) {
        self.add_link(one, other, kind, bandwidth);
        self.add_link(other, one, kind, bandwidth);
    }

    /// Adds all of `other`, its hosts numbered from the first free number; what its nodes' numbers
    /// have grown by.
    pub fn append(&mut self, other: &Self) -> usize {
        let (grown, hosts) = (self.nodes.len(), self.hosts());
        for node in &other.nodes {
            self.add(node.kind, node.host.map(|host| host + hosts), node.name.clone());
        }
        for link in &other.links {
            self.add_link(link.from + grown, link.to + grown, link.kind, link.bandwidth);
        }
        grown
    }

    /// Sets the bandwidth of a link to what was measured, in GB/s.
    ///
    /// # Panics
    /// If there is no such link, or the bandwidth is not a positive number.
    pub fn set_bandwidth(&mut self, link: usize, bandwidth: f64) {
        assert!(bandwidth > 0.0, "a link carries something");
        self.links[link].bandwidth = bandwidth;
    }

    /// All nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// All links.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The numbers of the nodes of a kind, ascending.
    pub fn nodes_of(&self, kind: NodeKind) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&node| self.nodes[node].kind == kind).collect()
    }

    /// What ranks sit on, in the order of ranks: all GPUs, or all cores if there is no GPU.
    pub fn devices(&self) -> Vec<usize> {
        let gpus = self.nodes_of(NodeKind::Gpu);
        if gpus.is_empty() { self.nodes_of(NodeKind::Core) } else { gpus }
    }

    /// How many hosts there are: one more than the highest number.
    pub fn hosts(&self) -> usize {
        self.nodes.iter().filter_map(|node| node.host).max().map_or(0, |host| host + 1)
    }

    /// A link in words: `GPU0 -> PCI0, PCI, 24.0 GB/s`, with the hosts where there are several.
    pub fn describe(&self, link: usize) -> String {
        let Link { from, to, kind, bandwidth } = self.links[link];
        format!("{} -> {} ({}, {bandwidth:.1} GB/s)", self.label(from), self.label(to), kind.name())
    }

    /// A node's name, with its host where there are several.
    pub fn label(&self, node: usize) -> String {
        let Node { host, name, .. } = &self.nodes[node];
        match host {
            Some(host) if self.hosts() > 1 => format!("host{host}/{name}"),
            _ => name.clone(),
        }
    }

    /// The path that crosses as few far links as can be, then as few links; `None` if there is
    /// none.
    ///
    /// Nothing passes through a GPU or a core, and through a network card only what comes from its
    /// network or goes there.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn path(&self, from: usize, to: usize) -> Option<Path> {
        self.paths(from).to(to)
    }

    /// All paths from `from`: cheaper than one after the other.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn paths(&self, from: usize) -> Paths<'_> {
        self.paths_over(from, |_| true)
    }

    /// All paths from `from` that cross only links that `may` be crossed.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn paths_over(&self, from: usize, may: impl Fn(&Link) -> bool) -> Paths<'_> {
        let mut paths = Paths { topology: self, from, reached: vec![None; self.nodes.len()] };
        let mut costs = vec![u64::MAX; self.nodes.len()];
        let mut open = BinaryHeap::from([Reverse((0, from))]);
        costs[from] = 0;
        while let Some(Reverse((cost, node))) = open.pop() {
            if cost > costs[node] || (node != from && !self.is_passed(node)) {
                continue;
            }
            let arrived = paths.reached[node].map(|link: usize| self.links[link].kind);
            for &link in &self.leaving[node] {
                let Link { to, kind, .. } = self.links[link];
                let cost = cost + kind.price();
                if cost < costs[to] && self.may_turn(node, arrived, kind) && may(&self.links[link])
                {
                    costs[to] = cost;
                    paths.reached[to] = Some(link);
                    open.push(Reverse((cost, to)));
                }
            }
        }
        paths
    }

    /// True if bytes may pass through a node on their way.
    fn is_passed(&self, node: usize) -> bool {
        !matches!(self.nodes[node].kind, NodeKind::Gpu | NodeKind::Core)
    }

    /// A network card passes on between its network and its host, never between two links of
    /// either.
    fn may_turn(&self, node: usize, arrived: Option<LinkKind>, leaves: LinkKind) -> bool {
        let network = |kind| matches!(kind, LinkKind::Network);
        self.nodes[node].kind != NodeKind::Nic
            || arrived.is_none_or(|arrived| network(arrived) != network(leaves))
    }

    /// The path over `links`, which follow one another.
    ///
    /// # Panics
    /// If they do not, or there is no such link.
    pub fn path_over(&self, links: Vec<usize>) -> Path {
        let follows = |pair: &[usize]| self.links[pair[0]].to == self.links[pair[1]].from;
        assert!(links.windows(2).all(follows), "the links of a path follow one another");
        let bandwidth =
            links.iter().map(|&link| self.links[link].bandwidth).fold(f64::INFINITY, f64::min);
        Path { class: self.worst(&links), bandwidth, links }
    }

    /// The class of the worst hop of a path over `links`.
    fn worst(&self, links: &[usize]) -> PathClass {
        let kinds = || links.iter().map(|&link| self.links[link].kind);
        let between = || links.iter().skip(1).map(|&link| self.nodes[self.links[link].from].kind);
        let passed = |kind: NodeKind| between().filter(|&node| node == kind).count();
        let direct = kinds().map(|kind| match kind {
            LinkKind::NvLink(links) => Some(PathClass::NvLink(links)),
            LinkKind::Xgmi(links) => Some(PathClass::Xgmi(links)),
            _ => None,
        });
        if links.is_empty() {
            PathClass::Same
        } else if kinds().any(|kind| kind == LinkKind::Network) {
            PathClass::Net
        } else if kinds().any(|kind| kind == LinkKind::Sockets) {
            PathClass::Sys
        } else if passed(NodeKind::HostBridge) > 1 || passed(NodeKind::Numa) > 0 {
            PathClass::Node
        } else if passed(NodeKind::HostBridge) == 1 {
            PathClass::Phb
        } else if passed(NodeKind::PciSwitch) > 1 {
            PathClass::Pxb
        } else {
            direct.min().flatten().unwrap_or(PathClass::Pix)
        }
    }
}

/// The paths from one node to all others.
#[derive(Clone, Debug)]
pub struct Paths<'a> {
    topology: &'a Topology,
    from: usize,
    /// By node: the link by which it is reached.
    reached: Vec<Option<usize>>,
}

impl Paths<'_> {
    /// The one to `to`, if there is one.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn to(&self, to: usize) -> Option<Path> {
        let (mut links, mut node) = (Vec::new(), to);
        while node != self.from {
            let link = self.reached[node]?;
            links.push(link);
            node = self.topology.links[link].from;
        }
        links.reverse();
        Some(self.topology.path_over(links))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets, each with two host bridges; below the first of each two switches, one below the
    /// other.
    fn host() -> (Topology, Vec<usize>) {
        let mut host = Topology::new();
        let numa = [0, 1].map(|nth| host.add(NodeKind::Numa, Some(0), format!("NUMA{nth}")));
        host.join(numa[0], numa[1], LinkKind::Sockets, 10.0);
        let mut gpus = Vec::new();
        for numa in numa {
            let bridges = [0, 1].map(|_| host.add(NodeKind::HostBridge, Some(0), "bridge"));
            let switches = [0, 1].map(|_| host.add(NodeKind::PciSwitch, Some(0), "switch"));
            bridges.iter().for_each(|&bridge| host.join(numa, bridge, LinkKind::Local, 20.0));
            host.join(bridges[0], switches[0], LinkKind::Pci, 24.0);
            host.join(switches[0], switches[1], LinkKind::Pci, 24.0);
            for parent in [switches[0], switches[1], switches[1], bridges[0], bridges[1]] {
                let gpu = host.add(NodeKind::Gpu, Some(0), format!("GPU{}", gpus.len()));
                host.join(gpu, parent, LinkKind::Pci, 24.0);
                gpus.push(gpu);
            }
        }
        (host, gpus)
    }

    #[test]
    fn a_class_is_that_of_the_worst_hop() {
        let (host, gpus) = host();
        let class = |a: usize, b: usize| host.path(gpus[a], gpus[b]).unwrap().class;
        assert_eq!(class(0, 0), PathClass::Same);
        assert_eq!(class(1, 2), PathClass::Pix);
        assert_eq!(class(0, 1), PathClass::Pxb);
        assert_eq!(class(2, 3), PathClass::Phb);
        assert_eq!(class(3, 4), PathClass::Node);
        assert_eq!(class(4, 9), PathClass::Sys);
        assert_eq!(host.path(gpus[4], gpus[9]).unwrap().bandwidth, 10.0);
    }

    #[test]
    fn direct_links_come_first_and_nothing_passes_through_a_gpu() {
        let (mut host, gpus) = host();
        host.join(gpus[0], gpus[9], LinkKind::NvLink(2), 40.0);
        host.join(gpus[9], gpus[5], LinkKind::NvLink(4), 80.0);
        assert_eq!(host.path(gpus[0], gpus[9]).unwrap().class, PathClass::NvLink(2));
        assert_eq!(host.path(gpus[0], gpus[5]).unwrap().class, PathClass::Sys);
    }

    #[test]
    fn a_network_is_reached_through_cards_alone() {
        let (mut one, gpus) = host();
        let bridge = one.nodes_of(NodeKind::HostBridge)[0];
        let cards = [0, 1].map(|nth| one.add(NodeKind::Nic, Some(0), format!("NIC{nth}")));
        cards.iter().for_each(|&card| one.join(card, bridge, LinkKind::Pci, 12.0));
        let mut two = one.clone();
        let grown = two.append(&one);
        assert_eq!((two.hosts(), two.path(gpus[0], gpus[0] + grown)), (2, None));
        let switch = two.add(NodeKind::NetworkSwitch, None, "network");
        for card in two.nodes_of(NodeKind::Nic) {
            two.join(card, switch, LinkKind::Network, 25.0);
        }
        let path = two.path(gpus[4], gpus[4] + grown).unwrap();
        assert_eq!((path.class, path.bandwidth), (PathClass::Net, 12.0));
        let within = two.path(gpus[4], gpus[9]).unwrap();
        assert_eq!(within.class, PathClass::Sys, "not through the network");
        assert_eq!(two.path(cards[0], cards[1]).unwrap().class, PathClass::Phb);
    }
}
