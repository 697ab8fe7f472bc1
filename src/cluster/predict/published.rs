//! Published measurements on common machines, to compare with a prediction or a measurement.
//!
//! The figures are bus bandwidths of large vectors, as nccl-tests defines them. Where NCCL's
//! reduction in the switch (NVLS) reached more, the figure is that of its rings: only the rings can
//! be compared with the bandwidth of links.

use maypole::schedule::collective::Collective;
use maypole::topology::model::bandwidth::GpuGeneration;
use maypole::topology::model::graph::{LinkKind, NodeKind, Topology};

/// One published measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedBandwidth {
    /// The machine.
    pub machine: &'static str,
    /// Bus bandwidth in GB/s.
    pub gigabytes: f64,
    /// The publication.
    pub source: &'static str,
}

/// The open book "Machine Learning Engineering" by Stas Bekman, page `network/README.md`.
const BOOK: &str = "github.com/stas00/ml-engineering";

/// Finds a published measurement of `collective` on a machine with the same number of the same GPUs
/// and the same links.
///
/// ```
/// use maypole::schedule::collective::Collective;
/// use maypole_cluster::build::cluster::{Fabric, named};
/// use maypole_cluster::predict::published::figure;
/// let host = named("dgx-a100", Fabric::Flat).unwrap();
/// assert_eq!(figure(&host, Collective::AllReduce).unwrap().gigabytes, 234.9);
/// assert_eq!(figure(&host, Collective::AllToAll), None);
/// ```
pub fn figure(topology: &Topology, collective: Collective) -> Option<PublishedBandwidth> {
    let gpus = topology.nodes_of(NodeKind::Gpu).len();
    let (generation, links) = joined(topology)?;
    let of = |machine, gigabytes, source| Some(PublishedBandwidth { machine, gigabytes, source });
    match (generation, gpus, topology.hosts(), links, collective) {
        (GpuGeneration::Ampere, 8, 1, 12, Collective::AllReduce) => {
            of("8 x A100, NVSwitch", 234.9, BOOK)
        }
        (GpuGeneration::Hopper, 8, 1, 18, Collective::AllReduce) => {
            of("8 x H200, rings", 367.6, BOOK)
        }
        (GpuGeneration::Hopper, 8, 1, 18, Collective::AllGather) => of("8 x H200", 361.4, BOOK),
        (GpuGeneration::Hopper, 8, 1, 18, Collective::ReduceScatter) => of("8 x H200", 362.9, BOOK),
        (GpuGeneration::Blackwell, 8, 1, 18, Collective::AllReduce) => {
            of("8 x B200, rings", 682.2, BOOK)
        }
        (GpuGeneration::Mi300, 8, 1, 7, Collective::AllReduce) => of("8 x MI300X", 312.9, BOOK),
        (GpuGeneration::Ampere, 16.., 2.., 12, Collective::AllReduce)
            if gpus == 8 * topology.hosts() =>
        {
            of("DGX A100, 8 cards of 200 Gbit/s each", 192.0, "NVIDIA/nccl#812")
        }
        _ => None,
    }
}

/// The generation of the direct links, and the number of links of the first GPU.
fn joined(topology: &Topology) -> Option<(GpuGeneration, u32)> {
    let first = *topology.nodes_of(NodeKind::Gpu).first()?;
    let leaving = topology.links().iter().filter(|link| link.from == first);
    let count = |kind| match kind {
        LinkKind::NvLink(links) | LinkKind::Xgmi(links) => {
            Some((links, matches!(kind, LinkKind::Xgmi(_))))
        }
        _ => None,
    };
    let direct: Vec<_> =
        leaving.filter_map(|link| Some((count(link.kind)?, link.bandwidth))).collect();
    let links = direct.iter().map(|((links, _), _)| links).sum();
    let ((some, xgmi), bandwidth) = *direct.first()?;
    let nvlinks = [
        GpuGeneration::Volta,
        GpuGeneration::Ampere,
        GpuGeneration::Hopper,
        GpuGeneration::Blackwell,
    ];
    let all = if xgmi {
        &[GpuGeneration::Mi300, GpuGeneration::Mi200, GpuGeneration::Vega][..]
    } else {
        &nvlinks[..]
    };
    // Volta's links have the bandwidth of Ampere's, but no V100 has more than six.
    let same = |one: &&GpuGeneration| (one.link() * f64::from(some) - bandwidth).abs() < 1e-6;
    let mut found = all.iter().filter(same);
    let generation = if links > 6 { found.next_back() } else { found.next() };
    generation.map(|generation| (*generation, links))
}
