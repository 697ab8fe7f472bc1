//! Builds the graph of a machine from its description, or from its detected devices.
//!
//! Bandwidths that the description lacks are those of
//! [`bandwidth`](maypole::topology::model::bandwidth), by the generation of the GPUs and of the
//! CPUs. [`Description::assumed`] guesses both generations from the description.

use crate::build::cluster::{Fabric, named};
use crate::build::pairs::{HostDevice, host};
use crate::rates::LinkRates;
use crate::read::description::Description;
use crate::read::matrix::Matrix;
use crate::read::printed::PrintedClass;
use crate::read::rocm::RocmTables;
use maypole::topology::detect::DetectedMachine;
use maypole::topology::model::bandwidth::{GpuGeneration, Processor};
use maypole::topology::model::class::PathClass;
use maypole::topology::model::graph::{NodeKind, Topology};

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
            Description::System(system) => system.topology_of(generation, processor),
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
            Description::System(system) => system.assumed(),
        }
    }
}

/// Builds the graph of this machine. Without GPUs, its ranks run on its cores, which are assumed to
/// be spread evenly over its NUMA nodes.
pub fn detected(machine: &DetectedMachine) -> Topology {
    let nodes = machine.system.cpus.len().max(1);
    let ranks = machine.cores.len().max(1).div_ceil(nodes);
    let of_cores = || named(&format!("cpu:{ranks}x{nodes}"), Fabric::Flat).ok();
    let has_gpus = !machine.system.devices().gpus.is_empty();
    let cores = if has_gpus { None } else { of_cores() };
    cores.unwrap_or_else(|| machine.system.topology())
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

fn of_matrix(matrix: &Matrix, rates: &LinkRates) -> Topology {
    // Two cards of unknown class count as SYS, the farthest class within a host.
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
