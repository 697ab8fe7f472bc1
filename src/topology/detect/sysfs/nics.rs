//! Network cards: InfiniBand and RoCE ports, and the interfaces of cards that have no such port.

use super::{is_bus, name_of, names, text};
use crate::topology::system::Net;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// One port or interface, and the address of its card.
struct NicPort {
    bus: String,
    net: Net,
}

/// The ports and interfaces by the address of their card, numbered over the whole machine. Also a
/// note on each port that is down.
pub(super) fn read(root: &Path) -> (BTreeMap<String, Vec<Net>>, Vec<String>) {
    let mut notes = Vec::new();
    let mut ports = infiniband(root, &mut notes);
    let fast: Vec<String> = ports.iter().map(|port| port.bus.clone()).collect();
    ports.extend(interfaces(root, &mut notes).into_iter().filter(|port| !fast.contains(&port.bus)));
    let mut cards: BTreeMap<String, Vec<Net>> = BTreeMap::new();
    for (number, port) in ports.into_iter().enumerate() {
        cards.entry(port.bus).or_default().push(Net { device: Some(number as i64), ..port.net });
    }
    (cards, notes)
}

/// `/sys/class/infiniband/mlx5_0/ports/1/rate`: `200 Gb/sec (4X HDR)`.
fn infiniband(root: &Path, notes: &mut Vec<String>) -> Vec<NicPort> {
    let folder = root.join("sys/class/infiniband");
    let mut found = Vec::new();
    for name in names(&folder) {
        let device = folder.join(&name);
        let Some(bus) = bus_of(&device) else { continue };
        for port in names(&device.join("ports")) {
            let port_folder = device.join("ports").join(&port);
            let state = text(&port_folder, "state").unwrap_or_default();
            let up = state.contains("ACTIVE");
            if !up {
                notes.push(format!("{name}: port {port} is not active: its state is {state:?}"));
            }
            let rate = text(&port_folder, "rate")
                .and_then(|rate| rate.split_once(' ')?.0.parse::<f64>().ok());
            let speed = rate.filter(|_| up).map(|gigabits| (gigabits * 1000.0) as i64);
            let net = Net { name: name.clone(), speed, port: port.parse().ok(), ..Net::default() };
            found.push(NicPort { bus: bus.clone(), net });
        }
    }
    found
}

/// `/sys/class/net/eth0/speed`: Mbit/s; -1 or unreadable if unknown to the kernel.
fn interfaces(root: &Path, notes: &mut Vec<String>) -> Vec<NicPort> {
    let folder = root.join("sys/class/net");
    let mut found = Vec::new();
    for name in names(&folder) {
        let interface = folder.join(&name);
        // An interface without a device is virtual: the loopback, a bridge, a tunnel.
        let Some(bus) = bus_of(&interface) else { continue };
        let state = text(&interface, "operstate").unwrap_or_default();
        if state == "down" {
            notes.push(format!("{name} is down"));
        }
        let speed = text(&interface, "speed")
            .and_then(|speed| speed.parse().ok())
            .filter(|speed| *speed > 0);
        found.push(NicPort { bus, net: Net { name, speed, ..Net::default() } });
    }
    found
}

/// The address of the PCI device that an entry's `device` link leads to. The link of a virtio
/// device leads to virtio's own bus. Then it is the address of the PCI device above.
fn bus_of(entry: &Path) -> Option<String> {
    let path = fs::canonicalize(entry.join("device")).ok()?;
    path.ancestors().filter_map(name_of).find(|name| is_bus(name))
}
