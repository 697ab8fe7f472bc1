//! Graphs of common hosts by name, and of several hosts on a network.
//!
//! | name | host |
//! |---|---|
//! | `dgx-a100` | 8 A100 on NVSwitch, 12 links each; 2 GPUs and 2 cards (200 Gbit/s) a PCI switch |
//! | `dgx-h100`, `dgx-h200` | 8 GPUs on NVSwitch, 18 links each; 1 card (400 Gbit/s) a GPU |
//! | `hgx-b200` | like `dgx-h100`, but links have twice the bandwidth |
//! | `mi300x` | 8 MI300X, an XGMI link between any two; 1 card (400 Gbit/s) a GPU |
//! | `pcie-phb` | 4 GPUs of PCI generation 4 on one host bridge, 1 card (100 Gbit/s) |
//! | `cpu:8x2` | 8 ranks on each of 2 NUMA nodes, 1 card (100 Gbit/s) |
//!
//! A card is a network card. In the rows with a card a GPU, both are on one PCI switch. A prefix
//! makes several hosts on a network: `4xdgx-h100`.

use crate::rates::{LinkRates, network};
use maypole::topology::model::bandwidth::{GpuGeneration, Processor};
use maypole::topology::model::graph::{LinkKind, NodeKind, Topology};

/// The network that joins the cards of several hosts.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Fabric {
    /// One switch with full bandwidth for all cards.
    #[default]
    Flat,
    /// A switch for each rail (the n-th cards of all hosts), and a spine with full bandwidth that
    /// joins these switches.
    Rails,
    /// A switch for each rail, and no link between rails.
    IsolatedRails,
}

/// The error of a name that no cluster has.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "no cluster is called {name:?}; the names are {}, cpu:8x2 (8 ranks on each of 2 NUMA nodes), \
     and 4xdgx-h100 for four hosts",
    NAMES.join(", ")
)]
pub struct UnknownCluster {
    /// The unknown name.
    pub name: String,
}

const NAMES: [&str; 6] = ["dgx-a100", "dgx-h100", "dgx-h200", "hgx-b200", "mi300x", "pcie-phb"];

/// The largest number of hosts, and of ranks on a CPU. A larger number is refused as a typing
/// error.
const MOST: usize = 4096;

/// Builds the cluster called `name`. `fabric` joins its hosts if there are several.
///
/// ```
/// use maypole_cluster::build::cluster::{Fabric, named};
/// let cluster = named("4xdgx-h100", Fabric::Flat).unwrap();
/// assert_eq!((cluster.hosts(), cluster.devices().len()), (4, 32));
/// assert_eq!(named("cpu:8x2", Fabric::Flat).unwrap().devices().len(), 16);
/// assert!(named("dgx-2", Fabric::Flat).unwrap_err().to_string().contains("dgx-a100"));
/// ```
///
/// # Errors
/// [`UnknownCluster`], which lists the names.
pub fn named(name: &str, fabric: Fabric) -> Result<Topology, UnknownCluster> {
    let unknown = || UnknownCluster { name: name.to_owned() };
    let (hosts, inner) = match name.split_once('x') {
        Some((hosts, inner)) if number(hosts).is_some() => (number(hosts), inner),
        _ => (None, name),
    };
    let (host, speed) = single(inner).ok_or_else(unknown)?;
    let speeds = vec![speed; host.nodes_of(NodeKind::Nic).len()];
    Ok(hosts.map_or_else(|| host.clone(), |hosts| several_of(&host, hosts, &speeds, fabric)))
}

fn number(text: &str) -> Option<usize> {
    text.parse().ok().filter(|number| (1..=MOST).contains(number))
}

/// A single host, and the bandwidth of each of its network cards in GB/s.
fn single(name: &str) -> Option<(Topology, f64)> {
    let epyc = Processor::Amd;
    let xeon = Processor::IntelSapphireRapids;
    let eight = HostSpec { gpus: 8, sockets: 2, per_switch: 1, links: GpuWiring::Switch(18) };
    let four_hundred =
        |host: HostSpec, rates: LinkRates| Some((host.build(&rates), network(400.0)));
    match name {
        "dgx-a100" => {
            let host = HostSpec { per_switch: 2, links: GpuWiring::Switch(12), ..eight };
            Some((host.build(&LinkRates::of(GpuGeneration::Ampere, epyc)), network(200.0)))
        }
        "dgx-h100" | "dgx-h200" => four_hundred(eight, LinkRates::of(GpuGeneration::Hopper, xeon)),
        "hgx-b200" => four_hundred(eight, LinkRates::of(GpuGeneration::Blackwell, xeon)),
        "mi300x" => four_hundred(
            HostSpec { links: GpuWiring::Mesh(1), ..eight },
            LinkRates::of(GpuGeneration::Mi300, epyc),
        ),
        "pcie-phb" => Some((
            pci(4, &LinkRates::of(GpuGeneration::AmpereCard, Processor::Intel)),
            network(100.0),
        )),
        _ => {
            let shape = name.strip_prefix("cpu:")?;
            let (ranks, nodes) = shape.split_once('x').unwrap_or((shape, "1"));
            let ranks = number(ranks)?;
            let nodes = number(nodes)?;
            (ranks * nodes <= MOST).then(|| (cpu(ranks, nodes), network(100.0)))
        }
    }
}

/// A host with its GPUs on PCI switches. Each switch has as many network cards as GPUs.
#[derive(Clone, Copy)]
struct HostSpec {
    gpus: usize,
    sockets: usize,
    per_switch: usize,
    links: GpuWiring,
}

#[derive(Clone, Copy)]
enum GpuWiring {
    /// The number of NVLinks from each GPU to a switch.
    Switch(u32),
    /// The number of XGMI links between any two GPUs.
    Mesh(u32),
}

impl HostSpec {
    fn build(self, rates: &LinkRates) -> Topology {
        let mut host = Topology::new();
        let gpus: Vec<_> = (0..self.gpus)
            .map(|nth| host.add(NodeKind::Gpu, Some(0), format!("GPU{nth}")))
            .collect();
        let cards: Vec<_> = (0..self.gpus)
            .map(|nth| host.add(NodeKind::Nic, Some(0), format!("NIC{nth}")))
            .collect();
        let sockets = sockets(&mut host, self.sockets, rates);
        let switches = self.gpus / self.per_switch;
        for nth in 0..switches {
            let numa = sockets[nth * self.sockets / switches];
            let bridge = host.add(NodeKind::HostBridge, Some(0), format!("bridge{nth}"));
            let switch = host.add(NodeKind::PciSwitch, Some(0), format!("switch{nth}"));
            host.join(bridge, numa, LinkKind::Local, rates.bridge);
            host.join(switch, bridge, LinkKind::Pci, rates.bridge);
            for device in nth * self.per_switch..(nth + 1) * self.per_switch {
                host.join(gpus[device], switch, LinkKind::Pci, rates.pci);
                host.join(cards[device], switch, LinkKind::Pci, rates.pci);
            }
        }
        self.links.join(&mut host, &gpus, rates);
        host
    }
}

impl GpuWiring {
    fn join(self, host: &mut Topology, gpus: &[usize], rates: &LinkRates) {
        match self {
            Self::Switch(links) => {
                let switch = host.add(NodeKind::GpuSwitch, Some(0), "NVSwitch");
                let bandwidth = f64::from(links) * rates.link;
                gpus.iter()
                    .for_each(|&gpu| host.join(gpu, switch, LinkKind::NvLink(links), bandwidth));
            }
            Self::Mesh(links) => {
                for (nth, &gpu) in gpus.iter().enumerate() {
                    let bandwidth = f64::from(links) * rates.link;
                    gpus[..nth]
                        .iter()
                        .for_each(|&other| host.join(gpu, other, LinkKind::Xgmi(links), bandwidth));
                }
            }
        }
    }
}

fn sockets(host: &mut Topology, count: usize, rates: &LinkRates) -> Vec<usize> {
    let sockets: Vec<_> =
        (0..count).map(|nth| host.add(NodeKind::Numa, Some(0), format!("NUMA{nth}"))).collect();
    for (nth, &numa) in sockets.iter().enumerate() {
        sockets[..nth]
            .iter()
            .for_each(|&other| host.join(numa, other, LinkKind::Sockets, rates.sockets));
    }
    sockets
}

/// GPUs without direct links, on one host bridge.
fn pci(gpus: usize, rates: &LinkRates) -> Topology {
    let mut host = Topology::new();
    let gpus: Vec<_> =
        (0..gpus).map(|nth| host.add(NodeKind::Gpu, Some(0), format!("GPU{nth}"))).collect();
    let bridge = host.add(NodeKind::HostBridge, Some(0), "bridge0");
    gpus.iter().for_each(|&gpu| host.join(gpu, bridge, LinkKind::Pci, rates.bridge));
    let card = host.add(NodeKind::Nic, Some(0), "NIC0");
    host.join(card, bridge, LinkKind::Pci, rates.bridge);
    host
}

/// Ranks on cores. A message is written by one core and read by another, and crosses the memory of
/// a NUMA node in between. That memory is a link of its own, which all cores of the node share.
fn cpu(ranks: usize, nodes: usize) -> Topology {
    let rates = LinkRates::of(GpuGeneration::Ampere, Processor::Intel);
    let mut host = Topology::new();
    let cores: Vec<_> = (0..ranks * nodes)
        .map(|nth| host.add(NodeKind::Core, Some(0), format!("CPU{nth}")))
        .collect();
    let card = host.add(NodeKind::Nic, Some(0), "NIC0");
    let mut memories: Vec<(usize, usize)> = Vec::new();
    for nth in 0..nodes {
        let [written, read] = ["in", "out"]
            .map(|side| host.add(NodeKind::Numa, Some(0), format!("memory{nth}/{side}")));
        host.add_link(written, read, LinkKind::Local, rates.memory);
        for &core in &cores[nth * ranks..(nth + 1) * ranks] {
            host.add_link(core, written, LinkKind::Local, rates.core);
            host.add_link(read, core, LinkKind::Local, rates.core);
        }
        for &(other_written, other_read) in &memories {
            host.add_link(read, other_written, LinkKind::Sockets, rates.sockets);
            host.add_link(other_read, written, LinkKind::Sockets, rates.sockets);
        }
        memories.push((written, read));
    }
    let bridge = host.add(NodeKind::HostBridge, Some(0), "bridge0");
    host.add_link(memories[0].1, bridge, LinkKind::Local, rates.bridge);
    host.add_link(bridge, memories[0].0, LinkKind::Local, rates.bridge);
    host.join(card, bridge, LinkKind::Pci, rates.pci);
    host
}

/// Builds `hosts` equal hosts whose network cards are joined by `fabric`. `speeds` is the
/// bandwidth of each card of a host on the network, in GB/s, in the order of
/// [`Topology::nodes_of`]. The n-th cards of all hosts are rail n.
///
/// # Panics
/// If `speeds` does not have one speed for each card.
pub fn several_of(host: &Topology, hosts: usize, speeds: &[f64], fabric: Fabric) -> Topology {
    let cards = host.nodes_of(NodeKind::Nic);
    assert_eq!(cards.len(), speeds.len(), "one speed for each network card");
    let mut cluster = Topology::new();
    let grown: Vec<usize> = (0..hosts).map(|_| cluster.append(host)).collect();
    let shared = |cluster: &mut Topology, name| cluster.add(NodeKind::NetworkSwitch, None, name);
    let flat = (fabric == Fabric::Flat).then(|| shared(&mut cluster, "network"));
    let spine = (fabric == Fabric::Rails).then(|| shared(&mut cluster, "spine"));
    for (rail, (&card, &speed)) in cards.iter().zip(speeds).enumerate() {
        let switch = flat
            .unwrap_or_else(|| cluster.add(NodeKind::NetworkSwitch, None, format!("rail{rail}")));
        grown
            .iter()
            .for_each(|&grown| cluster.join(card + grown, switch, LinkKind::Network, speed));
        if let Some(spine) = spine {
            cluster.join(switch, spine, LinkKind::Network, speed * hosts as f64);
        }
    }
    cluster
}

#[cfg(test)]
mod tests {
    use super::*;
    use maypole::topology::model::class::PathClass;

    #[test]
    fn named_hosts_have_the_expected_paths() {
        let between = |name: &str, a: usize, b: usize| {
            let cluster = named(name, Fabric::Flat).unwrap();
            let devices = cluster.devices();
            cluster.path(devices[a], devices[b]).map(|path| (path.class, path.bandwidth)).unwrap()
        };
        assert_eq!(between("dgx-a100", 0, 7), (PathClass::NvLink(12), 240.0));
        assert_eq!(between("hgx-b200", 3, 4), (PathClass::NvLink(18), 18.0 * 40.1));
        assert_eq!(between("mi300x", 3, 4).0, PathClass::Xgmi(1));
        assert_eq!(between("pcie-phb", 1, 2), (PathClass::Phb, 20.0));
        assert_eq!(between("cpu:4x2", 0, 3), (PathClass::Node, 10.0));
        assert_eq!(between("cpu:4x2", 0, 4), (PathClass::Sys, 10.0));
        assert_eq!(between("2xdgx-a100", 0, 9), (PathClass::Net, 24.0));
    }

    #[test]
    fn each_fabric_joins_the_cards_that_it_promises() {
        let reach = |fabric, other: usize| {
            let cluster = named("2xdgx-h100", fabric).unwrap();
            let cards = cluster.nodes_of(NodeKind::Nic);
            let cables = cluster.paths_over(cards[0], |link| link.kind == LinkKind::Network);
            cables.to(cards[8 + other]).map(|path| path.links.len())
        };
        assert_eq!((reach(Fabric::Flat, 0), reach(Fabric::Flat, 1)), (Some(2), Some(2)));
        assert_eq!((reach(Fabric::Rails, 0), reach(Fabric::Rails, 1)), (Some(2), Some(4)));
        assert_eq!(
            (reach(Fabric::IsolatedRails, 0), reach(Fabric::IsolatedRails, 1)),
            (Some(2), None)
        );
    }

    #[test]
    fn unknown_names_are_refused() {
        for name in [
            "",
            "dgx",
            "0xdgx-h100",
            "99999xdgx-h100",
            "2x2xdgx-h100",
            "cpu:",
            "cpu:0x2",
            "cpu:9999x9999",
            "x",
        ] {
            assert!(named(name, Fabric::Flat).is_err(), "{name}");
        }
    }
}
