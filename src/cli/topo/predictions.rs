//! Predicted bandwidths of collectives on a machine, next to published measurements of such
//! machines.

use super::facts::MachineFacts;
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
}

/// A row for each collective that moves data; none for one rank, or too many.
pub(super) fn rows(facts: &MachineFacts, bytes: usize) -> Result<Vec<PredictedCollective>> {
    let mut rows = Vec::new();
    if !(2..=MOST_RANKS).contains(&facts.ranks) || facts.lanes.is_empty() {
        return Ok(rows);
    }
    let model = CostModel::new(&facts.topology)?;
    for collective in Collective::all(0).into_iter().filter(|one| is_shown(*one)) {
        let Some((cost, time)) = model.fastest(collective, bytes as f64)? else { continue };
        rows.push(PredictedCollective {
            collective,
            shape: cost.algorithm,
            seconds: time.seconds,
            bus: bytes as f64 / time.seconds * bus_factor(collective, facts.ranks) / 1e9,
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
