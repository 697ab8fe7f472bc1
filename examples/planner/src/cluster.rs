//! The cluster that a plan is for: the accelerator of a rank, the hosts and their network.
//!
//! What it does: builds a cluster from a name as `maypole topo` takes it (`32xdgx-h100`) or from
//! the description of a host, and holds the rates of accelerators:
//!
//! ```text
//! accelerator   Tflop/s in 16 bits, in 32 (TF32)   reached   memory     its bandwidth
//! A100 SXM           312          156               0.869     80 GiB    2.04 TB/s
//! H100 SXM           989          495               0.803     80 GiB    3.35 TB/s
//! H200 SXM           989          495               0.803    141 GB     4.8  TB/s
//! B200 SXM          2250         1125               0.776    180 GB     8.0  TB/s
//! MI300X            1307          654               0.601    192 GiB    5.3  TB/s
//! A40                150           75               0.80      48 GB     0.70 TB/s
//! core              0.04         0.04               0.80       1 GiB    5    GB/s
//! ```
//!
//! Rates and sizes are those of the data sheets, for dense matrices. The part that large matrix
//! products reach is measured: table "Maximum Achievable Matmul FLOPS" of Bekman, "Machine Learning
//! Engineering" (github.com/stas00/ml-engineering); those of the H200 and of the A40 are guesses. A
//! core is one of the machine that this trainer was measured on.
//!
//! What is sharded, which collective runs where: nothing here.

use maypole::topology::{LinkKind, NodeKind, Topology};
use maypole_cluster::Description;
use maypole_cluster::build::cluster::{Fabric, named};
use maypole_cluster::rates::network;

/// What one rank computes with: a GPU, or a core of a processor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accelerator {
    /// The name.
    pub name: &'static str,
    /// Operations a second on dense matrices of 16-bit numbers.
    pub narrow: f64,
    /// Operations a second on dense matrices of 32-bit numbers.
    pub wide: f64,
    /// The part of these rates that large matrix products reach.
    pub reached: f64,
    /// Bytes of memory.
    pub memory: f64,
    /// Memory bandwidth, in bytes a second.
    pub bandwidth: f64,
    /// The size of a side at which a matrix product reaches half the rate of a large one.
    pub half_size: f64,
}

const GIB: f64 = (1u64 << 30) as f64;

const A100: Accelerator = gpu("a100", 312.0, 0.869, 80.0 * GIB, 2.04);
const H100: Accelerator = gpu("h100", 989.0, 0.803, 80.0 * GIB, 3.35);
const H200: Accelerator = gpu("h200", 989.0, 0.803, 141e9, 4.8);
const B200: Accelerator = gpu("b200", 2250.0, 0.776, 180e9, 8.0);
const MI300X: Accelerator = gpu("mi300x", 1307.0, 0.601, 192.0 * GIB, 5.3);
const A40: Accelerator = gpu("a40", 150.0, 0.8, 48e9, 0.7);
const CORE: Accelerator = Accelerator {
    name: "core",
    narrow: 4e10,
    wide: 4e10,
    reached: 0.8,
    memory: GIB,
    bandwidth: 5e9,
    half_size: 8.0,
};

const ALL: [Accelerator; 7] = [A100, H100, H200, B200, MI300X, A40, CORE];

const fn gpu(
    name: &'static str,
    tera: f64,
    reached: f64,
    memory: f64,
    terabytes: f64,
) -> Accelerator {
    Accelerator {
        name,
        narrow: tera * 1e12,
        wide: tera * 0.5e12,
        reached,
        memory,
        bandwidth: terabytes * 1e12,
        half_size: 128.0,
    }
}

impl Accelerator {
    /// The accelerator called `name`.
    ///
    /// # Errors
    /// A sentence that lists the valid names.
    pub fn named(name: &str) -> Result<Self, String> {
        let found = ALL.into_iter().find(|one| one.name == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = ALL.iter().map(|one| one.name).collect();
            format!("no accelerator is called '{name}'; there are {}", names.join(", "))
        })
    }

    /// The accelerator of the hosts that have this name.
    fn of_host(name: &str) -> Result<Self, String> {
        match name {
            "dgx-a100" => Ok(A100),
            "dgx-h100" => Ok(H100),
            "dgx-h200" => Ok(H200),
            "hgx-b200" => Ok(B200),
            "mi300x" => Ok(MI300X),
            "pcie-phb" => Ok(A40),
            _ if name.starts_with("cpu:") => Ok(CORE),
            _ => Err(format!("the accelerator of '{name}' is not known: give --accelerator")),
        }
    }
}

/// Equal hosts on a network.
#[derive(Clone, Debug)]
pub struct AcceleratorCluster {
    /// The topology of one host.
    pub host: Topology,
    /// Number of hosts.
    pub hosts: usize,
    /// Bandwidth of each network card of a host, in GB/s.
    pub speeds: Vec<f64>,
    /// The accelerator of each rank.
    pub accelerator: Accelerator,
    /// The resources shared by ranks on the cores of one host; `None` if each rank has its own accelerator
    /// and links, which work concurrently.
    pub sharing: Option<CoreSharing>,
}

/// Ranks that run on the cores of one host.
///
/// A core computes and moves the bytes of collectives, so the two do not overlap. If ranks outnumber
/// cores, a core runs several ranks in turn: the work of all ranks adds up, and a rank that waits
/// yields its core to others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoreSharing {
    /// Ranks that run.
    pub ranks: usize,
    /// Cores that they run on.
    pub cores: usize,
    /// Latency of a collective of a few bytes, in seconds.
    pub call: f64,
    /// Overhead of a matrix product of a few numbers, in seconds.
    pub product: f64,
    /// Seconds of a core for each byte that a rank sends.
    pub byte: f64,
}

impl CoreSharing {
    /// Ranks that share a core in turn, 1 at least.
    pub fn crowding(&self) -> f64 {
        (self.ranks as f64 / self.cores as f64).max(1.0)
    }

    /// Seconds of a collective in which each rank sends `bytes` bytes.
    pub fn seconds(&self, bytes: f64) -> f64 {
        self.call + self.crowding() * self.byte * bytes
    }
}

/// The most hosts of a cluster.
const MOST_HOSTS: usize = 4096;

impl AcceleratorCluster {
    /// The cluster called `name`, as `dgx-a100` or `32xdgx-h100`.
    ///
    /// ```
    /// use maypole_planner::cluster::AcceleratorCluster;
    /// let cluster = AcceleratorCluster::named("32xdgx-h100").unwrap();
    /// assert_eq!((cluster.ranks(), cluster.accelerator.name), (256, "h100"));
    /// ```
    ///
    /// # Errors
    /// A sentence that lists the valid names, or the limit of hosts.
    pub fn named(name: &str) -> Result<Self, String> {
        let (hosts, inner) = Self::hosts(name)?;
        let host = named(inner, Fabric::Flat).map_err(|error| error.to_string())?;
        let pair = named(&format!("2x{inner}"), Fabric::Flat).map_err(|error| error.to_string())?;
        let cards = host.nodes_of(NodeKind::Nic).len();
        let cable = pair.links().iter().find(|link| link.kind == LinkKind::Network);
        let speeds = vec![cable.map_or(network(100.0), |link| link.bandwidth); cards];
        let accelerator = Accelerator::of_host(inner)?;
        Ok(Self { host, hosts, speeds, accelerator, sharing: None })
    }

    /// `hosts` hosts that `text` describes in any format that `maypole topo --file` reads, with
    /// network cards of `gigabits` Gbit/s.
    ///
    /// # Errors
    /// A sentence that names the invalid line, or the missing device or card.
    pub fn described(
        text: &str,
        hosts: usize,
        gigabits: f64,
        accelerator: Accelerator,
    ) -> Result<Self, String> {
        let host = Description::read(text).map_err(|error| error.to_string())?.topology();
        let cards = host.nodes_of(NodeKind::Nic).len();
        if host.devices().is_empty() {
            return Err("the description has no GPU".to_owned());
        }
        if hosts > 1 && cards == 0 {
            return Err("several hosts need network cards, and the description has none".to_owned());
        }
        let speeds = vec![network(gigabits); cards];
        Ok(Self { host, hosts, speeds, accelerator, sharing: None })
    }

    /// Splits a name such as `4xdgx-h100` or `4x@FILE` into the number of hosts and the rest. A
    /// name without a number means one host.
    ///
    /// # Errors
    /// A sentence, if the number is 0 or above 4096.
    pub fn hosts(name: &str) -> Result<(usize, &str), String> {
        let number = |(digits, inner): (&str, &'_ str)| {
            let all = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            all.then(|| (digits.parse::<usize>().ok(), inner.len()))
        };
        let Some((hosts, rest)) = name.split_once('x').and_then(number) else {
            return Ok((1, name));
        };
        let hosts = hosts.filter(|hosts| (1..=MOST_HOSTS).contains(hosts));
        let inner = &name[name.len() - rest..];
        match hosts {
            Some(hosts) => Ok((hosts, inner)),
            None => Err(format!("'{name}': a cluster has 1 to {MOST_HOSTS} hosts")),
        }
    }

    /// Ranks of all hosts.
    pub fn ranks(&self) -> usize {
        self.hosts * self.per_host()
    }

    /// Ranks of a host.
    pub fn per_host(&self) -> usize {
        self.host.devices().len()
    }
}
