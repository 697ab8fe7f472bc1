//! Information of the kernel, from files: `/sys/bus/pci`, `/sys/class/net`,
//! `/sys/class/infiniband`, `/sys/devices/system/node`, `/proc/cpuinfo`.

mod nics;

use crate::topology::detect::{CpuInfo, DetectedMachine};
use crate::topology::system::{Gpu, Net, NumaNode, PciDevice, System};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Reads the files. `gpus` are the GPUs that a driver reports, by address. Other GPUs are found by
/// vendor and PCI class.
pub(super) fn read(root: &Path, mut gpus: BTreeMap<String, Gpu>) -> DetectedMachine {
    let (mut cpus, processor) = cpus(root);
    let (cards, notes) = nics::read(root);
    let mut number = gpus.len() as i64;
    for (bus, path) in pci_devices(root) {
        let nets = cards.get(&bus).cloned().unwrap_or_default();
        let known = gpus.remove(&bus);
        let gpu = known.or_else(|| {
            is_gpu(&path).then(|| {
                number += 1;
                Gpu { device: Some(number - 1), ..Gpu::default() }
            })
        });
        if gpu.is_some() || !nets.is_empty() {
            plug(&mut cpus, &path, gpu, nets);
        }
    }
    // A sandbox may hide a GPU from the files, but not from the driver.
    for (bus, gpu) in gpus {
        cpus[0].devices.push(PciDevice {
            bus,
            class: Some(super::GPU),
            gpus: vec![gpu],
            ..PciDevice::default()
        });
    }
    let system = System { cpus, ..System::default() };
    DetectedMachine { system, processor, notes, ..DetectedMachine::default() }
}

/// The PCI class of a device, if the device is visible.
pub(super) fn class(root: &Path, bus: &str) -> Option<u32> {
    hexadecimal(&root.join("sys/bus/pci/devices").join(bus), "class")
}

/// The NUMA nodes, and the name of the processor. One NUMA node if the kernel has none.
fn cpus(root: &Path) -> (Vec<NumaNode>, Option<String>) {
    let info = CpuInfo::read(root);
    let vendor = info.value("vendor_id");
    let architecture = match (&vendor, info.value("CPU implementer"), info.value("cpu")) {
        (Some(_), ..) => Some("x86_64"),
        (_, Some(_), _) => Some("arm64"),
        (.., Some(name)) if name.starts_with("POWER") => Some("ppc64"),
        _ => None,
    };
    let cpu = |numa: Option<i64>| NumaNode {
        numa,
        architecture: architecture.map(str::to_owned),
        vendor: vendor.clone(),
        model: info.value("model").and_then(|text| text.parse().ok()),
        ..NumaNode::default()
    };
    let folder = root.join("sys/devices/system/node");
    let number = |name: &str| name.strip_prefix("node")?.parse::<i64>().ok();
    let mut nodes: Vec<i64> = names(&folder).iter().filter_map(|name| number(name)).collect();
    nodes.sort_unstable();
    let mut cpus: Vec<NumaNode> = nodes.into_iter().map(|node| cpu(Some(node))).collect();
    if cpus.is_empty() {
        cpus.push(cpu(None));
    }
    (cpus, info.name())
}

/// Every PCI device by address, with its folder in the tree of devices.
fn pci_devices(root: &Path) -> BTreeMap<String, PathBuf> {
    let folder = root.join("sys/bus/pci/devices");
    let found = names(&folder).into_iter().filter_map(|bus| {
        let path = fs::canonicalize(folder.join(&bus)).ok()?;
        Some((bus, path))
    });
    found.collect()
}

/// Whether a device is a GPU. Only devices of NVIDIA and AMD count, because the display device of a
/// server board has the same class.
fn is_gpu(path: &Path) -> bool {
    const NVIDIA: u32 = 0x10de;
    const AMD: u32 = 0x1002;
    let class = hexadecimal(path, "class").map_or(0, |class| class >> 8);
    match hexadecimal(path, "vendor") {
        Some(NVIDIA) => matches!(class, 0x0300 | 0x0302),
        Some(AMD) => matches!(class, 0x0300 | 0x0302 | 0x0380 | 0x1200),
        _ => false,
    }
}

/// Adds a device to the tree, below its bridges.
fn plug(cpus: &mut [NumaNode], path: &Path, gpu: Option<Gpu>, nets: Vec<Net>) {
    let above = above(path);
    let near = std::iter::once(path).chain(above.iter().rev().map(PathBuf::as_path));
    let numa = near
        .filter_map(|path| text(path, "numa_node")?.parse::<i64>().ok())
        .find(|numa| *numa >= 0);
    let cpu = cpus.iter().position(|cpu| cpu.numa == numa).unwrap_or(0);
    let root = above.first().unwrap_or(&path.to_owned()).parent().and_then(name_of);
    let mut devices = &mut cpus[cpu].devices;
    for (depth, bridge) in crossed(&above).into_iter().enumerate() {
        let bus = name_of(bridge).unwrap_or_default();
        let known = devices.iter().position(|device| device.bus == bus);
        let at = known.unwrap_or_else(|| {
            devices.push(PciDevice { root: root.clone().filter(|_| depth == 0), ..device(bridge) });
            devices.len() - 1
        });
        devices = &mut devices[at].devices;
    }
    let root = root.filter(|_| crossed(&above).is_empty());
    devices.push(PciDevice { root, gpus: gpu.into_iter().collect(), nets, ..device(path) });
}

/// The PCI devices above the device in `path`, from the top.
fn above(path: &Path) -> Vec<PathBuf> {
    let is_device = |path: &&Path| name_of(path).is_some_and(|name| is_bus(&name));
    let mut above: Vec<PathBuf> =
        path.ancestors().skip(1).take_while(is_device).map(Path::to_owned).collect();
    above.reverse();
    above
}

/// The switches among `above`, the PCI devices above a device. Every link of the tree shows as two
/// devices: the port above, and the device or switch below. The lower one of each pair is the
/// switch.
fn crossed(above: &[PathBuf]) -> Vec<&PathBuf> {
    let mut crossed: Vec<_> = above.iter().rev().skip(1).step_by(2).collect();
    crossed.reverse();
    crossed
}

fn device(path: &Path) -> PciDevice {
    let either = |names: [&str; 2]| names.into_iter().find_map(|name| text(path, name));
    let rate = either(["max_link_speed", "current_link_speed"]);
    let lanes = either(["max_link_width", "current_link_width"]);
    PciDevice {
        bus: name_of(path).unwrap_or_default(),
        class: hexadecimal(path, "class"),
        gigatransfers: rate.and_then(|rate| rate.split_once(' ')?.0.parse().ok()),
        lanes: lanes.and_then(|lanes| lanes.parse().ok()),
        ..PciDevice::default()
    }
}

/// `0000:3b:00.0`.
fn is_bus(name: &str) -> bool {
    let parts: Vec<&str> = name.split([':', '.']).collect();
    let is_hexadecimal =
        |part: &&str| !part.is_empty() && part.chars().all(|char| char.is_ascii_hexdigit());
    parts.len() == 4 && parts.iter().all(is_hexadecimal)
}

fn name_of(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}

/// The names in a folder, in ascending order. Empty if the folder does not exist.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

/// The content of a file of one line; `None` if it is empty or cannot be read.
fn text(folder: &Path, name: &str) -> Option<String> {
    let text = fs::read_to_string(folder.join(name)).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn hexadecimal(folder: &Path, name: &str) -> Option<u32> {
    u32::from_str_radix(text(folder, name)?.trim_start_matches("0x"), 16).ok()
}
