//! What is in this machine: its CPUs, the tree of its PCI devices, its GPUs and network cards.
//!
//! Most of it the kernel tells in the files of `/sys`; what is between NVIDIA's GPUs, their driver
//! knows (NVML, opened at run time if it is there). What is absent is absent from the answer: a
//! machine without GPUs has none, and that is no error. The answer is a [`System`], just as a
//! topology file would be, so whatever reads the one reads the other.

#[cfg(feature = "cli")]
mod nvml;
mod sysfs;

#[cfg(feature = "cli")]
pub use nvml::Nvml;

use crate::topology::build::cluster;
use crate::topology::model::graph::Topology;
use crate::topology::read::description::Description;
use crate::topology::read::xml::{DirectLink, Gpu, System};
use std::path::Path;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct DetectedMachine {
    /// CPUs, PCI devices, GPUs and network cards. GPUs have the numbers of their driver where it is
    /// there, else they are numbered by address.
    pub system: System,
    /// What the CPUs call themselves.
    pub processor: Option<String>,
    /// The cores that this process may run on, ascending.
    pub cores: Vec<usize>,
    /// What the driver says about each GPU, in the order of their numbers.
    pub gpus: Vec<GpuInfo>,
    /// `peers[a][b]`: whether GPU `a` may read the memory of GPU `b`.
    pub peers: Vec<Vec<PeerAccess>>,
    /// What could have been found and was not, in sentences.
    pub notes: Vec<String>,
}

/// What a driver knows about a GPU.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct GpuInfo {
    /// Its PCI address as in `/sys`: `0000:0f:00.0`.
    pub bus: String,
    /// What it is called: `NVIDIA H200`.
    pub name: String,
    /// A name that no other GPU has.
    pub uuid: String,
    /// Compute capability, times ten.
    pub sm: Option<i64>,
    /// NVLinks that are up. The class of the other end may be left open.
    pub links: Vec<DirectLink>,
}

/// Whether one GPU may read another's memory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PeerAccess {
    /// It may.
    Yes,
    /// It may not, because of this.
    No(String),
    /// Nobody could say.
    Unknown,
}

/// A driver of GPUs.
pub trait GpuDriver {
    /// Its GPUs, in the order of their numbers.
    fn gpus(&self) -> Vec<GpuInfo>;
    /// Whether the GPU of number `a` may read the memory of `b`.
    fn peer(&self, a: usize, b: usize) -> PeerAccess;
}

/// No driver at all.
#[derive(Clone, Copy, Debug)]
pub struct NoGpuDriver;

impl GpuDriver for NoGpuDriver {
    fn gpus(&self) -> Vec<GpuInfo> {
        Vec::new()
    }

    fn peer(&self, _: usize, _: usize) -> PeerAccess {
        PeerAccess::Unknown
    }
}

/// Looks at this machine.
pub fn machine() -> DetectedMachine {
    let root = Path::new("/");
    #[cfg(feature = "cli")]
    let mut machine = match Nvml::open() {
        Ok(nvml) => machine_at(root, &nvml),
        Err(why) => {
            let mut machine = machine_at(root, &NoGpuDriver);
            machine.notes.push(format!("NVIDIA's driver was not asked: {why}"));
            machine
        }
    };
    #[cfg(not(feature = "cli"))]
    let mut machine = machine_at(root, &NoGpuDriver);
    machine.cores = cores();
    machine
}

#[cfg(target_os = "linux")]
fn cores() -> Vec<usize> {
    maypole_transports::affinity::allowed().unwrap_or_default()
}

#[cfg(not(target_os = "linux"))]
fn cores() -> Vec<usize> {
    Vec::new()
}

/// Looks at the machine whose `/sys` and `/proc` are in the folder `root`, and whose GPUs `driver`
/// knows. Cores are not looked for.
pub fn machine_at(root: &Path, driver: &dyn GpuDriver) -> DetectedMachine {
    let mut gpus = driver.gpus();
    for gpu in &mut gpus {
        gpu.bus = short_bus(&gpu.bus);
    }
    let buses: Vec<String> = gpus.iter().map(|gpu| gpu.bus.clone()).collect();
    for link in gpus.iter_mut().flat_map(|gpu| &mut gpu.links) {
        link.target = short_bus(&link.target);
        // Where the other end is hidden, as in virtual machines, it is a switch: a GPU would be
        // seen.
        let seen = || sysfs::class(root, &link.target).unwrap_or(NVSWITCH);
        link.class =
            link.class.or_else(|| Some(if buses.contains(&link.target) { GPU } else { seen() }));
    }
    let described: Vec<(String, Gpu)> = gpus.iter().enumerate().map(description).collect();
    let peer = |a: usize, b: usize| if a == b { PeerAccess::Yes } else { driver.peer(a, b) };
    let peers = (0..gpus.len()).map(|a| (0..gpus.len()).map(|b| peer(a, b)).collect()).collect();
    let found = sysfs::read(root, &described);
    DetectedMachine {
        system: found.system,
        processor: found.processor,
        notes: found.notes,
        gpus,
        peers,
        ..DetectedMachine::default()
    }
}

/// PCI classes of the ends of NVLinks.
const GPU: u32 = 0x03_0200;
const NVSWITCH: u32 = 0x06_8000;

fn description((number, gpu): (usize, &GpuInfo)) -> (String, Gpu) {
    let described =
        Gpu { device: Some(number as i64), sm: gpu.sm, links: gpu.links.clone(), ..Gpu::default() };
    (gpu.bus.clone(), described)
}

/// `/sys` has four digits for the domain, the driver eight.
fn short_bus(bus: &str) -> String {
    let bus = bus.to_lowercase();
    match bus.split_once(':') {
        Some((domain, rest)) if domain.len() == 8 && domain.starts_with("0000") => {
            format!("{}:{rest}", &domain[4..])
        }
        _ => bus,
    }
}

impl DetectedMachine {
    /// The graph of the machine. Without GPUs its ranks are its cores, evenly on its NUMA nodes.
    pub fn topology(&self) -> Topology {
        let described = Description::System(self.system.clone());
        let nodes = self.system.cpus.len().max(1);
        let ranks = self.cores.len().max(1).div_ceil(nodes);
        let of_cores =
            || cluster::named(&format!("cpu:{ranks}x{nodes}"), cluster::Fabric::Flat).ok();
        match described.summary().gpus {
            0 => of_cores().unwrap_or_else(|| described.topology()),
            _ => described.topology(),
        }
    }
}
