//! The GPUs and network cards of a system, each with the bridges above it.

use super::{DirectLink, Gpu, Net, NumaNode, PciDevice, System};

/// A switch that joins all GPUs linked to it, by its PCI class.
const NVSWITCH: u32 = 0x06_8000;

/// A device and the bridges above it.
#[derive(Clone, Debug)]
pub struct PlacedDevice<'a, T> {
    /// The index of its NUMA node in [`System::cpus`].
    pub cpu: usize,
    /// The bridges between the NUMA node and the device, from the top.
    pub bridges: Vec<&'a PciDevice>,
    /// The host bridge above all of them, if it is known.
    pub root: Option<&'a str>,
    /// The device: a [`PciGpu`] or a [`PciNic`].
    pub device: T,
}

/// A GPU.
#[derive(Clone, Copy, Debug)]
pub struct PciGpu<'a> {
    /// Its PCI device.
    pub pci: &'a PciDevice,
    /// Its attributes as a GPU, if they are known.
    pub gpu: Option<&'a Gpu>,
}

/// A network card: an interface and its PCI device, or only the device if no interfaces are known.
#[derive(Clone, Copy, Debug)]
pub struct PciNic<'a> {
    /// The interface.
    pub net: Option<&'a Net>,
    /// The PCI device; `None` for a virtual interface.
    pub pci: Option<&'a PciDevice>,
}

impl PciNic<'_> {
    /// The name of the interface, or else the address of the device.
    pub fn name(&self) -> &str {
        let bus = self.pci.map_or("", |pci| &pci.bus);
        self.net.map_or(bus, |net| &net.name)
    }
}

/// All GPUs and network cards of a system.
#[derive(Clone, Debug)]
pub struct PlacedDevices<'a> {
    /// The GPUs.
    pub gpus: Vec<PlacedDevice<'a, PciGpu<'a>>>,
    /// The network cards.
    pub cards: Vec<PlacedDevice<'a, PciNic<'a>>>,
    bare: Vec<PlacedDevice<'a, PciNic<'a>>>,
}

impl System {
    /// The GPUs and network cards: in the order of their numbers if all have one, else in the
    /// order of the file.
    pub fn devices(&self) -> PlacedDevices<'_> {
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

    /// The number of links from `a` to `b` with no switch between.
    pub fn straight(&self, a: usize, b: usize) -> u32 {
        let target = &self.gpus[b].device.pci.bus;
        self.links(a).filter(|link| link.target == *target).map(|link| link.count).sum()
    }

    /// The number of links of a GPU to switches.
    pub fn to_switches(&self, gpu: usize) -> u32 {
        self.links(gpu).filter(|link| link.class == Some(NVSWITCH)).map(|link| link.count).sum()
    }

    /// The direct links of a GPU.
    ///
    /// # Panics
    /// If there is no such GPU, as in the methods above.
    pub fn links(&self, gpu: usize) -> impl Iterator<Item = &'a DirectLink> {
        self.gpus[gpu].device.gpu.into_iter().flat_map(|gpu| &gpu.links)
    }
}

fn in_order<T>(placed: &mut [PlacedDevice<'_, T>], number: impl Fn(&T) -> Option<i64>) {
    if placed.iter().all(|it| number(&it.device).is_some()) {
        placed.sort_by_key(|it| number(&it.device));
    }
}
