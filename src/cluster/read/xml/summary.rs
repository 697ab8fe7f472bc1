//! A summary of a system: the class of the path of each pair of devices through the tree of PCI
//! devices.

use crate::read::printed::PrintedClass;
use crate::read::summary::{DeviceSummary, NearestNics, direct_links};
use maypole::topology::system::{PciGpu, PlacedDevice, PlacedDevices, System};

/// Returns the names of the network cards of `system`, in the order of [`summary`].
pub fn nic_names(system: &System) -> Vec<String> {
    system.devices().cards.iter().map(|card| card.device.name().to_owned()).collect()
}

/// Summarises the GPUs of `system`, their links and their nearest network cards.
pub fn summary(system: &System) -> DeviceSummary {
    let devices = system.devices();
    let gpus = &devices.gpus;
    let between_gpus =
        |a: usize, b: usize| if a == b { PrintedClass::Same } else { class(&devices, a, b) };
    let links: Vec<Vec<_>> =
        (0..gpus.len()).map(|a| (0..gpus.len()).map(|b| between_gpus(a, b)).collect()).collect();
    let to_cards = |gpu: &PlacedDevice<PciGpu>| {
        devices.cards.iter().map(|card| between(&devices, gpu, card)).collect()
    };
    let to_cards: Vec<Vec<PrintedClass>> = gpus.iter().map(to_cards).collect();
    let nearest_nics = match devices.cards.len() {
        0 => None,
        _ => to_cards.iter().map(|classes| NearestNics::of(classes)).collect(),
    };
    let nics = Some(devices.cards.len());
    DeviceSummary {
        gpus: gpus.len(),
        nics,
        nvlinks: Some(direct_links(&links)),
        links,
        nearest_nics,
    }
}

/// The class of direct links if there are any, else of the path over PCIe.
fn class(devices: &PlacedDevices, a: usize, b: usize) -> PrintedClass {
    let count = direct(devices, a, b);
    match count {
        0 => between(devices, &devices.gpus[a], &devices.gpus[b]),
        _ if devices.links(a).any(|link| link.xgmi) => PrintedClass::Xgmi(Some(count)),
        _ => PrintedClass::NvLink(count),
    }
}

/// The number of links from `a` to `b`. Through switches, it is the number of links to switches
/// of the GPU that has fewer.
fn direct(devices: &PlacedDevices, a: usize, b: usize) -> u32 {
    match devices.straight(a, b) {
        0 => devices.to_switches(a).min(devices.to_switches(b)),
        links => links,
    }
}

/// The class of the path up to the lowest common bridge or CPU and down again. Below a common
/// bridge it depends on the number of bridges on the path.
fn between<T, U>(
    devices: &PlacedDevices,
    a: &PlacedDevice<T>,
    b: &PlacedDevice<U>,
) -> PrintedClass {
    let common =
        a.bridges.iter().zip(&b.bridges).take_while(|(a, b)| std::ptr::eq(**a, **b)).count();
    let crossed = a.bridges.len() + b.bridges.len() - 2 * common + 1;
    match (common, crossed) {
        _ if !devices.are_of_one_host(a.cpu, b.cpu) => PrintedClass::Net,
        _ if a.cpu != b.cpu => PrintedClass::Sys,
        (0, _) => match (a.root, b.root) {
            (Some(a), Some(b)) if a != b => PrintedClass::Node,
            _ => PrintedClass::Phb,
        },
        (_, 0 | 1) => PrintedClass::Pix,
        _ => PrintedClass::Pxb,
    }
}

/// Oddities of the direct links of `system`, and assumptions about them.
pub(super) fn notes(system: &System) -> Vec<String> {
    let devices = system.devices();
    let links = |gpu: usize| devices.links(gpu).map(|link| link.count).sum::<u32>();
    let all = 0..devices.gpus.len();
    let most = all.clone().map(links).max().unwrap_or(0);
    let lacking: Vec<String> =
        all.clone().filter(|gpu| links(*gpu) == 0).map(|gpu| format!("GPU{gpu}")).collect();
    let mut notes = Vec::new();
    if most > 0 && !lacking.is_empty() {
        let names = lacking.join(", ");
        notes.push(format!("no NVLink or XGMI link at {names}; other GPUs have {most}"));
    }
    let switched: Vec<usize> = all.clone().filter(|gpu| devices.to_switches(*gpu) > 0).collect();
    let cpu = |gpu: usize| devices.gpus[gpu].cpu;
    if switched.iter().any(|gpu| !devices.are_of_one_host(cpu(switched[0]), cpu(*gpu))) {
        notes.push(
            "the NVLinks of several hosts lead to switches: one NVLink domain is assumed, as NCCL \
             does"
                .to_owned(),
        );
    }
    let coherent: Vec<(usize, f64)> =
        all.filter_map(|gpu| Some((gpu, devices.c2c(gpu)?))).collect();
    for group in coherent.chunk_by(|a, b| a.1 == b.1) {
        let names: Vec<String> = group.iter().map(|(gpu, _)| format!("GPU{gpu}")).collect();
        let (names, bandwidth) = (names.join(", "), group[0].1);
        notes.push(format!("C2C of {bandwidth:.1} GB/s joins a CPU and each of {names}"));
    }
    notes
}
