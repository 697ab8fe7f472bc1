//! Detects the hardware of this machine: CPUs, the tree of PCI devices, GPUs and network cards.
//!
//! The kernel describes most of it in the files of `/sys`. The links between NVIDIA GPUs are
//! reported by NVIDIA's driver, through its library NVML. NVML is opened at run time if it is
//! installed. A machine without GPUs is no error: its description has none. The description is a
//! [`System`], like the content of a topology file.

#[cfg(feature = "cuda")]
mod nvml;
#[cfg(not(feature = "cuda"))]
mod nvml {
    /// There is no driver to ask.
    pub(super) fn read() -> super::DriverReport {
        Ok((Vec::new(), Vec::new()))
    }
}
mod processor;
mod sysfs;

pub(crate) use processor::CpuInfo;

use crate::topology::device_links::DeviceLinks;
use crate::topology::system::{DirectLink, Gpu, System};
use maypole_transports::cores;
use std::path::Path;

/// The hardware of a machine.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct DetectedMachine {
    /// CPUs, PCI devices, GPUs and network cards. GPUs have the numbers of their driver, or are
    /// numbered by address if there is no driver.
    pub system: System,
    /// The name of the processor.
    pub processor: Option<String>,
    /// The cores that this process may run on, in ascending order.
    pub cores: Vec<usize>,
    /// The driver's information on each GPU, by GPU number.
    pub gpus: Vec<GpuInfo>,
    /// `peers[a][b]`: whether GPU `a` may read and write the memory of GPU `b`.
    pub peers: Vec<Vec<PeerAccess>>,
    /// The parts that could not be detected, one sentence each.
    pub notes: Vec<String>,
}

/// A driver's information on a GPU.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct GpuInfo {
    /// The PCI address as in `/sys`: `0000:0f:00.0`.
    pub bus: String,
    /// The product name: `NVIDIA H200`.
    pub name: String,
    /// The UUID: a name that no other GPU has.
    pub uuid: String,
    /// The compute capability times ten.
    pub sm: Option<i64>,
    /// The NVLinks that are up. The PCI class of the other end may be unknown.
    pub links: Vec<DirectLink>,
}

/// A driver's information on its GPUs, and on the access of each to the memory of each; or why there is none.
type DriverReport = Result<(Vec<GpuInfo>, Vec<Vec<PeerAccess>>), String>;

/// Whether one GPU can read and write another GPU's memory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PeerAccess {
    /// It can.
    Yes,
    /// It cannot, for this reason.
    No(String),
    /// The driver does not report it, or there is no driver.
    Unknown,
}

/// Detects the hardware of this machine.
pub fn machine() -> DetectedMachine {
    let driver = nvml::read();
    let why = driver.as_ref().err().map(|why| format!("NVIDIA's driver was not asked: {why}"));
    let (gpus, peers) = driver.unwrap_or_default();
    let mut machine = machine_at(Path::new("/"), gpus, peers);
    machine.notes.extend(why);
    machine.cores = cores::allowed().unwrap_or_default();
    machine
}

/// Detects the hardware that the `/sys` and `/proc` in the folder `root` describe, with the driver's
/// information on `gpus` and on the access of each to the memory of the [others](DetectedMachine::peers).
/// Leaves `cores` empty.
pub fn machine_at(
    root: &Path,
    mut gpus: Vec<GpuInfo>,
    peers: Vec<Vec<PeerAccess>>,
) -> DetectedMachine {
    for gpu in &mut gpus {
        gpu.bus = short_bus(&gpu.bus);
    }
    let buses: Vec<String> = gpus.iter().map(|gpu| gpu.bus.clone()).collect();
    for link in gpus.iter_mut().flat_map(|gpu| &mut gpu.links) {
        link.target = short_bus(&link.target);
        // A virtual machine shows all GPUs, so an end of a link that it hides is a switch.
        let seen = || sysfs::class(root, &link.target).unwrap_or(NVSWITCH);
        link.class =
            link.class.or_else(|| Some(if buses.contains(&link.target) { GPU } else { seen() }));
    }
    let described = gpus.iter().enumerate().map(description).collect();
    DetectedMachine { gpus, peers, ..sysfs::read(root, described) }
}

/// The PCI classes of the ends of NVLinks.
const GPU: u32 = 0x03_0200;
const NVSWITCH: u32 = 0x06_8000;

fn description((number, gpu): (usize, &GpuInfo)) -> (String, Gpu) {
    let described =
        Gpu { device: Some(number as i64), sm: gpu.sm, links: gpu.links.clone(), ..Gpu::default() };
    (gpu.bus.clone(), described)
}

/// The PCI address as in `/sys`, which has four digits for the domain. The driver has eight.
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
    /// The links between the GPUs at these PCI addresses, one a rank, which are written as in
    /// `/sys`. `None` if the driver of one of them was not queried, or if no path joins them.
    pub fn links(&self, buses: &[String]) -> Option<DeviceLinks> {
        let numbers: Vec<usize> =
            buses.iter().map(|bus| self.number(bus)).collect::<Option<_>>()?;
        DeviceLinks::new(&self.system.topology(), &numbers).ok()
    }

    /// The first pair of these GPUs, by their places in `buses`, of which one cannot use the memory
    /// of the other by the driver's report, and why.
    pub fn refused_peers(&self, buses: &[String]) -> Option<(usize, usize, &str)> {
        let refused = |(a, b): (usize, usize)| {
            let (from, to) = (self.number(&buses[a])?, self.number(&buses[b])?);
            match self.peers.get(from)?.get(to)? {
                PeerAccess::No(why) => Some((a, b, why.as_str())),
                PeerAccess::Yes | PeerAccess::Unknown => None,
            }
        };
        let pairs = (0..buses.len()).flat_map(|a| (0..buses.len()).map(move |b| (a, b)));
        pairs.into_iter().find_map(refused)
    }

    fn number(&self, bus: &str) -> Option<usize> {
        self.gpus.iter().position(|gpu| gpu.bus == bus)
    }
}
