//! A host made up from what is known of each pair of its devices.
//!
//! `nvidia-smi topo -m` says how far apart two devices are, not what stands between them. The least
//! that explains it is built: devices that are PIX of one another hang on one switch, those and PXB
//! on one above, PHB on one host bridge, NODE on one NUMA node. Where pairs contradict each other,
//! the nearer class is believed: PIX with the same third device is PIX. What lies on the PCI side
//! of an NVLink is not said, and so every such card gets a bridge of its own unless other pairs of
//! it, or its NUMA node, tell.

use crate::topology::model::bandwidth::LinkRates;
use crate::topology::model::class::PathClass;
use crate::topology::model::graph::{LinkKind, NodeKind, Topology};

/// One row of what is known.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct HostDevice {
    /// A GPU or a network card.
    pub kind: NodeKind,
    /// `GPU0`, `mlx5_0`.
    pub name: String,
    /// On which NUMA node it is said to be; devices of one number share one.
    pub numa: Option<usize>,
}

/// No GPU has more NVLinks: with more to all others together, they go to a switch.
const MOST_LINKS: u32 = 18;

/// The host whose devices are `devices`, in their order and so with their numbers, `classes[a][b]`
/// apart.
///
/// ```
/// use maypole::topology::model::bandwidth::{GpuGeneration, Processor, LinkRates};
/// use maypole::topology::build::pairs::{HostDevice, host};
/// use maypole::topology::{PathClass, NodeKind};
/// let device = |kind, name: &str| HostDevice { kind, name: name.to_owned(), numa: None };
/// let devices = [device(NodeKind::Gpu, "GPU0"), device(NodeKind::Gpu, "GPU1"), device(NodeKind::Nic, "mlx5_0")];
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
/// If there is not one class for each pair of devices.
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
                hang(&mut host, bridge, &groups(&members, within(PathClass::Pix)), rates);
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

/// Groups of devices that are PIX of one another, PXB between groups, below one root port. Between
/// two groups there are two switches at least; a device with none beside it needs no switch at all.
fn hang(host: &mut Topology, bridge: usize, groups: &[Vec<usize>], rates: &LinkRates) {
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

/// NVLinks and XGMI links: from pair to pair, or, where a GPU would need more than there are, to a
/// switch.
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

/// `members` by who is joined with whom, directly or through others; groups by their first member.
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
    use crate::topology::model::bandwidth::{GpuGeneration, Processor};

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
    fn what_was_printed_comes_out_again() {
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
