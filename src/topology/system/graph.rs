//! The graph of a system.

use super::{Gpu, NumaNode, PciDevice, PciGpu, PlacedDevice, PlacedDevices, System};
use crate::topology::model::bandwidth::{GpuGeneration, Processor, pci};
use crate::topology::model::graph::{LinkKind, NodeKind, Topology};

impl System {
    /// Builds the graph, with the rates of the [assumed](Self::assumed) generation.
    pub fn topology(&self) -> Topology {
        let (generation, processor) = self.assumed();
        self.topology_of(generation, processor)
    }

    /// Builds the graph of a machine with GPUs of `generation` and CPUs of `processor`. Speeds of PCI
    /// devices that the system has replace the rates of the generation.
    pub fn topology_of(&self, generation: GpuGeneration, processor: Processor) -> Topology {
        let devices = self.devices();
        let mut host = Topology::new();
        let of_host = |cpu: usize| Some(devices.hosts[cpu]);
        let gpus: Vec<usize> = (devices.gpus.iter().enumerate())
            .map(|(at, gpu)| host.add(NodeKind::Gpu, of_host(gpu.cpu), format!("GPU{at}")))
            .collect();
        let cards: Vec<usize> = (devices.cards.iter())
            .map(|card| host.add(NodeKind::Nic, of_host(card.cpu), card.device.name()))
            .collect();
        let number = |(at, cpu): (usize, &NumaNode)| cpu.numa.unwrap_or(at as i64);
        let numas: Vec<usize> = (self.cpus.iter().enumerate().map(number).enumerate())
            .map(|(at, number)| host.add(NodeKind::Numa, of_host(at), format!("NUMA{number}")))
            .collect();
        let bridges = Vec::new();
        let mut builder = TopologyBuilder { host, generation, processor, numas, bridges };
        builder.sockets(&devices.hosts);
        for (at, node) in gpus.iter().enumerate() {
            builder.gpu(at, *node, &devices);
        }
        for (node, PlacedDevice { cpu, bridges, root, device }) in cards.iter().zip(&devices.cards)
        {
            builder.join_to_bridge(*node, device.pci, (*cpu, *root), bridges);
        }
        builder.direct(&gpus, &devices);
        builder.host
    }

    /// Returns the generation of the first GPU that reports one, and the kind of the first
    /// processor; else Ampere, and Intel's processors since Skylake.
    pub fn assumed(&self) -> (GpuGeneration, Processor) {
        let gpus = self.devices().gpus;
        let generation = gpus.iter().find_map(|gpu| generation_of(gpu.device.gpu?));
        let processor = self.cpus.first().map_or(Processor::default(), processor_of);
        (generation.unwrap_or(GpuGeneration::Ampere), processor)
    }
}

/// The generation by the compute capability, or by AMD's name of the architecture.
fn generation_of(gpu: &Gpu) -> Option<GpuGeneration> {
    match (gpu.gcn.as_deref().map(|gcn| gcn.trim_start_matches("gfx")), gpu.sm?) {
        (Some("906" | "908"), _) => Some(GpuGeneration::Vega),
        (Some("910" | "90a"), _) => Some(GpuGeneration::Mi200),
        (Some(_), _) => Some(GpuGeneration::Mi300),
        (None, 60..70) => Some(GpuGeneration::Pascal),
        (None, 70..80) => Some(GpuGeneration::Volta),
        (None, 80) => Some(GpuGeneration::Ampere),
        (None, 81..90) => Some(GpuGeneration::AmpereCard),
        (None, 90..100) => Some(GpuGeneration::Hopper),
        (None, 100..) => Some(GpuGeneration::Blackwell),
        _ => None,
    }
}

/// The processor by vendor and model, like in NCCL's `topo.cc`.
fn processor_of(cpu: &NumaNode) -> Processor {
    let vendor = cpu.vendor.as_deref().unwrap_or_default();
    match (cpu.architecture.as_deref().unwrap_or_default(), vendor, cpu.model.unwrap_or(0)) {
        ("arm64", _, _) => Processor::Arm,
        ("ppc64", _, _) => Processor::Power9,
        (_, "AuthenticAMD", _) => Processor::Amd,
        (_, "GenuineIntel", 207..) => Processor::IntelEmeraldRapids,
        (_, "GenuineIntel", 143..) => Processor::IntelSapphireRapids,
        (_, "GenuineIntel", 1..85) => Processor::IntelOld,
        (_, vendor, _) if vendor.contains("Shanghai") || vendor == "CentaurHauls" => {
            Processor::Zhaoxin
        }
        _ => Processor::Intel,
    }
}

/// The graph of a system under construction.
struct TopologyBuilder<'a> {
    host: Topology,
    generation: GpuGeneration,
    processor: Processor,
    /// By CPU: its NUMA node.
    numas: Vec<usize>,
    /// Host bridges, and the switch of each PCI bridge.
    bridges: Vec<(BridgeName<'a>, usize)>,
}

/// A host bridge of a CPU, or the PCI bridge below it that is described there in memory.
#[derive(PartialEq)]
struct BridgeName<'a> {
    cpu: usize,
    root: Option<&'a str>,
    pci: Option<*const PciDevice>,
}

impl<'a> TopologyBuilder<'a> {
    fn sockets(&mut self, hosts: &[usize]) {
        for (a, b) in (0..hosts.len())
            .flat_map(|a| (0..a).map(move |b| (a, b)))
            .filter(|(a, b)| hosts[*a] == hosts[*b])
        {
            self.host.join(self.numas[a], self.numas[b], LinkKind::Sockets, self.processor.link());
        }
    }

    fn gpu(&mut self, at: usize, node: usize, devices: &PlacedDevices<'a>) {
        let PlacedDevice { cpu, bridges, root, device: PciGpu { pci, .. } } = &devices.gpus[at];
        self.join_to_bridge(node, Some(pci), (*cpu, *root), bridges);
        if let Some(bandwidth) = devices.c2c(at) {
            self.host.join(node, self.numas[*cpu], LinkKind::C2c, bandwidth);
        }
        let links = devices.to_cpu(at);
        if links > 0 {
            let bandwidth = f64::from(links) * self.generation.link();
            self.host.join(node, self.numas[*cpu], LinkKind::NvLink(links), bandwidth);
        }
    }

    /// Joins a device to the lowest bridge above it, and that to the next, up to the host bridge.
    fn join_to_bridge(
        &mut self,
        node: usize,
        pci: Option<&PciDevice>,
        above: (usize, Option<&'a str>),
        bridges: &[&'a PciDevice],
    ) {
        let bridge = self.bridge(above, bridges);
        let slot = self.slot(pci);
        let bandwidth = if bridges.is_empty() { self.processor.bridge(slot) } else { slot };
        self.host.join(node, bridge, LinkKind::Pci, bandwidth);
    }

    /// The lowest of `bridges`, which are below a host bridge `root` of a CPU; without any, the host bridge.
    fn bridge(
        &mut self,
        (cpu, root): (usize, Option<&'a str>),
        bridges: &[&'a PciDevice],
    ) -> usize {
        let pci = bridges.last().map(|pci| std::ptr::from_ref(*pci));
        let name = BridgeName { cpu, root, pci };
        if let Some((_, known)) = self.bridges.iter().find(|(known, _)| *known == name) {
            return *known;
        }
        let host = self.host.nodes()[self.numas[cpu]].host;
        let bridge = if let Some((pci, above)) = bridges.split_last() {
            let switch = self.host.add(NodeKind::PciSwitch, host, pci.bus.clone());
            self.join_to_bridge(switch, Some(pci), (cpu, root), above);
            switch
        } else {
            let label = root.map_or_else(|| format!("bridge{cpu}"), str::to_owned);
            let bridge = self.host.add(NodeKind::HostBridge, host, label);
            let bandwidth = self.processor.bridge(self.generation.pci());
            self.host.join(bridge, self.numas[cpu], LinkKind::Local, bandwidth);
            bridge
        };
        self.bridges.push((name, bridge));
        bridge
    }

    /// The bandwidth of a device's PCI link; the generation's usual one if the file does not have
    /// it.
    fn slot(&self, pci_device: Option<&PciDevice>) -> f64 {
        let rates = [2.5, 5.0, 8.0, 16.0, 32.0, 64.0];
        let of = |device: &PciDevice| {
            let generation =
                1 + rates.iter().position(|rate| Some(*rate) == device.gigatransfers)? as u32;
            let lanes = device
                .lanes
                .and_then(|lanes| u32::try_from(lanes).ok())
                .filter(|lanes| (1..=32).contains(lanes))?;
            Some(pci(generation, lanes))
        };
        pci_device.and_then(of).unwrap_or_else(|| self.generation.pci())
    }

    fn direct(&mut self, gpus: &[usize], devices: &PlacedDevices) {
        let rate = self.generation.link();
        let to_switches: Vec<u32> = (0..gpus.len()).map(|gpu| devices.to_switches(gpu)).collect();
        if to_switches.iter().any(|links| *links > 0) {
            let switch =
                self.host.add(NodeKind::GpuSwitch, self.host.nodes()[gpus[0]].host, "NVSwitch");
            for (gpu, &links) in gpus.iter().zip(&to_switches).filter(|(_, links)| **links > 0) {
                self.host.join(*gpu, switch, LinkKind::NvLink(links), f64::from(links) * rate);
            }
        }
        for (a, b) in (0..gpus.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
            let links = devices.straight(a, b).max(devices.straight(b, a));
            if links > 0 {
                let kind = if devices.links(a).any(|link| link.xgmi) {
                    LinkKind::Xgmi
                } else {
                    LinkKind::NvLink
                };
                self.host.join(gpus[a], gpus[b], kind(links), f64::from(links) * rate);
            }
        }
    }
}
