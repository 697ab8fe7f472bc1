//! The options for the GPUs of ranks and for the links between these GPUs.

use crate::simulate::cluster;
use anyhow::{Result, bail, ensure};
use maypole::topology::{DeviceLinks, LinkKind, NodeKind, Topology};
use maypole_cluster::build::cluster::Fabric;

/// The GPU of each rank.
#[derive(clap::Args, Debug)]
pub(crate) struct GpuArgs {
    /// The GPU of each rank, by number: 0,0,1,1 are two ranks on each of two GPUs [default: a GPU for
    /// each rank]. With --transport cuda.
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "ranks")]
    gpus: Vec<usize>,
}

/// The most ranks: mailboxes serve no more.
const MOST_RANKS: usize = maypole_kernels::packed::MOST_RANKS as usize;

impl GpuArgs {
    /// True if the option was given.
    pub(crate) fn is_given(&self) -> bool {
        !self.gpus.is_empty()
    }

    /// The links between GPUs: of `cluster`, where every rank has one GPU; or of `ranks` ranks,
    /// unknown.
    pub(crate) fn links(&self, cluster: Option<&str>, ranks: usize) -> Result<DeviceLinks> {
        let topology = cluster.map(of_gpus).transpose()?;
        let all = topology.as_ref().map_or(ranks, |topology| topology.devices().len());
        let count = if self.gpus.is_empty() { all } else { self.gpus.len() };
        ensure!(
            (1..=MOST_RANKS).contains(&count),
            "{count} ranks on GPUs: their mailboxes serve 1 to {MOST_RANKS}"
        );
        let gpus = if self.gpus.is_empty() { (0..all).collect() } else { self.gpus.clone() };
        match (&topology, cluster) {
            (Some(topology), Some(name)) => DeviceLinks::new(topology, &gpus)
                .map_err(|why| anyhow::anyhow!("--cluster {name} with --transport cuda: {why}")),
            _ => Ok(DeviceLinks::unknown(&gpus)),
        }
    }
}

/// The host of NVIDIA's GPUs that `name` names or describes.
fn of_gpus(name: &str) -> Result<Topology> {
    let topology = cluster::cluster(name, cluster::GIGABITS, Fabric::Flat)?;
    if topology.nodes_of(NodeKind::Gpu).is_empty() {
        bail!("--cluster {name} has no GPU, which --transport cuda needs");
    }
    let is_amd = |kind: LinkKind| matches!(kind, LinkKind::Xgmi(_));
    ensure!(
        !topology.links().iter().any(|link| is_amd(link.kind)),
        "--cluster {name} has AMD's GPUs, which --transport cuda does not use"
    );
    Ok(topology)
}
