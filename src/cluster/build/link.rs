//! A link in words, and at another bandwidth.

use maypole::topology::{Link, LinkKind, Topology};

/// Describes a link: `GPU0 -> PCI0 (PCI, 24.0 GB/s)`. Names the hosts if there are several.
///
/// # Panics
/// If the link does not exist.
pub fn describe(topology: &Topology, link: usize) -> String {
    let Link { from, to, kind, bandwidth } = topology.links()[link];
    let name = match kind {
        LinkKind::NvLink(_) => "NVLink",
        LinkKind::Xgmi(_) => "XGMI",
        LinkKind::C2c => "C2C",
        LinkKind::Pci => "PCI",
        LinkKind::Local => "memory",
        LinkKind::Sockets => "sockets",
        _ => "network",
    };
    let (from, to) = (topology.label(from), topology.label(to));
    format!("{from} -> {to} ({name}, {bandwidth:.1} GB/s)")
}

/// Returns the same graph with another bandwidth of one link, in GB/s: with a measured one, for example.
///
/// # Panics
/// If the bandwidth is not a positive number.
pub fn with_bandwidth(topology: &Topology, link: usize, bandwidth: f64) -> Topology {
    let mut changed = Topology::new();
    for node in topology.nodes() {
        changed.add(node.kind, node.host, node.name.clone());
    }
    for (at, it) in topology.links().iter().enumerate() {
        let bandwidth = if at == link { bandwidth } else { it.bandwidth };
        changed.add_link(it.from, it.to, it.kind, bandwidth);
    }
    changed
}
