//! The GPUs and network cards of a topology file, and the path of each pair through the tree of PCI
//! devices.

use super::system::{DirectLink, Gpu, Net, NumaNode, PciDevice, System};
use crate::topology::read::printed::PrintedClass;
use crate::topology::read::summary::{DeviceSummary, NearestNics, direct_links};

/// A switch that joins all GPUs linked to it, by its PCI class.
const NVSWITCH: u32 = 0x06_8000;

/// A device and the bridges above it.
#[derive(Clone, Debug)]
pub(crate) struct PlacedDevice<'a, T> {
    /// The index of its CPU, and the bridges below that CPU, from the top.
    pub(crate) cpu: usize,
    pub(crate) bridges: Vec<&'a PciDevice>,
    /// The host bridge above all of them, if it is known.
    pub(crate) root: Option<&'a str>,
    pub(crate) device: T,
}

/// A GPU: its PCI device, and its `<gpu>` element if the file has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PciGpu<'a> {
    pub(crate) pci: &'a PciDevice,
    pub(crate) gpu: Option<&'a Gpu>,
}

/// A network card: an interface and its PCI device, or only the device if the file has no
/// interfaces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PciNic<'a> {
    pub(crate) net: Option<&'a Net>,
    pub(crate) pci: Option<&'a PciDevice>,
}

impl PciNic<'_> {
    pub(crate) fn name(&self) -> &str {
        let bus = self.pci.map_or("", |pci| &pci.bus);
        self.net.map_or(bus, |net| &net.name)
    }
}

/// All devices of a system.
pub(crate) struct PlacedDevices<'a> {
    pub(crate) gpus: Vec<PlacedDevice<'a, PciGpu<'a>>>,
    pub(crate) cards: Vec<PlacedDevice<'a, PciNic<'a>>>,
    bare: Vec<PlacedDevice<'a, PciNic<'a>>>,
}

impl System {
    /// The GPUs and network cards: in the order of their numbers if all have one, else in the
    /// order of the file.
    pub(crate) fn devices(&self) -> PlacedDevices<'_> {
        let mut found = PlacedDevices { gpus: Vec::new(), cards: Vec::new(), bare: Vec::new() };
        for (number, cpu) in self.cpus.iter().enumerate() {
            found.visit_cpu(number, cpu);
        }
        in_order(&mut found.gpus, |it| it.gpu?.device);
        in_order(&mut found.cards, |it| it.net?.device);
        // A file that was written by hand has no interfaces. Then the PCI devices are the cards.
        if found.cards.is_empty() {
            found.cards = std::mem::take(&mut found.bare);
        }
        found
    }

    /// The number of GPUs and network cards.
    pub(crate) fn device_count(&self) -> usize {
        let devices = self.devices();
        devices.gpus.len() + devices.cards.len()
    }

    /// Returns the names of the network cards, in the order of [`summary`](System::summary).
    pub fn nic_names(&self) -> Vec<String> {
        self.devices().cards.iter().map(|card| card.device.name().to_owned()).collect()
    }

    /// Summarises the GPUs, their links and their nearest network cards.
    pub fn summary(&self) -> DeviceSummary {
        let devices = self.devices();
        let gpus = &devices.gpus;
        let class =
            |a: usize, b: usize| if a == b { PrintedClass::Same } else { devices.class(a, b) };
        let links: Vec<Vec<_>> =
            (0..gpus.len()).map(|a| (0..gpus.len()).map(|b| class(a, b)).collect()).collect();
        let to_cards = |gpu: &PlacedDevice<PciGpu>| {
            devices.cards.iter().map(|card| between(gpu, card)).collect()
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
}

impl<'a> PlacedDevices<'a> {
    fn visit_cpu(&mut self, number: usize, cpu: &'a NumaNode) {
        let net = |net| PlacedDevice {
            cpu: number,
            bridges: Vec::new(),
            root: None,
            device: PciNic { net: Some(net), pci: None },
        };
        self.cards.extend(cpu.nets.iter().map(net));
        for pci in &cpu.devices {
            self.visit(pci, number, &[]);
        }
    }

    fn visit(&mut self, pci: &'a PciDevice, cpu: usize, bridges: &[&'a PciDevice]) {
        let root = bridges.first().copied().unwrap_or(pci).root.as_deref();
        let card = |net| PlacedDevice {
            cpu,
            bridges: bridges.to_vec(),
            root,
            device: PciNic { net, pci: Some(pci) },
        };
        self.cards.extend(pci.nets.iter().map(Some).map(card));
        if pci.nets.is_empty() && pci.class.is_some_and(|class| class >> 16 == 0x02) {
            self.bare.push(card(None));
        }
        let is_display = pci.class.is_some_and(|class| matches!(class >> 8, 0x0300 | 0x0302));
        let gpu = |gpu| PlacedDevice {
            cpu,
            bridges: bridges.to_vec(),
            root,
            device: PciGpu { pci, gpu },
        };
        self.gpus.extend(pci.gpus.iter().map(Some).map(gpu));
        if pci.gpus.is_empty() && is_display {
            self.gpus.push(gpu(None));
        }
        let below = [bridges, &[pci]].concat();
        for device in &pci.devices {
            self.visit(device, cpu, &below);
        }
    }

    /// The class of direct links if there are any, else of the path over PCIe.
    fn class(&self, a: usize, b: usize) -> PrintedClass {
        let count = self.direct(a, b);
        match count {
            0 => between(&self.gpus[a], &self.gpus[b]),
            _ if self.links(a).any(|link| link.xgmi) => PrintedClass::Xgmi(Some(count)),
            _ => PrintedClass::NvLink(count),
        }
    }

    /// The number of links from `a` to `b`. Through switches, it is the number of links to switches
    /// of the GPU that has fewer.
    fn direct(&self, a: usize, b: usize) -> u32 {
        match self.straight(a, b) {
            0 => self.to_switches(a).min(self.to_switches(b)),
            links => links,
        }
    }

    /// The number of links from `a` to `b` with no switch between.
    pub(crate) fn straight(&self, a: usize, b: usize) -> u32 {
        let target = &self.gpus[b].device.pci.bus;
        self.links(a).filter(|link| link.target == *target).map(|link| link.count).sum()
    }

    /// The number of links of a GPU to switches.
    pub(crate) fn to_switches(&self, gpu: usize) -> u32 {
        self.links(gpu).filter(|link| link.class == Some(NVSWITCH)).map(|link| link.count).sum()
    }

    pub(crate) fn links(&self, gpu: usize) -> impl Iterator<Item = &'a DirectLink> {
        self.gpus[gpu].device.gpu.into_iter().flat_map(|gpu| &gpu.links)
    }
}

fn in_order<T>(placed: &mut [PlacedDevice<'_, T>], number: impl Fn(&T) -> Option<i64>) {
    if placed.iter().all(|it| number(&it.device).is_some()) {
        placed.sort_by_key(|it| number(&it.device));
    }
}

/// The class of the path up to the lowest common bridge or CPU and down again. Below a common
/// bridge it depends on the number of bridges on the path.
fn between<T, U>(a: &PlacedDevice<T>, b: &PlacedDevice<U>) -> PrintedClass {
    let common =
        a.bridges.iter().zip(&b.bridges).take_while(|(a, b)| std::ptr::eq(**a, **b)).count();
    let crossed = a.bridges.len() + b.bridges.len() - 2 * common + 1;
    match (common, crossed) {
        _ if a.cpu != b.cpu => PrintedClass::Sys,
        (0, _) => match (a.root, b.root) {
            (Some(a), Some(b)) if a != b => PrintedClass::Node,
            _ => PrintedClass::Phb,
        },
        (_, 0 | 1) => PrintedClass::Pix,
        _ => PrintedClass::Pxb,
    }
}
