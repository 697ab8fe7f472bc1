//! The graph of a host from the path class of each pair of devices.
//!
//! `nvidia-smi topo -m` prints the distance of two devices, not the devices between them. This
//! module builds the smallest graph that explains the classes. Devices that are PIX of one another
//! are below one switch. Those that are PXB are below a common second switch. Those that are PHB
//! are below one host bridge, and those that are NODE on one NUMA node.
//!
//! Where classes contradict each other, the nearer class counts: two devices that are PIX of a
//! third one are PIX of each other. For two GPUs that NVLinks join, the matrix does not print the
//! class of their PCI path. Then each GPU gets its own host bridge, unless the classes of its other
//! pairs or its NUMA node place it elsewhere.

use crate::rates::LinkRates;
use maypole::topology::model::class::PathClass;
use maypole::topology::model::graph::{LinkKind, NodeKind, Topology};

/// One device of a host.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct HostDevice {
    /// The kind: a GPU or a network card.
    pub kind: NodeKind,
    /// The name: `GPU0`, `mlx5_0`.
    pub name: String,
    /// The number of its NUMA node, if found.
    pub numa: Option<usize>,
}

/// The largest number of NVLinks of a GPU. If the classes of a GPU add up to more links, its links
/// lead to a switch.
const MOST_LINKS: u32 = 18;

/// Builds the host with these devices, where `classes[a][b]` is the class of the path between
/// devices `a` and `b`. Their node numbers are their positions in `devices`.
///
/// ```
/// use maypole::topology::model::bandwidth::{GpuGeneration, Processor};
/// use maypole_cluster::rates::LinkRates;
/// use maypole_cluster::build::pairs::{HostDevice, host};
/// use maypole::topology::{PathClass, NodeKind};
/// let device = |kind, name: &str| HostDevice { kind, name: name.to_owned(), numa: None };
/// let gpus = [device(NodeKind::Gpu, "GPU0"), device(NodeKind::Gpu, "GPU1")];
/// let devices = [&gpus[..], &[device(NodeKind::Nic, "mlx5_0")]].concat();
/// let x = PathClass::Same;
/// let nv = PathClass::NvLink(4);
/// let pix = PathClass::Pix;
/// let sys = PathClass::Sys;
/// let rates = LinkRates::of(GpuGeneration::Ampere, Processor::Amd);
/// let host = host(&devices, &[vec![x, nv, pix], vec![nv, x, sys], vec![pix, sys, x]], &rates);
/// assert_eq!(host.path(0, 1).unwrap().bandwidth, 80.0);
/// assert_eq!(host.path(1, 2).unwrap().class, PathClass::Sys);
/// ```
///
/// # Panics
/// If `classes` does not have one class for each pair of devices.
pub fn host(devices: &[HostDevice], classes: &[Vec<PathClass>], rates: &LinkRates) -> Topology {
    let square =
        classes.len() == devices.len() && classes.iter().all(|row| row.len() == devices.len());
    assert!(square, "one class for each pair of {} devices", devices.len());
    let mut host = Topology::new();
    for device in devices {
        host.add(device.kind, Some(0), device.name.clone());
    }
    direct(&mut host, classes, rates);
    let same_numa =
        |a: usize, b: usize| devices[a].numa.is_some() && devices[a].numa == devices[b].numa;
    let within = |class| move |a: usize, b: usize| is_pci(classes[a][b]) && classes[a][b] >= class;
    let all: Vec<usize> = (0..devices.len()).collect();
    let mut sockets = Vec::new();
    for node in groups(&all, |a, b| within(PathClass::Node)(a, b) || same_numa(a, b)) {
        let numa = host.add(NodeKind::Numa, Some(0), format!("NUMA{}", sockets.len()));
        sockets.push(numa);
        for members in groups(&node, within(PathClass::Phb)) {
            let bridge = host.add(NodeKind::HostBridge, Some(0), format!("bridge{}", members[0]));
            host.join(bridge, numa, LinkKind::Local, rates.bridge);
            for members in groups(&members, within(PathClass::Pxb)) {
                add_below_bridge(
                    &mut host,
                    bridge,
                    &groups(&members, within(PathClass::Pix)),
                    rates,
                );
            }
        }
    }
    for (nth, &numa) in sockets.iter().enumerate() {
        sockets[..nth]
            .iter()
            .for_each(|&other| host.join(numa, other, LinkKind::Sockets, rates.sockets));
    }
    host
}

const fn is_pci(class: PathClass) -> bool {
    matches!(
        class,
        PathClass::Pix | PathClass::Pxb | PathClass::Phb | PathClass::Node | PathClass::Sys
    )
}

/// Adds groups of devices below one root port. Devices of a group are PIX of one another, groups
/// are PXB of one another: two switches stand between two groups. A single device needs no switch.
fn add_below_bridge(host: &mut Topology, bridge: usize, groups: &[Vec<usize>], rates: &LinkRates) {
    let several = groups.len() > 1;
    let mut above = bridge;
    if several {
        above = host.add(NodeKind::PciSwitch, Some(0), format!("switches{}", groups[0][0]));
        host.join(above, bridge, LinkKind::Pci, rates.bridge);
    }
    for group in groups {
        let mut parent = above;
        if several || group.len() > 1 {
            parent = host.add(NodeKind::PciSwitch, Some(0), format!("switch{}", group[0]));
            host.join(parent, above, LinkKind::Pci, if several { rates.pci } else { rates.bridge });
        }
        for &device in group {
            host.join(
                device,
                parent,
                LinkKind::Pci,
                if parent == bridge { rates.bridge } else { rates.pci },
            );
        }
    }
}

/// Adds NVLinks and XGMI links: between pairs, or to a switch if a GPU would need more links than
/// it can have.
fn direct(host: &mut Topology, classes: &[Vec<PathClass>], rates: &LinkRates) {
    let nvlinks =
        |row: &Vec<PathClass>| row.iter().filter_map(|class| nvlink(*class)).collect::<Vec<_>>();
    let switched = classes.iter().any(|row| nvlinks(row).iter().sum::<u32>() > MOST_LINKS);
    let switch = switched.then(|| host.nodes().len()).inspect(|_| {
        host.add(NodeKind::GpuSwitch, Some(0), "NVSwitch");
    });
    for (a, row) in classes.iter().enumerate() {
        if let (Some(switch), Some(&links)) = (switch, nvlinks(row).iter().max()) {
            host.join(a, switch, LinkKind::NvLink(links), f64::from(links) * rates.link);
        }
        for (b, class) in row.iter().enumerate().skip(a + 1) {
            match *class {
                PathClass::NvLink(links) if switch.is_none() => {
                    host.join(a, b, LinkKind::NvLink(links), f64::from(links) * rates.link);
                }
                PathClass::Xgmi(links) => {
                    host.join(a, b, LinkKind::Xgmi(links), f64::from(links) * rates.link)
                }
                _ => {}
            }
        }
    }
}

const fn nvlink(class: PathClass) -> Option<u32> {
    match class {
        PathClass::NvLink(links) => Some(links),
        _ => None,
    }
}

/// The connected components of `members`, in the order of their first members.
fn groups(members: &[usize], joined: impl Fn(usize, usize) -> bool) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for &member in members {
        let (mut with, without): (Vec<_>, Vec<_>) =
            groups.into_iter().partition(|group| group.iter().any(|&other| joined(member, other)));
        let mut merged: Vec<usize> = with.drain(..).flatten().chain([member]).collect();
        merged.sort_unstable();
        groups = without;
        groups.push(merged);
    }
    groups.sort_unstable();
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use maypole::topology::model::bandwidth::{GpuGeneration, Processor};

    fn built(text: &str) -> (Vec<Vec<PathClass>>, Topology) {
        let row = |line: &str| line.split_whitespace().map(|cell| cell.parse().unwrap()).collect();
        let classes: Vec<Vec<PathClass>> = text.trim().lines().map(row).collect();
        let device =
            |nth| HostDevice { kind: NodeKind::Gpu, name: format!("GPU{nth}"), numa: None };
        let devices: Vec<_> = (0..classes.len()).map(device).collect();
        let built = host(&devices, &classes, &LinkRates::of(GpuGeneration::Ampere, Processor::Amd));
        (classes, built)
    }

    fn check(text: &str) {
        let (classes, host) = built(text);
        for (a, row) in classes.iter().enumerate() {
            for (b, &class) in row.iter().enumerate() {
                assert_eq!(host.path(a, b).unwrap().class, class, "from {a} to {b} of{text}");
            }
        }
    }

    #[test]
    fn the_graph_has_the_printed_classes() {
        check("\nX");
        check("\nX PIX\nPIX X");
        check("\nX PXB\nPXB X");
        check("\nX PIX PXB PHB\nPIX X PXB PHB\nPXB PXB X PHB\nPHB PHB PHB X");
        check("\nX PHB NODE SYS\nPHB X NODE SYS\nNODE NODE X SYS\nSYS SYS SYS X");
        check("\nX NV4 SYS\nNV4 X SYS\nSYS SYS X");
        check("\nX NV12 NV12\nNV12 X NV12\nNV12 NV12 X");
        check("\nX XGMI1 SYS\nXGMI1 X XGMI1\nSYS XGMI1 X");
    }

    #[test]
    fn more_links_than_a_gpu_has_go_to_a_switch() {
        let (_, four) = built("X NV6 NV6 NV6\nNV6 X NV6 NV6\nNV6 NV6 X NV6\nNV6 NV6 NV6 X");
        assert_eq!(
            (four.nodes_of(NodeKind::GpuSwitch).len(), four.path(0, 3).unwrap().links.len()),
            (0, 1)
        );
        let (_, three) = built("X NV12 NV12\nNV12 X NV12\nNV12 NV12 X");
        assert_eq!(
            (three.nodes_of(NodeKind::GpuSwitch).len(), three.path(0, 2).unwrap().links.len()),
            (1, 2)
        );
    }
}
