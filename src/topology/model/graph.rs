//! The graph of a machine or a cluster: nodes, directed links, and the nearest path between two
//! nodes.

use crate::topology::model::class::PathClass;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// The kind of a node.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum NodeKind {
    /// A GPU: a rank may run on it.
    Gpu,
    /// A CPU core: a rank may run on it.
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
    /// A switch of a network. One switch stands for a network of unknown structure.
    NetworkSwitch,
}

/// One end of links: a device, a switch, a host bridge or a NUMA node.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Node {
    /// The kind of the node.
    pub kind: NodeKind,
    /// The number of its host; `None` for a switch of a network.
    pub host: Option<usize>,
    /// The name that tools print: `GPU0`, `mlx5_0`.
    pub name: String,
}

/// The technology of a link.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum LinkKind {
    /// This many NVLinks.
    NvLink(u32),
    /// This many XGMI links.
    Xgmi(u32),
    /// A coherent link between a GPU and the memory of its NUMA node: NVLink-C2C.
    C2c,
    /// PCI, up to and including the root port.
    Pci,
    /// Within a NUMA node: between host bridges, memory and cores.
    Local,
    /// Between NUMA nodes.
    Sockets,
    /// A cable of a network.
    Network,
}

impl LinkKind {
    /// The weight of the link in the search for the nearest path. One link of a farther kind
    /// outweighs any number of links of nearer kinds.
    const fn weight(self) -> u64 {
        match self {
            Self::NvLink(_) | Self::Xgmi(_) => 1,
            Self::Pci | Self::C2c => 100,
            Self::Local => 10_000,
            Self::Sockets => 1_000_000,
            Self::Network => 100_000_000,
        }
    }
}

/// One direction between two nodes. All traffic that crosses the link shares its bandwidth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// The number of the node where the link begins.
    pub from: usize,
    /// The number of the node where the link ends.
    pub to: usize,
    /// The technology of the link.
    pub kind: LinkKind,
    /// The bandwidth in this direction, in GB/s.
    pub bandwidth: f64,
}

/// A path from one node to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// The numbers of its links, in order. Empty from a node to itself.
    pub links: Vec<usize>,
    /// The class of its worst hop.
    pub class: PathClass,
    /// The bandwidth of its narrowest link, in GB/s. Infinite from a node to itself.
    pub bandwidth: f64,
}

/// A graph of devices and links. Nodes and links are numbered from 0, in the order in which they
/// are added.
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
    /// By node: the numbers of the links that begin there.
    leaving: Vec<Vec<usize>>,
}

impl Topology {
    /// Makes an empty graph.
    pub const fn new() -> Self {
        Self { nodes: Vec::new(), links: Vec::new(), leaving: Vec::new() }
    }

    /// Adds a node and returns its number.
    pub fn add(&mut self, kind: NodeKind, host: Option<usize>, name: impl Into<String>) -> usize {
        self.nodes.push(Node { kind, host, name: name.into() });
        self.leaving.push(Vec::new());
        self.nodes.len() - 1
    }

    /// Adds a link from `from` to `to` of `bandwidth` GB/s and returns its number.
    ///
    /// # Panics
    /// If one of the nodes does not exist, or the bandwidth is not a positive number.
    pub fn add_link(&mut self, from: usize, to: usize, kind: LinkKind, bandwidth: f64) -> usize {
        assert!(from.max(to) < self.nodes.len(), "a link must join nodes that exist");
        assert!(
            bandwidth > 0.0,
            "a link from {} needs a positive bandwidth",
            self.nodes[from].name
        );
        self.links.push(Link { from, to, kind, bandwidth });
        self.leaving[from].push(self.links.len() - 1);
        self.links.len() - 1
    }

    /// Adds a full-duplex link: one link each way, of `bandwidth` GB/s each.
    ///
    /// # Panics
    /// Like [`add_link`](Self::add_link).
    pub fn join(&mut self, one: usize, other: usize, kind: LinkKind, bandwidth: f64) {
        self.add_link(one, other, kind, bandwidth);
        self.add_link(other, one, kind, bandwidth);
    }

    /// Adds all nodes and links of `other`. Its hosts get the next free numbers.
    ///
    /// Returns the offset between the numbers of its nodes in `other` and here.
    pub fn append(&mut self, other: &Self) -> usize {
        let grown = self.nodes.len();
        let hosts = self.hosts();
        for node in &other.nodes {
            self.add(node.kind, node.host.map(|host| host + hosts), node.name.clone());
        }
        for link in &other.links {
            self.add_link(link.from + grown, link.to + grown, link.kind, link.bandwidth);
        }
        grown
    }

    /// Returns all nodes, by number.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns all links, by number.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Returns the numbers of all nodes of a kind, in ascending order.
    pub fn nodes_of(&self, kind: NodeKind) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&node| self.nodes[node].kind == kind).collect()
    }

    /// Returns the nodes that ranks run on, by rank: all GPUs, or all cores if there is no GPU.
    pub fn devices(&self) -> Vec<usize> {
        let gpus = self.nodes_of(NodeKind::Gpu);
        if gpus.is_empty() { self.nodes_of(NodeKind::Core) } else { gpus }
    }

    /// Returns the number of hosts: one more than the highest host number.
    pub fn hosts(&self) -> usize {
        self.nodes.iter().filter_map(|node| node.host).max().map_or(0, |host| host + 1)
    }

    /// Returns a node's name, with its host if there are several.
    pub fn label(&self, node: usize) -> String {
        let Node { host, name, .. } = &self.nodes[node];
        match host {
            Some(host) if self.hosts() > 1 => format!("host{host}/{name}"),
            _ => name.clone(),
        }
    }

    /// Finds the nearest path: the one with the fewest links of the farthest kind, then of the next
    /// kind, and so on. `None` if no path exists.
    ///
    /// A path does not pass through a GPU or a core. It passes through a network card only between
    /// the card's network and the card's host.
    ///
    /// # Panics
    /// If the node does not exist.
    pub fn path(&self, from: usize, to: usize) -> Option<Path> {
        self.paths(from).to(to)
    }

    /// Finds the nearest paths from `from` to all nodes, in one search.
    ///
    /// # Panics
    /// If the node does not exist.
    pub fn paths(&self, from: usize) -> Paths<'_> {
        self.paths_over(from, |_| true)
    }

    /// Finds the nearest paths from `from` that cross only links for which `may` is true.
    ///
    /// # Panics
    /// If the node does not exist.
    pub fn paths_over(&self, from: usize, may: impl Fn(&Link) -> bool) -> Paths<'_> {
        let mut paths = Paths { topology: self, from, reached: HashMap::new() };
        let mut costs = HashMap::from([(from, 0)]);
        let mut open = BinaryHeap::from([Reverse((0, from))]);
        while let Some(Reverse((cost, node))) = open.pop() {
            if cost > costs[&node] || (node != from && !self.is_passed(node)) {
                continue;
            }
            let arrived = paths.reached.get(&node).map(|link: &usize| self.links[*link].kind);
            for &link in &self.leaving[node] {
                let Link { to, kind, .. } = self.links[link];
                let cost = cost + kind.weight();
                let is_nearer = || costs.get(&to).is_none_or(|known| cost < *known);
                if may(&self.links[link]) && self.may_turn(node, arrived, kind) && is_nearer() {
                    costs.insert(to, cost);
                    paths.reached.insert(to, link);
                    open.push(Reverse((cost, to)));
                }
            }
        }
        paths
    }

    /// Whether a path may pass through a node.
    fn is_passed(&self, node: usize) -> bool {
        !matches!(self.nodes[node].kind, NodeKind::Gpu | NodeKind::Core)
    }

    /// Whether a path that came to a node by a link of kind `arrived` may leave it by a link of
    /// kind `leaves`. A network card joins its network and its host, never two links of one of
    /// them.
    fn may_turn(&self, node: usize, arrived: Option<LinkKind>, leaves: LinkKind) -> bool {
        let network = |kind| matches!(kind, LinkKind::Network);
        self.nodes[node].kind != NodeKind::Nic
            || arrived.is_none_or(|arrived| network(arrived) != network(leaves))
    }

    /// Makes the path over `links`.
    ///
    /// # Panics
    /// If a link does not begin where the one before it ends, or does not exist.
    pub fn path_over(&self, links: Vec<usize>) -> Path {
        let follows = |pair: &[usize]| self.links[pair[0]].to == self.links[pair[1]].from;
        assert!(
            links.windows(2).all(follows),
            "a link does not begin where the one before it ends"
        );
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

/// The nearest paths from one node to all others.
#[derive(Clone, Debug)]
pub struct Paths<'a> {
    topology: &'a Topology,
    from: usize,
    /// By node that is reached: the last link of the path to it.
    reached: HashMap<usize, usize>,
}

impl Paths<'_> {
    /// Returns the path to `to`; `None` if no path exists.
    pub fn to(&self, to: usize) -> Option<Path> {
        let mut links = Vec::new();
        let mut node = to;
        while node != self.from {
            let link = *self.reached.get(&node)?;
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

    /// Two sockets with two host bridges each. Below the first bridge of a socket are two switches,
    /// one below the other.
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
