//! The links of the ranks' GPUs, as far as the order of a ring and the cost of a call depend on
//! them.

use crate::topology::model::class::PathClass;
use crate::topology::model::graph::{LinkKind, Path, Topology};
use crate::topology::rings::{self, Ring};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The GPU of each rank of a host, and the paths between these GPUs.
///
/// ```
/// use maypole::topology::{DeviceLinks, LinkKind, NodeKind, Topology};
/// let mut host = Topology::new();
/// let switch = host.add(NodeKind::GpuSwitch, Some(0), "NVSwitch");
/// for gpu in ["GPU0", "GPU1"] {
///     let gpu = host.add(NodeKind::Gpu, Some(0), gpu);
///     host.join(gpu, switch, LinkKind::NvLink(12), 240.0);
/// }
/// // Four ranks on two GPUs, which take turns.
/// let links = DeviceLinks::new(&host, &[0, 1, 0, 1]).unwrap();
/// assert_eq!(links.order(), [0, 1, 3, 2], "3 follows 1 on GPU 1, and 0 follows 2 on GPU 0");
/// assert_eq!((links.sharing(0), links.between(0, 1).unwrap().megabytes), (2, 240_000));
/// ```
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct DeviceLinks {
    /// By rank: the number of its GPU.
    gpus: Vec<usize>,
    /// `None`: unknown.
    paths: Option<DevicePaths>,
    order: Vec<usize>,
}

/// The paths by two ranks: from the one whose memory is read to the reader.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
struct DevicePaths {
    /// With the links of each path, as places in `megabytes`.
    table: Vec<Vec<(DevicePath, Vec<u32>)>>,
    /// The bandwidth of each link in MB/s.
    megabytes: Vec<u64>,
}

/// The path between two GPUs.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct DevicePath {
    /// The worst hop.
    pub class: PathClass,
    /// The bandwidth of the narrowest link in MB/s; of a GPU's own memory, 0.
    pub megabytes: u64,
}

/// Why ranks have no [`DeviceLinks`].
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct DeviceLinksError(String);

impl DeviceLinks {
    /// Ranks that have a GPU each, with unknown links.
    ///
    /// # Panics
    /// If there are no ranks.
    pub fn apart(world: usize) -> Self {
        Self::unknown(&(0..world).collect::<Vec<_>>())
    }

    /// Rank `r` is on GPU `gpus[r]`, and the links of the GPUs are unknown. Ranks of one GPU follow
    /// one another in a ring.
    ///
    /// # Panics
    /// If there are no ranks.
    pub fn unknown(gpus: &[usize]) -> Self {
        Self::with(gpus.to_vec(), None)
    }

    /// Rank `r` is on GPU `gpus[r]` of `topology`.
    ///
    /// # Errors
    /// [`DeviceLinksError`] if there is no such GPU, if GPUs are on several hosts, or if no path joins
    /// two of them.
    ///
    /// # Panics
    /// If there are no ranks.
    pub fn new(topology: &Topology, gpus: &[usize]) -> Result<Self, DeviceLinksError> {
        let devices = topology.devices();
        let host = |device: usize| topology.nodes()[device].host;
        let gpu_of = |(rank, gpu): (usize, &usize)| {
            devices.get(*gpu).copied().ok_or_else(|| {
                let gpus = devices.len();
                let text = format!("rank {rank} is on GPU {gpu}, and the topology has {gpus} GPUs");
                DeviceLinksError(text)
            })
        };
        let nodes: Vec<usize> = gpus.iter().enumerate().map(gpu_of).collect::<Result<_, _>>()?;
        if let Some(rank) = nodes.iter().position(|node| host(*node) != host(nodes[0])) {
            return Err(DeviceLinksError(format!(
                "ranks 0 and {rank} are on different hosts: GPUs reach the memory of their host \
                 alone"
            )));
        }
        let rates = topology.links().iter().map(|link| megabytes(link.bandwidth)).collect();
        let mut paths = DevicePaths { megabytes: rates, ..DevicePaths::default() };
        for from in &nodes {
            let within = topology.paths_over(*from, |link| link.kind != LinkKind::Network);
            let unreachable = |to| {
                let (from, to) = (topology.label(*from), topology.label(to));
                DeviceLinksError(format!("no path joins {from} and {to}"))
            };
            let path = |to: &usize| -> Result<_, DeviceLinksError> {
                let path = within.to(*to).ok_or_else(|| unreachable(*to))?;
                let links = path.links.iter().map(|link| *link as u32).collect();
                Ok((DevicePath::new(&path), links))
            };
            paths.table.push(nodes.iter().map(path).collect::<Result<_, _>>()?);
        }
        Ok(Self::with(gpus.to_vec(), Some(paths)))
    }

    fn with(gpus: Vec<usize>, paths: Option<DevicePaths>) -> Self {
        assert!(!gpus.is_empty(), "a world has at least one rank");
        let mut links = Self { order: Vec::new(), gpus, paths };
        links.order = links.ring().order;
        links
    }

    /// How many ranks.
    pub fn world(&self) -> usize {
        self.gpus.len()
    }

    /// The GPU of each rank.
    pub fn gpus(&self) -> &[usize] {
        &self.gpus
    }

    /// How many ranks are on the GPU of `rank`.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn sharing(&self, rank: usize) -> usize {
        self.gpus.iter().filter(|gpu| **gpu == self.gpus[rank]).count()
    }

    /// The path by which rank `to` reads the memory of rank `from`; `None` if unknown.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn between(&self, from: usize, to: usize) -> Option<DevicePath> {
        self.paths.as_ref().map(|paths| paths.table[from][to].0)
    }

    /// The time of the busiest link, where rank `to` reads once from rank `from` for each of `reads`: each
    /// read takes each link of its path for `scale` divided by the link's MB/s. Zero if the paths
    /// are unknown.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn busiest(&self, reads: impl Iterator<Item = (usize, usize)>, scale: u64) -> u64 {
        let Some(paths) = &self.paths else { return 0 };
        let mut crossing = vec![0_u64; paths.megabytes.len()];
        for link in reads.flat_map(|(from, to)| &paths.table[from][to].1) {
            crossing[*link as usize] += 1;
        }
        let used = crossing.iter().zip(&paths.megabytes).filter(|(count, _)| **count > 0);
        used.map(|(count, rate)| count.saturating_mul(scale) / rate.max(&1)).max().unwrap_or(0)
    }

    /// The ranks in the order of a ring whose slowest hop is fastest, from rank 0 on.
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    /// The same for the ranks `kept` alone, which become ranks 0, 1 and so on.
    ///
    /// # Panics
    /// If there are none, or if one of them is no rank.
    #[must_use]
    pub fn subset(&self, kept: &[usize]) -> Self {
        let paths = self.paths.as_ref().map(|paths| DevicePaths {
            table: square(&paths.table, kept),
            megabytes: paths.megabytes.clone(),
        });
        Self::with(kept.iter().map(|rank| self.gpus[*rank]).collect(), paths)
    }

    fn ring(&self) -> Ring<PathClass> {
        // Unknown paths count as equally bad.
        let class = |from: usize, to: usize| match self.between(from, to) {
            _ if self.gpus[from] == self.gpus[to] => PathClass::Same,
            Some(path) => path.class,
            None => PathClass::Sys,
        };
        let world = self.world();
        let row = |from: usize| (0..world).map(|to| class(from, to)).collect();
        let classes: Vec<Vec<PathClass>> = (0..world).map(row).collect();
        let on_gpu = |of: usize| (0..world).filter(move |it| self.gpus[*it] == self.gpus[of]);
        let firsts: Vec<usize> = (0..world).filter(|it| on_gpu(*it).next() == Some(*it)).collect();
        if world <= rings::EXACT || firsts.len() == world {
            return rings::ring(&classes);
        }
        // Ranks of a GPU follow one another in any case.
        let of_gpus = rings::ring(&square(&classes, &firsts)).order.into_iter();
        let order: Vec<usize> = of_gpus.flat_map(|at| on_gpu(firsts[at])).collect();
        Ring { bottleneck: rings::bottleneck(&classes, &order), order }
    }

    /// How many pairs of ranks each kind of path joins, the best first.
    fn kinds(&self) -> BTreeMap<std::cmp::Reverse<DevicePath>, usize> {
        let mut kinds = BTreeMap::new();
        for from in 0..self.world() {
            for path in (0..from).filter_map(|to| self.between(from, to)) {
                *kinds.entry(std::cmp::Reverse(path)).or_default() += 1;
            }
        }
        kinds
    }

    fn ranks_of_busiest_gpu(&self) -> usize {
        (0..self.world()).map(|rank| self.sharing(rank)).max().unwrap_or(1)
    }
}

#[cfg(feature = "cuda")]
impl DeviceLinks {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        crate::wire::encode(&(&self.gpus, &self.paths))
    }

    /// Reads the bytes of [`to_bytes`](Self::to_bytes); `None` if it does not describe `world`
    /// ranks.
    pub(crate) fn from_bytes(bytes: &[u8], world: usize) -> Option<Self> {
        let (gpus, paths): (Vec<usize>, Option<DevicePaths>) = crate::wire::decode(bytes).ok()?;
        let fits = world > 0 && gpus.len() == world;
        let fits = fits && paths.as_ref().is_none_or(|paths| paths.join(world));
        fits.then(|| Self::with(gpus, paths))
    }
}

impl DevicePath {
    fn new(path: &Path) -> Self {
        let bandwidth = if path.links.is_empty() { 0 } else { megabytes(path.bandwidth) };
        Self { class: path.class, megabytes: bandwidth }
    }
}

#[cfg(feature = "cuda")]
impl DevicePaths {
    /// True if they join `world` ranks, over links that they have.
    fn join(&self, world: usize) -> bool {
        let is_link = |link: &u32| (*link as usize) < self.megabytes.len();
        self.table.len() == world
            && self.table.iter().all(|row| row.len() == world)
            && self.table.iter().flatten().all(|(_, links)| links.iter().all(is_link))
    }
}

/// MB/s of so many GB/s.
fn megabytes(bandwidth: f64) -> u64 {
    (bandwidth * 1000.0) as u64
}

/// The rows and the columns `kept` of a table.
fn square<T: Clone>(table: &[Vec<T>], kept: &[usize]) -> Vec<Vec<T>> {
    let row = |from: &usize| kept.iter().map(|to| table[*from][*to].clone()).collect();
    kept.iter().map(row).collect()
}

/// Lines of a table's head: which paths join the ranks, and the order of rings.
impl fmt::Display for DeviceLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.paths, self.ranks_of_busiest_gpu()) {
            (None, 1) => writeln!(f, "  links between GPUs: not known; as fast as their memory")?,
            (None, most) => writeln!(
                f,
                "  links between GPUs: not known; as fast as their memory, which up to {most} ranks share"
            )?,
            (Some(_), most) => {
                let kinds = self.kinds();
                let kinds = kinds.iter().map(|(path, pairs)| format!("{pairs} pairs {}", path.0));
                let kinds = kinds.collect::<Vec<_>>().join(", ");
                write!(f, "  links between GPUs: {kinds}")?;
                match most {
                    1 => writeln!(f)?,
                    most => writeln!(f, "; up to {most} ranks share a GPU")?,
                }
            }
        }
        let order: Vec<String> = self.order.iter().map(usize::to_string).collect();
        write!(f, "  order of ranks in a ring: {}", order.join(" "))?;
        match self.paths.as_ref().and_then(|_| self.ring().bottleneck) {
            Some(hop) => writeln!(f, "; its slowest hop is {hop}"),
            None => writeln!(f),
        }
    }
}

/// `over NV2 at 40.0 GB/s`, or `on one GPU`.
impl fmt::Display for DevicePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.class {
            PathClass::Same => f.write_str("on one GPU"),
            class => write!(f, "over {class} at {:.1} GB/s", self.megabytes as f64 / 1000.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::model::graph::NodeKind;
    #[cfg(feature = "cuda")]
    use proptest::prelude::*;

    /// A host whose GPUs are on one host bridge.
    fn host(gpus: usize) -> Topology {
        let mut host = Topology::new();
        let bridge = host.add(NodeKind::HostBridge, Some(0), "bridge");
        for gpu in 0..gpus {
            let gpu = host.add(NodeKind::Gpu, Some(0), format!("GPU{gpu}"));
            host.join(gpu, bridge, LinkKind::Pci, 20.0);
        }
        host
    }

    #[test]
    fn ranks_of_a_gpu_follow_one_another() {
        let links = DeviceLinks::unknown(&[7, 3, 7, 3, 7]);
        // 1 and 3 are neighbours, and so are 2, 4 and 0.
        assert_eq!(links.order(), [0, 1, 3, 2, 4]);
        assert_eq!(links.subset(&[1, 2, 3, 4]).order(), [0, 1, 3, 2]);
        assert_eq!((links.sharing(0), links.sharing(1)), (3, 2));
        assert!(!links.to_string().contains("slowest hop"), "{links}");
        assert_eq!(DeviceLinks::apart(6).order(), [0, 1, 2, 3, 4, 5]);
        let many: Vec<usize> = (0..40).map(|rank| rank * 7 % 10).collect();
        let links = DeviceLinks::unknown(&many);
        let mut gpus: Vec<usize> = links.order().iter().map(|rank| many[*rank]).collect();
        gpus.dedup();
        assert_eq!((links.order()[0], links.order().len(), gpus.len()), (0, 40, 10));
    }

    #[test]
    fn a_rank_has_a_gpu_of_the_host() {
        let mut hosts = host(8);
        hosts.append(&host(8));
        let refused = |hosts: &Topology, gpus: &[usize]| {
            DeviceLinks::new(hosts, gpus).unwrap_err().to_string()
        };
        assert!(
            refused(&hosts, &[0, 16]).contains("rank 1 is on GPU 16, and the topology has 16 GPUs")
        );
        assert!(refused(&hosts, &[0, 1, 8]).contains("ranks 0 and 2 are on different hosts"));
        assert!(DeviceLinks::new(&hosts, &[8, 9, 15]).is_ok());
        hosts.add(NodeKind::Gpu, Some(0), "GPU8");
        assert_eq!(refused(&hosts, &[0, 16]), "no path joins host0/GPU0 and host0/GPU8");
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn what_a_rank_is_told_is_what_another_one_found() {
        let host = host(4);
        for links in [DeviceLinks::new(&host, &[3, 0, 0, 2]).unwrap(), DeviceLinks::apart(4)] {
            let bytes = links.to_bytes();
            assert_eq!(DeviceLinks::from_bytes(&bytes, 4), Some(links));
            assert_eq!(DeviceLinks::from_bytes(&bytes, 5), None);
            assert_eq!(DeviceLinks::from_bytes(&bytes[..bytes.len() - 1], 4), None);
            assert_eq!(DeviceLinks::from_bytes(&[&bytes[..], &[0]].concat(), 4), None);
        }
    }

    #[cfg(feature = "cuda")]
    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes: Vec<u8>, world in 0usize..6, at: usize) {
            let _ = DeviceLinks::from_bytes(&bytes, world);
            let host = host(4);
            let mut told = DeviceLinks::new(&host, &[3, 0, 0, 2]).unwrap().to_bytes();
            let len = told.len();
            told[at % len] = bytes.first().copied().unwrap_or(255);
            let _ = DeviceLinks::from_bytes(&told, 4);
        }
    }
}
