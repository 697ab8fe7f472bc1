//! The GPUs of ranks, and the links between them.

use crate::simulate::cluster;
use anyhow::{Context, Result, bail, ensure};
use maypole::schedule::collective::Collective;
use maypole::schedule::hosts::Hosts;
use maypole::topology::{DeviceLinks, LinkKind, NodeKind, Topology};
use maypole::tuner::{CostTable, Explanation, Network, PlanOverride};
use maypole_cluster::build::cluster::Fabric;

/// The GPUs of all ranks, and what joins them.
pub(crate) struct RankGpus {
    hosts: Hosts,
    /// Of several hosts, no links count.
    pub(crate) links: DeviceLinks,
    /// Of the streams between hosts.
    costs: CostTable,
}

/// The most ranks: mailboxes serve no more.
const MOST_RANKS: usize = maypole_kernels::packed::MOST_RANKS as usize;

impl RankGpus {
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

    /// All GPUs of the cluster; or those of `ranks` ranks of one host, with unknown links. Each rank has one.
    pub(crate) fn of(cluster: Option<&str>, ranks: usize) -> Result<Self> {
        let topology = cluster.map(of_gpus).transpose()?;
        let count = topology.as_ref().map_or(ranks, |topology| topology.devices().len());
        ensure!(
            (1..=MOST_RANKS).contains(&count),
            "{count} ranks on GPUs: their mailboxes serve 1 to {MOST_RANKS}"
        );
        match topology {
            Some(topology) => Self::all_of(&topology),
            None => {
                let (hosts, gpus) = (Hosts::new(&vec![0; count]), (0..count).collect::<Vec<_>>());
                Ok(Self { hosts, links: DeviceLinks::unknown(&gpus), costs: costs()? })
            }
        }
    }

    /// All GPUs of the hosts of `topology`; `None` if there is one host alone, or if no group spans them.
    pub(crate) fn across(topology: &Topology) -> Result<Option<Self>> {
        let fits = topology.hosts() > 1 && topology.devices().len() <= MOST_RANKS;
        (fits && refusal(topology).is_none()).then(|| Self::all_of(topology)).transpose()
    }

    fn all_of(topology: &Topology) -> Result<Self> {
        let devices = topology.devices();
        let of = |node: &usize| topology.nodes()[*node].host;
        let hosts = Hosts::new(&devices.iter().map(of).collect::<Vec<_>>());
        let gpus: Vec<usize> = (0..devices.len()).collect();
        let links = match hosts.is_one() {
            true => DeviceLinks::new(topology, &gpus)?,
            false => DeviceLinks::unknown(&gpus),
        };
        Ok(Self { hosts, links, costs: costs()? })
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
