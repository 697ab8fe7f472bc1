//! Builds the graph of a machine from its description.
//!
//! Bandwidths that the description lacks come from
//! [`bandwidth`](crate::topology::model::bandwidth), by the generation of the GPUs and of the CPUs.
//! [`Description::assumed`] guesses both generations from the description.

use crate::topology::build::pairs::{HostDevice, host};
use crate::topology::model::bandwidth::{GpuGeneration, LinkRates, Processor, pci};
use crate::topology::model::class::PathClass;
use crate::topology::model::graph::{LinkKind, NodeKind, Topology};
use crate::topology::read::description::Description;
use crate::topology::read::matrix::Matrix;
use crate::topology::read::printed::PrintedClass;
use crate::topology::read::rocm::RocmTables;
use crate::topology::read::xml::paths::{PciGpu, PciNic, PlacedDevice, PlacedDevices};
use crate::topology::read::xml::{Gpu, NumaNode, PciDevice, System};

impl Description {
    /// Builds the graph, with the rates of the [assumed](Description::assumed) generation.
    pub fn topology(&self) -> Topology {
        let (generation, processor) = self.assumed();
        self.topology_of(generation, processor)
    }

    /// Builds the graph of a machine with GPUs of `generation` and CPUs of `processor`. Speeds in a
    /// topology file replace the rates of the generation.
    pub fn topology_of(&self, generation: GpuGeneration, processor: Processor) -> Topology {
        let rates = LinkRates::of(generation, processor);
        match self {
            Description::Matrix(matrix) => of_matrix(matrix, &rates),
            Description::System(system) => of_system(system, generation, processor),
            Description::Rocm(tables) => of_tables(tables, &rates),
        }
    }

    /// Returns the assumed generation of the GPUs and of the CPUs.
    ///
    /// A matrix shows only the number of NVLinks: 18 means Hopper (Blackwell also has 18), 12 or 4
    /// means Ampere, any other number Volta. Without NVLinks, Ampere is assumed, for the bandwidth
    /// of its PCI slot. AMD's tables do not count links: eight GPUs that are all joined mean MI300,
    /// others MI200.
    pub fn assumed(&self) -> (GpuGeneration, Processor) {
        match self {
            Description::Matrix(matrix) => (by_nvlinks(most_links(matrix)), Processor::default()),
            Description::Rocm(tables) => (by_mesh(tables), Processor::Amd),
            Description::System(system) => {
                let gpus = system.devices().gpus;
                let generation = gpus.iter().find_map(|gpu| generation_of(gpu.device.gpu?));
                let processor = system.cpus.first().map_or(Processor::default(), processor_of);
                (generation.unwrap_or(GpuGeneration::Ampere), processor)
            }
        }
    }
}

fn most_links(matrix: &Matrix) -> u32 {
    matrix.links.iter().flatten().flatten().map(|class| class.direct_links()).max().unwrap_or(0)
}

fn by_mesh(tables: &RocmTables) -> GpuGeneration {
    let joined = |row: &Vec<PrintedClass>| {
        row.iter().all(|cell| matches!(cell, PrintedClass::Same | PrintedClass::Xgmi(_)))
    };
    if tables.gpus.len() == 8 && tables.links.iter().all(joined) {
        GpuGeneration::Mi300
    } else {
        GpuGeneration::Mi200
    }
}

const fn by_nvlinks(most: u32) -> GpuGeneration {
    match most {
        13.. => GpuGeneration::Hopper,
        0 | 4 | 7..=12 => GpuGeneration::Ampere,
        _ => GpuGeneration::Volta,
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

fn of_matrix(matrix: &Matrix, rates: &LinkRates) -> Topology {
    // Two cards without a known class count as SYS, the farthest class within a host.
    let class = |cell: &Option<PrintedClass>| cell.map_or(PathClass::Sys, PrintedClass::class);
    let classes: Vec<Vec<PathClass>> =
        matrix.links.iter().map(|row| row.iter().map(class).collect()).collect();
    let numas = numa_nodes(matrix, &classes);
    let gpus = matrix.gpus.iter().zip(numas).map(|(name, numa)| HostDevice {
        kind: NodeKind::Gpu,
        name: name.clone(),
        numa,
    });
    let nics = (0..matrix.nics.len()).map(|nic| matrix.nic_name(nic).to_owned());
    let nics = nics.map(|name| HostDevice { kind: NodeKind::Nic, name, numa: None });
    host(&gpus.chain(nics).collect::<Vec<_>>(), &classes, rates)
}

/// The NUMA node of each GPU. `None` for all GPUs if the classes contradict the NUMA nodes: some
/// virtual machines print SYS for every pair.
fn numa_nodes(matrix: &Matrix, classes: &[Vec<PathClass>]) -> Vec<Option<usize>> {
    let number = |text: &Option<String>| text.as_ref()?.parse().ok();
    let numas: Vec<Option<usize>> = matrix.numa_affinity.iter().map(number).collect();
    let same = |a: usize, b: usize| numas[a].is_some() && numas[a] == numas[b];
    let pairs = (0..numas.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
    let contradicts = pairs.into_iter().any(|(a, b)| same(a, b) && classes[a][b] == PathClass::Sys);
    if contradicts { vec![None; numas.len()] } else { numas }
}

fn of_tables(tables: &RocmTables, rates: &LinkRates) -> Topology {
    let classes: Vec<Vec<PathClass>> =
        tables.links.iter().map(|row| row.iter().map(|cell| cell.class()).collect()).collect();
    let device =
        |gpu: usize| HostDevice { kind: NodeKind::Gpu, name: format!("GPU{gpu}"), numa: None };
    host(&(0..tables.gpus.len()).map(device).collect::<Vec<_>>(), &classes, rates)
}

/// The graph of a topology file under construction.
struct TopologyBuilder<'a> {
    devices: PlacedDevices<'a>,
    host: Topology,
    generation: GpuGeneration,
    processor: Processor,
    /// By CPU: its NUMA node.
    numas: Vec<usize>,
    /// By CPU and host bridge: the bridge.
    roots: Vec<((usize, Option<&'a str>), usize)>,
    /// By PCI device: its switch.
    switches: Vec<(&'a PciDevice, usize)>,
}

fn of_system(system: &System, generation: GpuGeneration, processor: Processor) -> Topology {
    let devices = system.devices();
    let mut host = Topology::new();
    let hosts = host_numbers(&system.cpus);
    let gpus: Vec<usize> = (0..devices.gpus.len())
        .map(|gpu| host.add(NodeKind::Gpu, Some(hosts[devices.gpus[gpu].cpu]), format!("GPU{gpu}")))
        .collect();
    let cards: Vec<usize> = devices
        .cards
        .iter()
        .map(|card| host.add(NodeKind::Nic, Some(hosts[card.cpu]), card.device.name()))
        .collect();
    let numa = |cpu: usize| (cpu, system.cpus[cpu].numa.unwrap_or(cpu as i64));
    let numas: Vec<usize> = (0..system.cpus.len())
        .map(numa)
        .map(|(cpu, number)| host.add(NodeKind::Numa, Some(hosts[cpu]), format!("NUMA{number}")))
        .collect();
    let mut builder = TopologyBuilder {
        devices,
        host,
        generation,
        processor,
        numas,
        roots: Vec::new(),
        switches: Vec::new(),
    };
    builder.sockets(&hosts);
    for (at, node) in gpus.iter().enumerate() {
        builder.gpu(at, *node);
    }
    for (at, node) in cards.iter().enumerate() {
        builder.card(at, *node);
    }
    builder.direct(&gpus);
    builder.host
}

/// The number of the host of each CPU.
fn host_numbers(cpus: &[NumaNode]) -> Vec<usize> {
    let mut seen: Vec<Option<&str>> = Vec::new();
    let number = |cpu: &'_ NumaNode| cpu.host.clone();
    let names: Vec<_> = cpus.iter().map(number).collect();
    let mut place = |name: &'_ Option<String>| {
        let at = names.iter().position(|other| other == name).expect("`name` is from `names`");
        let name = names[at].as_deref();
        seen.iter().position(|other| *other == name).unwrap_or_else(|| {
            seen.push(name);
            seen.len() - 1
        })
    };
    names.iter().map(&mut place).collect()
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

    fn gpu(&mut self, at: usize, node: usize) {
        let PlacedDevice { cpu, bridges, root, device: PciGpu { pci, .. } } =
            self.devices.gpus[at].clone();
        self.join_to_bridge(node, Some(pci), cpu, &bridges, root);
    }

    fn card(&mut self, at: usize, node: usize) {
        let PlacedDevice { cpu, bridges, root, device: PciNic { pci, .. } } =
            self.devices.cards[at].clone();
        self.join_to_bridge(node, pci, cpu, &bridges, root);
    }

    /// Joins a device to the lowest bridge above it, and that to the next, up to the host bridge.
    fn join_to_bridge(
        &mut self,
        node: usize,
        pci: Option<&'a PciDevice>,
        cpu: usize,
        bridges: &[&'a PciDevice],
        root: Option<&'a str>,
    ) {
        match bridges.split_last() {
            Some((bridge, above)) => {
                let switch = self.switch(bridge, cpu, above, root);
                self.host.join(node, switch, LinkKind::Pci, self.slot(pci));
            }
            None => {
                let bandwidth = self.processor.bridge(self.slot(pci));
                let bridge = self.root(cpu, root);
                self.host.join(node, bridge, LinkKind::Pci, bandwidth);
            }
        }
    }

    fn switch(
        &mut self,
        pci: &'a PciDevice,
        cpu: usize,
        above: &[&'a PciDevice],
        root: Option<&'a str>,
    ) -> usize {
        if let Some((_, switch)) = self.switches.iter().find(|(known, _)| std::ptr::eq(*known, pci))
        {
            return *switch;
        }
        let host = self.host.nodes()[self.numas[cpu]].host;
        let switch = self.host.add(NodeKind::PciSwitch, host, pci.bus.clone());
        self.switches.push((pci, switch));
        self.join_to_bridge(switch, Some(pci), cpu, above, root);
        switch
    }

    fn root(&mut self, cpu: usize, root: Option<&'a str>) -> usize {
        if let Some((_, bridge)) = self.roots.iter().find(|(known, _)| *known == (cpu, root)) {
            return *bridge;
        }
        let host = self.host.nodes()[self.numas[cpu]].host;
        let name = root.map_or_else(|| format!("bridge{cpu}"), str::to_owned);
        let bridge = self.host.add(NodeKind::HostBridge, host, name);
        self.host.join(
            bridge,
            self.numas[cpu],
            LinkKind::Local,
            self.processor.bridge(self.generation.pci()),
        );
        self.roots.push(((cpu, root), bridge));
        bridge
    }

    /// The bandwidth of a device's PCI link; the generation's usual one if the file does not tell
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

    fn direct(&mut self, gpus: &[usize]) {
        let rate = self.generation.link();
        let to_switches: Vec<u32> =
            (0..gpus.len()).map(|gpu| self.devices.to_switches(gpu)).collect();
        if to_switches.iter().any(|links| *links > 0) {
            let switch =
                self.host.add(NodeKind::GpuSwitch, self.host.nodes()[gpus[0]].host, "NVSwitch");
            for (gpu, &links) in gpus.iter().zip(&to_switches).filter(|(_, links)| **links > 0) {
                self.host.join(*gpu, switch, LinkKind::NvLink(links), f64::from(links) * rate);
            }
        }
        for (a, b) in (0..gpus.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
            let links = self.devices.straight(a, b).max(self.devices.straight(b, a));
            if links > 0 {
                let kind = if self.devices.links(a).any(|link| link.xgmi) {
                    LinkKind::Xgmi
                } else {
                    LinkKind::NvLink
                };
                self.host.join(gpus[a], gpus[b], kind(links), f64::from(links) * rate);
            }
        }
    }
}
