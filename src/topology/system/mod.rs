//! The devices of a machine as trees: reported by its kernel and its driver, or read from a
//! topology file.
//!
//! [`System::topology`] builds the graph of them. Bandwidths that a system lacks are those of the
//! [generation](crate::topology::model::bandwidth) of its GPUs and CPUs.

mod devices;
mod graph;

pub use devices::{PciGpu, PciNic, PlacedDevice, PlacedDevices};

/// A machine: its NUMA nodes with the PCI devices below them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct System {
    /// The NUMA nodes, each with its devices. NCCL calls a NUMA node `<cpu>`.
    pub cpus: Vec<NumaNode>,
    /// The unsupported elements of a file, with their lines. The reader leaves them out, with
    /// everything inside them.
    pub notes: Vec<String>,
}

/// One NUMA node: the `<cpu>` element of a topology file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NumaNode {
    /// The number of the NUMA node.
    pub numa: Option<i64>,
    /// The hash of the host that it belongs to, in files about several hosts.
    pub host: Option<String>,
    /// `x86_64`, `arm64` or `ppc64`.
    pub architecture: Option<String>,
    /// `GenuineIntel`, `AuthenticAMD` ...
    pub vendor: Option<String>,
    /// The vendor's number of the processor's model.
    pub model: Option<i64>,
    /// The PCI devices below its host bridges.
    pub devices: Vec<PciDevice>,
    /// Network interfaces without a PCI device: virtual ones.
    pub nets: Vec<Net>,
}

/// A PCI device: a bridge, a GPU or a network card.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PciDevice {
    /// The PCI address in lower case: `0000:0f:00.0`.
    pub bus: String,
    /// The host bridge above a device that is directly below a CPU. Topology files lack it;
    /// detection on a machine sets it.
    pub root: Option<String>,
    /// PCI class, subclass and programming interface in 24 bits: `0x030200`.
    pub class: Option<u32>,
    /// The rate of each lane of its PCI link, in 10^9 transfers a second.
    pub gigatransfers: Option<f64>,
    /// The lanes of its PCI link.
    pub lanes: Option<i64>,
    /// The devices below it, if it is a bridge.
    pub devices: Vec<PciDevice>,
    /// Its GPU; several if one GPU is partitioned.
    pub gpus: Vec<Gpu>,
    /// The network interfaces of a network card.
    pub nets: Vec<Net>,
}

/// The attributes of a GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gpu {
    /// The number of the GPU on the machine.
    pub device: Option<i64>,
    /// NVIDIA: the compute capability times ten. AMD: the number of compute units.
    pub sm: Option<i64>,
    /// AMD: the architecture, `908` or `gfx942`.
    pub gcn: Option<String>,
    /// The rank that used the GPU when the file was written.
    pub rank: Option<i64>,
    /// NVLinks and XGMI links.
    pub links: Vec<DirectLink>,
    /// The coherent links to the CPU: bandwidth in MB/s and number of links.
    pub c2c: Option<(i64, i64)>,
}

/// Bonded links from a GPU to another GPU or to a switch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DirectLink {
    /// True for XGMI, false for NVLink.
    pub xgmi: bool,
    /// The PCI address of the other end, in lower case.
    pub target: String,
    /// The number of links.
    pub count: u32,
    /// The PCI class of the other end, as in [`PciDevice::class`]: that of a GPU, `0x068000` of a
    /// switch, `0x068001` of a CPU.
    pub class: Option<u32>,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Net {
    /// The name: `mlx5_0`, `eth0` ...
    pub name: String,
    /// The number of the interface on the machine.
    pub device: Option<i64>,
    /// The speed in Mbit/s.
    pub speed: Option<i64>,
    /// The port of the card.
    pub port: Option<i64>,
}
