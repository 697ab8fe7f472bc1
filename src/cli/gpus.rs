//! The options for the GPUs of ranks and for the links between these GPUs.

use crate::simulate::cluster;
use anyhow::{Context, Result, bail, ensure};
use maypole::schedule::collective::Collective;
use maypole::schedule::hosts::Hosts;
use maypole::topology::{DeviceLinks, LinkKind, NodeKind, Topology};
use maypole::tuner::{CostTable, Explanation, Network, PlanOverride};
use maypole_cluster::build::cluster::Fabric;

/// The GPU of each rank, and what joins these GPUs.
#[derive(clap::Args, Debug)]
pub(crate) struct GpuArgs {
    /// The GPU of each rank, by number: 0,0,1,1 are two ranks on each of two GPUs [default: a GPU for
    /// each rank]. With --transport cuda.
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "ranks")]
    gpus: Vec<usize>,

    /// A host of GPUs, whose links count: by name, as for `maypole simulate --cluster`, or @FILE. With
    /// --transport cuda.
    #[arg(long, value_name = "NAME", conflicts_with = "ranks")]
    cluster: Option<String>,
}

/// The GPUs of all ranks, and what joins them.
pub(crate) struct RankGpus {
    hosts: Hosts,
    /// Of several hosts, no links count.
    pub(crate) links: DeviceLinks,
    /// Of the streams between hosts.
    costs: CostTable,
}

impl RankGpus {
    /// Rank `r` is on GPU `gpus[r]` of `topology`.
    fn of(topology: &Topology, gpus: &[usize]) -> Result<Self> {
        let devices = topology.devices();
        let host = |gpu: &usize| devices.get(*gpu).map(|node| topology.nodes()[*node].host);
        let hosts = Hosts::new(&gpus.iter().map(host).collect::<Vec<_>>());
        let exist = gpus.iter().all(|gpu| *gpu < devices.len());
        let links = match hosts.is_one() || !exist {
            true => DeviceLinks::new(topology, gpus)?,
            false => DeviceLinks::unknown(gpus),
        };
        Ok(Self { hosts, links, costs: costs()? })
    }

    /// All GPUs of the hosts of `topology`; `None` if there is one host alone, or if no group spans them.
    pub(crate) fn across(topology: &Topology) -> Result<Option<Self>> {
        let gpus: Vec<usize> = (0..topology.devices().len()).collect();
        let spans = topology.hosts() > 1 && gpus.len() <= MOST_RANKS && refusal(topology).is_none();
        spans.then(|| Self::of(topology, &gpus)).transpose()
    }

    /// The prices by which calls of a group on these GPUs choose.
    pub(crate) fn explain(
        &self,
        collective: Collective,
        bytes: usize,
        wanted: Option<PlanOverride>,
    ) -> Explanation {
        let Self { hosts, links, costs } = self;
        maypole::cuda::explain(hosts, links, costs, collective, bytes, wanted)
    }
}

/// The most ranks: mailboxes serve no more.
const MOST_RANKS: usize = maypole_kernels::packed::MOST_RANKS as usize;

impl GpuArgs {
    /// True if an option was given.
    pub(crate) fn are_given(&self) -> bool {
        !self.gpus.is_empty() || self.cluster.is_some()
    }

    /// The GPUs of the cluster, where every rank has one GPU; or of `ranks` ranks of one host, with unknown
    /// links.
    pub(crate) fn ranks(&self, ranks: usize) -> Result<RankGpus> {
        let topology = self.cluster.as_deref().map(of_gpus).transpose()?;
        let all = topology.as_ref().map_or(ranks, |topology| topology.devices().len());
        let count = if self.gpus.is_empty() { all } else { self.gpus.len() };
        ensure!(
            (1..=MOST_RANKS).contains(&count),
            "{count} ranks on GPUs: their mailboxes serve 1 to {MOST_RANKS}"
        );
        let gpus = if self.gpus.is_empty() { (0..all).collect() } else { self.gpus.clone() };
        let (Some(topology), Some(name)) = (&topology, &self.cluster) else {
            let hosts = Hosts::new(&vec![0; count]);
            return Ok(RankGpus { hosts, links: DeviceLinks::unknown(&gpus), costs: costs()? });
        };
        RankGpus::of(topology, &gpus)
            .with_context(|| format!("--cluster {name} with --transport cuda"))
    }
}

/// Those of this machine, with the network that the user names.
fn costs() -> Result<CostTable> {
    let mut costs = CostTable::tuned();
    if let Ok(network) = std::env::var(NETWORK) {
        costs.network =
            network.parse::<Network>().with_context(|| format!("{NETWORK}={network}"))?;
    }
    Ok(costs)
}

/// The variable by which groups of several hosts are given their network.
const NETWORK: &str = "MAYPOLE_NETWORK";

/// The hosts of NVIDIA's GPUs that `name` names or describes.
fn of_gpus(name: &str) -> Result<Topology> {
    let topology = cluster::cluster(name, cluster::GIGABITS, Fabric::Flat)?;
    if let Some(why) = refusal(&topology) {
        bail!("--cluster {name} has {why}");
    }
    Ok(topology)
}

/// Why there are no calls on GPUs on these hosts.
fn refusal(topology: &Topology) -> Option<&'static str> {
    let is_amd = |kind: LinkKind| matches!(kind, LinkKind::Xgmi(_));
    match topology.links().iter().any(|link| is_amd(link.kind)) {
        _ if topology.nodes_of(NodeKind::Gpu).is_empty() => {
            Some("no GPU, which --transport cuda needs")
        }
        true => Some("AMD's GPUs, which --transport cuda does not use"),
        false => None,
    }
}
