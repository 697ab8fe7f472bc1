//! Predicted bandwidths of collectives on a machine, next to published measurements of such
//! machines.

use super::facts::MachineFacts;
#[cfg(feature = "cuda")]
use crate::gpus::RankGpus;
use anyhow::Result;
use maypole::schedule::collective::Collective;
use maypole_cluster::predict::lane_algorithm::LaneAlgorithm;
use maypole_cluster::predict::published::{PublishedBandwidth, figure};
use maypole_cluster::predict::{CostModel, bus_factor};

/// With more ranks, nothing is predicted here: it would take seconds, and `maypole simulate` does it.
const MOST_RANKS: usize = 128;

/// The prediction for one collective by its fastest algorithm.
pub(super) struct PredictedCollective {
    pub(super) collective: Collective,
    pub(super) shape: LaneAlgorithm,
    pub(super) seconds: f64,
    /// GB/s, by the convention of nccl-tests.
    pub(super) bus: f64,
    /// The link that limits the bandwidth.
    pub(super) bottleneck: Option<String>,
    pub(super) published: Option<PublishedBandwidth>,
    /// The `bus` of the library's calls between GPUs of these hosts, by the prices by which they choose.
    pub(super) by_couriers: Option<f64>,
}

/// A row for each collective that moves data; none for one rank, or too many.
pub(super) fn rows(facts: &MachineFacts, bytes: usize) -> Result<Vec<PredictedCollective>> {
    let mut rows = Vec::new();
    if !(2..=MOST_RANKS).contains(&facts.ranks) || facts.lanes.is_empty() {
        return Ok(rows);
    }
    let model = CostModel::new(&facts.topology)?;
    #[cfg(feature = "cuda")]
    let gpus = RankGpus::across(&facts.topology)?;
    for collective in Collective::all(0).into_iter().filter(|one| is_shown(*one)) {
        let Some((cost, time)) = model.fastest(collective, bytes as f64)? else { continue };
        let bus = |seconds| bytes as f64 / seconds * bus_factor(collective, facts.ranks) / 1e9;
        #[cfg(feature = "cuda")]
        let priced = gpus.as_ref().map(|gpus| gpus.explain(collective, bytes, None));
        #[cfg(feature = "cuda")]
        let ns = priced.as_ref().and_then(|all| Some(all.chosen()?.predicted_ns));
        #[cfg(not(feature = "cuda"))]
        let ns = None::<u64>;
        rows.push(PredictedCollective {
            collective,
            shape: cost.algorithm,
            seconds: time.seconds,
            bus: bus(time.seconds),
            by_couriers: ns.map(|ns| bus(ns as f64 / 1e9)),
            bottleneck: cost.bottleneck.map(|link| facts.topology.describe(link)),
            published: figure(&facts.topology, collective),
        });
    }
    Ok(rows)
}

const fn is_shown(collective: Collective) -> bool {
    matches!(
        collective,
        Collective::AllReduce
            | Collective::AllGather
            | Collective::ReduceScatter
            | Collective::AllToAll
            | Collective::Broadcast { .. }
            | Collective::Reduce { .. }
    )
}
