//! The GPUs and network cards of a system, each with the bridges above it.

use super::{DirectLink, Gpu, Net, NumaNode, PciDevice, System};
use crate::labels;
use std::collections::BTreeSet;

/// A switch that joins all GPUs linked to it, and a CPU, by the PCI class of the link's end.
const NVSWITCH: u32 = 0x06_8000;
const CPU: u32 = 0x06_8001;

/// A device and the bridges above it.
#[derive(Clone, Debug)]
pub struct PlacedDevice<'a, T> {
    /// The index of its NUMA node in [`System::cpus`].
    pub cpu: usize,
    /// The bridges between the NUMA node and the device, from the top.
    pub bridges: Vec<&'a PciDevice>,
    /// The host bridge above all of them, if found.
    pub root: Option<&'a str>,
    /// The device: a [`PciGpu`] or a [`PciNic`].
    pub device: T,
}

/// A GPU.
#[derive(Clone, Copy, Debug)]
pub struct PciGpu<'a> {
    /// Its PCI device.
    pub pci: &'a PciDevice,
    /// Its attributes as a GPU, if found.
    pub gpu: Option<&'a Gpu>,
}

/// A network card: an interface and its PCI device, or only the device if no interface was found.
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
    /// By NUMA node: the number of its host.
    pub(super) hosts: Vec<usize>,
    bare: Vec<PlacedDevice<'a, PciNic<'a>>>,
}

impl System {
    /// The GPUs and network cards, host by host: in the order of their numbers if all have one,
    /// else in the order of the file. If there are several hosts and each GPU has a rank of its
    /// own, GPUs are in the order of their ranks.
    pub fn devices(&self) -> PlacedDevices<'_> {
        let hosts = labels::numbers(self.cpus.iter().map(|cpu| &cpu.host));
        let (gpus, cards, bare) = (Vec::new(), Vec::new(), Vec::new());
        let mut found = PlacedDevices { gpus, cards, hosts, bare };
        for (number, cpu) in self.cpus.iter().enumerate() {
            found.visit_cpu(number, cpu);
        }
        let rank = |placed: &PlacedDevice<'_, PciGpu<'_>>| placed.device.gpu?.rank;
        let ranks: Option<BTreeSet<i64>> = found.gpus.iter().map(rank).collect();
        let PlacedDevices { gpus, cards, hosts, .. } = &mut found;
        match ranks {
            Some(ranks) if ranks.len() == gpus.len() && hosts.iter().any(|host| *host > 0) => {
                gpus.sort_by_key(rank);
            }
            _ => in_order(gpus, hosts, |it| it.gpu?.device),
        }
        in_order(cards, hosts, |it| it.net?.device);
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

    /// The number of links from `a` to `b` with no switch between. PCI addresses are those of a
    /// host, so there is none between hosts.
    pub fn straight(&self, a: usize, b: usize) -> u32 {
        let target = &self.gpus[b].device.pci.bus;
        let is_near = self.are_of_one_host(self.gpus[a].cpu, self.gpus[b].cpu);
        let is_to_b = |link: &&DirectLink| link.target == *target && is_near;
        self.links(a).filter(is_to_b).map(|link| link.count).sum()
    }

    /// True if the NUMA nodes `a` and `b` are of one host.
    pub fn are_of_one_host(&self, a: usize, b: usize) -> bool {
        self.hosts[a] == self.hosts[b]
    }

    /// The number of links of a GPU to its CPU.
    pub fn to_cpu(&self, gpu: usize) -> u32 {
        self.links(gpu).filter(|link| link.class == Some(CPU)).map(|link| link.count).sum()
    }

    /// The bandwidth of the coherent links of a GPU to its CPU, in GB/s.
    pub fn c2c(&self, gpu: usize) -> Option<f64> {
        let (megabytes, links) = self.gpus[gpu].device.gpu?.c2c?;
        Some(megabytes as f64 * links as f64 / 1000.0).filter(|bandwidth| *bandwidth > 0.0)
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

fn in_order<T>(
    placed: &mut [PlacedDevice<'_, T>],
    hosts: &[usize],
    number: impl Fn(&T) -> Option<i64>,
) {
    let all_have_one = placed.iter().all(|it| number(&it.device).is_some());
    placed.sort_by_key(|it| (hosts[it.cpu], number(&it.device).filter(|_| all_have_one)));
}
