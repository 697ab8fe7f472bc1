//! `maypole simulate --transport cuda`: the prices by which calls on GPUs choose.

use super::SimulateArgs;
use crate::{names, output, sizes};
use anyhow::{Result, bail};
use maypole::schedule::collective::Collective;
use maypole::topology::DeviceLinks;
use maypole::tuner::{Candidate, CandidateVerdict, Explanation};
use maypole_cluster::predict::bus_factor;
use serde_json::json;
use std::num::NonZeroUsize;
use std::process::ExitCode;

/// Prints every candidate of every size with its price: those that `maypole explain` prints.
pub(super) fn main(args: &SimulateArgs, wanted: Collective) -> Result<ExitCode> {
    let links = args.gpus.links(args.lab.cluster.as_deref(), args.ranks)?;
    let collective = names::rooted(wanted, args.root, links.world(), names::MOST_RANKS)?;
    if let Some(algorithm) = args.algorithm.filter(|it| !it.supports(collective)) {
        bail!("{}", names::not_implemented(algorithm, collective));
    }
    let sizes = args.bytes.sizes();
    for (nth, &size) in sizes.iter().enumerate() {
        let bytes = if collective == Collective::Barrier { 0 } else { size };
        let explanation = maypole::cuda::explain_on(&links, collective, bytes, None);
        if nth == 0 && !args.json {
            output::print(head(&explanation, &links, args.lab.cluster.as_deref()))?;
        }
        for candidate in candidates(args, &explanation) {
            let row = match args.json {
                true => object(&explanation, &links, &candidate),
                false => row(&explanation, &candidate),
            };
            output::print_line(row)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The requested candidates, the fastest first.
fn candidates(args: &SimulateArgs, explanation: &Explanation) -> Vec<Candidate> {
    let all = explanation.choice.as_ref().map_or(&[][..], |choice| &choice.candidates[..]);
    let asked = |one: &&Candidate| args.algorithm.is_none_or(|it| it == one.plan.algorithm);
    let mut asked: Vec<Candidate> = all.iter().filter(asked).copied().collect();
    asked.sort_by_key(|one| one.predicted_ns);
    asked.truncate(args.lab.fastest.map_or(asked.len(), NonZeroUsize::get));
    asked
}

fn head(explanation: &Explanation, links: &DeviceLinks, cluster: Option<&str>) -> String {
    let source = explanation.gpus.as_ref().map_or("", |prices| &prices.source);
    let place = cluster.map_or_else(String::new, |name| format!(" of {name}"));
    let links = links.to_string().replace("\n  ", "\n# ");
    format!(
        "# {} on {} ranks on GPUs{place}\n\
         # {}\n\
         # predicted; prices: {source}\n\
         # size: bytes of the whole; algbw, busbw: GB/s as in nccl-tests; *: what a call chooses\n\
         #{:>7} {:<22} {:>12} {:>9} {:>9} {:>8}\n",
        names::dashed(explanation.collective),
        explanation.world,
        links.trim(),
        "size",
        "algorithm",
        "time(us)",
        "algbw",
        "busbw",
        "windows",
    )
}

/// Algorithm bandwidth and bus bandwidth, in GB/s.
fn bandwidths(explanation: &Explanation, candidate: &Candidate) -> [f64; 2] {
    let algorithm = explanation.bytes as f64 / candidate.predicted_ns.max(1) as f64;
    [algorithm, algorithm * bus_factor(explanation.collective, explanation.world)]
}

fn row(explanation: &Explanation, candidate: &Candidate) -> String {
    let [algorithm, bus] = bandwidths(explanation, candidate);
    let mark = if candidate.verdict == CandidateVerdict::Chosen { '*' } else { ' ' };
    format!(
        "{mark}{:>7} {:<22} {:>12.2} {algorithm:>9.2} {bus:>9.2} {:>8}",
        sizes::name(explanation.bytes),
        candidate.plan.algorithm.name(),
        candidate.predicted_ns as f64 / 1e3,
        candidate.windows,
    )
}

fn object(explanation: &Explanation, links: &DeviceLinks, candidate: &Candidate) -> String {
    let [algorithm, bus] = bandwidths(explanation, candidate);
    let prices = explanation.gpus.as_ref();
    json!({
        "transport": "cuda",
        "collective": explanation.collective.name(),
        "algorithm": candidate.plan.algorithm.name(),
        "ranks": explanation.world,
        "gpus": links.gpus(),
        "ring": links.order(),
        "root": explanation.collective.root(),
        "bytes": explanation.bytes,
        "windows": candidate.windows,
        "seconds": candidate.predicted_ns as f64 / 1e9,
        "algbw_GBps": algorithm,
        "busbw_GBps": bus,
        "chosen": candidate.verdict == CandidateVerdict::Chosen,
        "prices": prices.map(|prices| &prices.source),
        "prices_measured": prices.is_some_and(|prices| prices.are_measured),
    })
    .to_string()
}
