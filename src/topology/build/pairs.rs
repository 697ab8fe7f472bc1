//! A host made up from what is known of each pair of its devices.
//!
//! `nvidia-smi topo -m` says how far apart two devices are, not what stands between them. The least
//! that explains it is built: devices that are PIX of one another hang on one switch, those and PXB
//! on one above, PHB on one host bridge, NODE on one NUMA node. Where pairs contradict each other,
//! the nearer class is believed: PIX with the same third device is PIX. What lies on the PCI side
//! of an NVLink is not said, and so every such card gets a bridge of its own unless other pairs of
//! it, or its NUMA node, tell.

use crate::topology::model::bandwidth::Rates;
use crate::topology::model::class::Class;
use crate::topology::model::graph::{Kind, LinkKind, Topology};

/// One row of what is known.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Device {
    /// A GPU or a network card.
    pub kind: Kind,
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
/// use maypole::topology::model::bandwidth::{Generation, Processor, Rates};
/// use maypole::topology::build::pairs::{Device, host};
/// use maypole::topology::{Class, Kind};
/// let device = |kind, name: &str| Device { kind, name: name.to_owned(), numa: None };
/// let devices = [device(Kind::Gpu, "GPU0"), device(Kind::Gpu, "GPU1"), device(Kind::Nic, "mlx5_0")];
/// let (x, nv, pix, sys) = (Class::Same, Class::NvLink(4), Class::Pix, Class::Sys);
/// let rates = Rates::of(Generation::Ampere, Processor::Amd);
/// let host = host(&devices, &[vec![x, nv, pix], vec![nv, x, sys], vec![pix, sys, x]], &rates);
/// assert_eq!(host.path(0, 1).unwrap().bandwidth, 80.0);
/// assert_eq!(host.path(1, 2).unwrap().class, Class::Sys);
/// ```
///
/// # Panics
/// If there is not one class for each pair of devices.
pub fn host(devices: &[Device], classes: &[Vec<Class>], rates: &Rates) -> Topology {
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
    for node in groups(&all, |a, b| within(Class::Node)(a, b) || same_numa(a, b)) {
        let numa = host.add(Kind::Numa, Some(0), format!("NUMA{}", sockets.len()));
        sockets.push(numa);
        for members in groups(&node, within(Class::Phb)) {
            let bridge = host.add(Kind::HostBridge, Some(0), format!("bridge{}", members[0]));
            host.join(bridge, numa, LinkKind::Local, rates.bridge);
            for members in groups(&members, within(Class::Pxb)) {
                hang(&mut host, bridge, &groups(&members, within(Class::Pix)), rates);
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

const fn is_pci(class: Class) -> bool {
    matches!(class, Class::Pix | Class::Pxb | Class::Phb | Class::Node | Class::Sys)
}

/// Groups of devices that are PIX of one another, PXB between groups, below one root port. Between
/// two groups there are two switches at least; a device with none beside it needs no switch at all.
fn hang(host: &mut Topology, bridge: usize, groups: &[Vec<usize>], rates: &Rates) {
    let several = groups.len() > 1;
    let mut above = bridge;
    if several {
        above = host.add(Kind::PciSwitch, Some(0), format!("switches{}", groups[0][0]));
        host.join(above, bridge, LinkKind::Pci, rates.bridge);
    }
    for group in groups {
        let mut parent = above;
        if several || group.len() > 1 {
            parent = host.add(Kind::PciSwitch, Some(0), format!("switch{}", group[0]));
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
fn direct(host: &mut Topology, classes: &[Vec<Class>], rates: &Rates) {
    let nvlinks =
        |row: &Vec<Class>| row.iter().filter_map(|class| nvlink(*class)).collect::<Vec<_>>();
    let switched = classes.iter().any(|row| nvlinks(row).iter().sum::<u32>() > MOST_LINKS);
    let switch = switched.then(|| host.nodes().len()).inspect(|_| {
        host.add(Kind::GpuSwitch, Some(0), "NVSwitch");
    });
    for (a, row) in classes.iter().enumerate() {
        if let (Some(switch), Some(&links)) = (switch, nvlinks(row).iter().max()) {
            host.join(a, switch, LinkKind::NvLink(links), f64::from(links) * rates.link);
        }
        for (b, class) in row.iter().enumerate().skip(a + 1) {
            match *class {
                Class::NvLink(links) if switch.is_none() => {
                    host.join(a, b, LinkKind::NvLink(links), f64::from(links) * rates.link);
                }
                Class::Xgmi(links) => {
                    host.join(a, b, LinkKind::Xgmi(links), f64::from(links) * rates.link)
                }
                _ => {}
            }
        }
    }
}

const fn nvlink(class: Class) -> Option<u32> {
    match class {
        Class::NvLink(links) => Some(links),
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
    use crate::topology::model::bandwidth::{Generation, Processor};

    fn built(text: &str) -> (Vec<Vec<Class>>, Topology) {
        let row = |line: &str| line.split_whitespace().map(|cell| cell.parse().unwrap()).collect();
        let classes: Vec<Vec<Class>> = text.trim().lines().map(row).collect();
        let device = |nth| Device { kind: Kind::Gpu, name: format!("GPU{nth}"), numa: None };
        let devices: Vec<_> = (0..classes.len()).map(device).collect();
        let built = host(&devices, &classes, &Rates::of(Generation::Ampere, Processor::Amd));
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
        assert_eq!((four.of(Kind::GpuSwitch).len(), four.path(0, 3).unwrap().links.len()), (0, 1));
        let (_, three) = built("X NV12 NV12\nNV12 X NV12\nNV12 NV12 X");
        assert_eq!(
            (three.of(Kind::GpuSwitch).len(), three.path(0, 2).unwrap().links.len()),
            (1, 2)
        );
    }
}
