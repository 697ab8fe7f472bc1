//! What others measured on machines that can be recognised: something to hold a prediction, or
//! one's own result, against.
//!
//! Figures are bus bandwidths of big vectors as nccl-tests count them. Where NCCL's in-switch
//! reduction (NVLS) gave more, the figure is that of its rings: only those can be compared with
//! links.

use crate::schedule::collective::Collective;
use crate::topology::model::bandwidth::GpuGeneration;
use crate::topology::model::graph::{LinkKind, NodeKind, Topology};

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedBandwidth {
    /// On what.
    pub machine: &'static str,
    /// Bus bandwidth in GB/s.
    pub gigabytes: f64,
    /// Who published it.
    pub source: &'static str,
}

/// stas00's book, `network/README.md`.
const BOOK: &str = "github.com/stas00/ml-engineering";

/// Somebody's measurement of `collective` on a machine with the same GPUs, as many of them, joined
/// in the same way.
///
/// ```
/// use maypole::schedule::collective::Collective;
/// use maypole::topology::build::cluster::{Fabric, named};
/// use maypole::topology::predict::published::figure;
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

/// The generation that all direct links are of, and how many the first GPU has.
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
    // Volta's links carry what Ampere's do; it never has twelve.
    let same = |one: &&GpuGeneration| (one.link() * f64::from(some) - bandwidth).abs() < 1e-6;
    let mut found = all.iter().filter(same);
    let generation = if links > 6 { found.next_back() } else { found.next() };
    generation.map(|generation| (*generation, links))
}
