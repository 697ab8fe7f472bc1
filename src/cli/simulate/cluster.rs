//! `maypole simulate --cluster`: predicts the time of collectives on a described cluster.

use super::SimulateArgs;
use crate::table::{Column, head, line};
use crate::{names, output, topo};
use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::topology::{NodeKind, Topology, detect};
use maypole_cluster::build::cluster::{Fabric, named, several_of};
use maypole_cluster::build::convert::detected;
use maypole_cluster::build::link::describe;
use maypole_cluster::predict::published::figure;
use maypole_cluster::predict::{CollectiveCost, CostError, CostModel, PredictedTime, bus_factor};
use maypole_cluster::rates::network;
use maypole_cluster::search::lanes::bandwidth;
use serde_json::{Value, json};
use std::num::NonZeroUsize;
use std::process::ExitCode;

/// The options of `maypole simulate` that concern clusters.
#[derive(clap::Args)]
pub(crate) struct ClusterArgs {
    /// A cluster by name: dgx-a100, dgx-h100, dgx-h200, hgx-b200, mi300x, pcie-phb, or cpu:8x2 (8
    /// ranks on each of 2 NUMA nodes); several hosts as 4xdgx-h100. Or hosts that FILE describes,
    /// in any form that `maypole topo --file` reads: @FILE for one, 4x@FILE for four. Or this machine: here.
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with_all = ["ranks", "alpha", "beta", "gamma", "windows", "timeline"]
    )]
    pub(crate) cluster: Option<String>,

    /// The network between the hosts of the cluster.
    #[arg(long, value_enum, default_value_t = FabricArg::Flat, requires = "cluster")]
    fabric: FabricArg,

    /// Bandwidth in Gbit/s of each network card, for hosts from a file.
    #[arg(
        long,
        value_name = "N",
        default_value_t = GIGABITS,
        value_parser = clap::value_parser!(u32).range(1..),
        requires = "cluster"
    )]
    gigabits: u32,

    /// Show only the N fastest algorithms of each size [default: all; of several sizes, 3].
    #[arg(long, value_name = "N", requires = "cluster")]
    fastest: Option<NonZeroUsize>,
}

#[derive(Clone, Copy, ValueEnum)]
enum FabricArg {
    /// One switch with the full bandwidth of all network cards.
    Flat,
    /// A switch for each rail (the n-th network cards of all hosts), and a switch that joins them.
    Rails,
    /// A switch for each rail, and nothing that joins them.
    IsolatedRails,
}

/// The bandwidth in Gbit/s of a network card, by default.
pub(crate) const GIGABITS: u32 = 100;

/// The most ranks of a host: among them, messages grow with the square.
const MOST_OF_A_HOST: usize = 512;

/// Predicts on the cluster called `name`.
pub(super) fn main(args: &SimulateArgs, name: &str) -> Result<ExitCode> {
    let fabric = match args.lab.fabric {
        FabricArg::Flat => Fabric::Flat,
        FabricArg::Rails => Fabric::Rails,
        FabricArg::IsolatedRails => Fabric::IsolatedRails,
    };
    let topology = cluster(name, args.lab.gigabits, fabric)?;
    let ranks = topology.devices().len();
    let most = names::MOST_RANKS.min(MOST_OF_A_HOST * topology.hosts());
    ensure!(ranks <= most, "--cluster {name} has {ranks} ranks; the most is {most}");
    let collective = args.of.collective_among(ranks, most)?;
    let model = CostModel::new(&topology)?;
    let costs = costs(&model, collective, args.of.algorithm)?;
    let sizes = args.bytes.sizes();
    let report = ClusterReport { topology: &topology, model: &model, name, collective };
    if !args.json {
        output::print(report.head())?;
    }
    for &size in &sizes {
        let bytes = if collective == Collective::Barrier { 0 } else { size };
        let mut rows: Vec<_> =
            costs.iter().map(|cost| (cost, cost.predict(bytes as f64))).collect();
        rows.sort_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds));
        let usual = if sizes.len() > 1 && !args.json { 3 } else { rows.len() };
        rows.truncate(args.lab.fastest.map_or(usual, NonZeroUsize::get));
        let couriers = by_couriers(&topology, collective, bytes)?;
        for (cost, prediction) in rows {
            let mut object = report.object(bytes, cost, prediction);
            object["by_couriers_busbw_GBps"] = json!(couriers);
            let row = if args.json { object.to_string() } else { line(COLUMNS, &object) };
            output::print_line(row)?;
        }
        if let Some(bus) = couriers.filter(|_| !args.json) {
            output::print_line(format_args!("# {bytes:>10} {COURIERS}: busbw {bus:.2} GB/s"))?;
        }
    }
    if let Some(seen) = figure(&topology, collective).filter(|_| !args.json) {
        output::print_line(format_args!(
            "# published: busbw {} GB/s of large vectors on {} ({})",
            seen.gigabytes, seen.machine, seen.source
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `4xdgx-h100`, `@FILE`, `4x@FILE` or `here`.
pub(crate) fn cluster(name: &str, gigabits: u32, fabric: Fabric) -> Result<Topology> {
    if name == "here" {
        return Ok(detected(&detect::machine()));
    }
    let Some((hosts, path)) = name.split_once('@') else { return Ok(named(name, fabric)?) };
    let host = topo::describe(path.as_ref())?.topology();
    if hosts.is_empty() {
        return Ok(host);
    }
    let number = hosts.strip_suffix('x').and_then(|hosts| hosts.parse().ok());
    let hosts = number.filter(|hosts| (1..=names::MOST_RANKS).contains(hosts));
    let hosts = hosts.with_context(|| {
        format!("--cluster {name}: no number of hosts before the x; write for example 4x@{path}")
    })?;
    let speeds = vec![network(f64::from(gigabits)); host.nodes_of(NodeKind::Nic).len()];
    Ok(several_of(&host, hosts, &speeds, fabric))
}

/// The cost of each algorithm on the links. With `wanted`, only of those that use this algorithm.
fn costs(
    model: &CostModel<'_>,
    collective: Collective,
    wanted: Option<Algorithm>,
) -> Result<Vec<CollectiveCost>> {
    let algorithms = model.algorithms(collective).into_iter();
    let algorithms = algorithms.filter(|it| wanted.is_none_or(|wanted| it.has(wanted)));
    let mut costs = Vec::new();
    for algorithm in algorithms {
        match model.cost(collective, algorithm) {
            Err(why @ CostError::TooLong { .. }) => output::complain(format_args!("note: {why}")),
            cost => costs.extend(cost?),
        }
    }
    match wanted {
        Some(wanted) if costs.is_empty() && !wanted.supports(collective) => {
            bail!("{}", names::not_implemented(wanted, collective))
        }
        _ if costs.is_empty() => {
            bail!("no algorithm can run this collective here, or all have too many steps")
        }
        _ => Ok(costs),
    }
}

pub(crate) const COURIERS: &str =
    "by Maypole's couriers, as `maypole explain --transport cuda` prices them";

/// The bus bandwidth in GB/s of the library's calls between GPUs of these hosts, by the prices by which they choose;
/// `None` where no group of GPUs spans them.
pub(crate) fn by_couriers(
    topology: &Topology,
    collective: Collective,
    bytes: usize,
) -> Result<Option<f64>> {
    #[cfg(feature = "cuda")]
    if let Some(gpus) = crate::gpus::RankGpus::across(topology)? {
        let priced = gpus.explain(collective, bytes, None);
        let factor = bus_factor(collective, topology.devices().len());
        return Ok(priced.chosen().map(|it| bytes as f64 / it.predicted_ns as f64 * factor));
    }
    let _ = (topology, collective, bytes);
    Ok(None)
}

const COLUMNS: &[Column] = &[
    ("size", "(B)", 12, "/bytes"),
    ("algorithm", "", 28, "/algorithm"),
    ("time", "(us)", 12, "/seconds"),
    ("algbw", "(GB/s)", 9, "/algbw_GBps"),
    ("busbw", "(GB/s)", 9, "/busbw_GBps"),
    ("windows", "", 7, "/windows"),
    ("lanes", "", 5, "/lanes"),
    ("protocol", "", 8, "/protocol"),
    ("busiest link", "", 12, "/bottleneck"),
];

struct ClusterReport<'a> {
    topology: &'a Topology,
    model: &'a CostModel<'a>,
    name: &'a str,
    collective: Collective,
}

impl ClusterReport<'_> {
    fn head(&self) -> String {
        let lanes = self.model.lanes();
        format!(
            "# {} on {}: {} ranks on {} hosts; {} rings of {:.1} GB/s in total\n\
             # predicted, not measured; the model: documentation of `maypole_cluster::predict`\n\
             # size: bytes of the whole; algbw, busbw: GB/s as in nccl-tests; lanes: rings in use\n\
             {}\n",
            self.collective.option_name(),
            self.name,
            self.model.world(),
            self.topology.hosts(),
            lanes.len(),
            bandwidth(self.topology, lanes),
            head(COLUMNS),
        )
    }

    fn object(&self, bytes: usize, cost: &CollectiveCost, prediction: PredictedTime) -> Value {
        let [algorithm, bus] = self.bandwidths(bytes, prediction);
        json!({
            "cluster": self.name,
            "collective": self.collective.name(),
            "algorithm": cost.algorithm.to_string(),
            "ranks": self.model.world(),
            "root": self.collective.root(),
            "bytes": bytes,
            "seconds": prediction.seconds,
            "algbw_GBps": algorithm,
            "busbw_GBps": bus,
            "windows": prediction.windows,
            "lanes": cost.lanes,
            "protocol": prediction.protocol,
            "bottleneck": cost.bottleneck.map(|link| describe(self.topology, link)),
        })
    }

    /// The algorithm bandwidth (size divided by time) and the bus bandwidth (times the factor of
    /// nccl-tests), in GB/s.
    fn bandwidths(&self, bytes: usize, prediction: PredictedTime) -> [f64; 2] {
        let moves = bytes > 0 && prediction.seconds > 0.0;
        let algorithm = if moves { bytes as f64 / prediction.seconds / 1e9 } else { 0.0 };
        [algorithm, algorithm * bus_factor(self.collective, self.model.world())]
    }
}
