//! Prints a machine as text.

use super::facts::MachineFacts;
use super::transports;
use crate::simulate::cluster::{COURIERS, by_couriers};
use maypole::schedule::collective::Collective;

/// Matrices with more columns are not printed; `--json` has them.
const MOST_COLUMNS: usize = 40;

/// The meaning of each word in the matrix, from near to far.
const LEGEND: [(&str, &str); 14] = [
    ("X", "itself"),
    ("NV", "NV#: this many bonded NVLinks, straight or through a switch"),
    ("XGMI", "XGMI#: this many of AMD's links between GPUs"),
    ("PSB", "a PCIe switch on the board that both devices share"),
    ("PIX", "at most one PCIe bridge"),
    ("PXB", "several PCIe bridges, no host bridge"),
    ("PHB", "a PCIe host bridge, typically the CPU"),
    ("NODE", "host bridges, or memory, of one NUMA node"),
    ("SYS", "the link between NUMA nodes"),
    ("SOC", "the link between sockets: an old word for SYS"),
    ("PCIE", "PCIe; the description does not say over which bridges"),
    ("NET", "the network"),
    ("?", "not described"),
    ("-", "not connected"),
];

pub(super) fn text(facts: &MachineFacts) -> String {
    let title = format!("# {}\n", facts.title);
    let parts = [title, matrix(facts), rings(facts), pairs(facts), couriers(facts)];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

fn couriers(facts: &MachineFacts) -> String {
    let bus = by_couriers(&facts.topology, Collective::AllReduce, 64 << 20).ok().flatten();
    bus.map_or_else(String::new, |bus| {
        format!("all-reduce of 64M between the GPUs {COURIERS}: busbw {bus:.1} GB/s\n")
    })
}

fn matrix(facts: &MachineFacts) -> String {
    if facts.labels.len() > MOST_COLUMNS {
        let cards = facts.labels.len() - facts.ranks;
        return format!(
            "{} ranks and {cards} network cards: the matrix is too wide to print; use --json\n",
            facts.ranks
        );
    }
    let rows = facts
        .labels
        .iter()
        .zip(&facts.cells)
        .map(|(label, cells)| (label.as_str(), cells.as_slice()));
    let widest =
        facts.labels.iter().chain(facts.cells.iter().flatten()).map(String::len).max().unwrap_or(0)
            + 2;
    let line = |label: &str, cells: &[String]| {
        let cells: String = cells.iter().map(|cell| format!("{cell:widest$}")).collect();
        format!("{label:widest$}{cells}").trim_end().to_owned() + "\n"
    };
    let table: String = std::iter::once(line("", &facts.labels))
        .chain(rows.map(|(label, cells)| line(label, cells)))
        .collect();
    table + "\n" + &legend(facts)
}

fn legend(facts: &MachineFacts) -> String {
    let letters =
        |cell: &String| cell.trim_end_matches(|char: char| char.is_ascii_digit()).to_owned();
    let used: Vec<String> = facts.cells.iter().flatten().map(letters).collect();
    let lines = LEGEND.into_iter().filter(|(word, _)| used.iter().any(|cell| cell == word));
    lines.map(|(word, meaning)| format!("  {word:5} {meaning}\n")).collect()
}

fn order(of: &[usize]) -> String {
    of.iter().map(usize::to_string).collect::<Vec<_>>().join(" ")
}

fn rings(facts: &MachineFacts) -> String {
    let best = facts.ring();
    let Some(bottleneck) = best.bottleneck else { return String::new() };
    let mut text =
        format!("best ring       {}  (its worst link: {bottleneck})\n", order(&best.order));
    for (nth, lane) in facts.lanes.iter().enumerate() {
        let narrowest = lane.hops.iter().map(|path| path.bandwidth).fold(f64::INFINITY, f64::min);
        text += &format!(
            "ring {nth:<10} {}  (its narrowest link: {narrowest:.1} GB/s, assumed)\n",
            order(&lane.order)
        );
    }
    text
}

fn pairs(facts: &MachineFacts) -> String {
    let choices = transports::choices(&facts.offers);
    let all = choices.len();
    let mut text = String::new();
    for (choice, pairs) in transports::alike(choices) {
        let some: Vec<String> = pairs.iter().take(8).map(|(a, b)| format!("{a}-{b}")).collect();
        let more = if pairs.len() > some.len() {
            format!(" and {} more", pairs.len() - some.len())
        } else {
            String::new()
        };
        let which = if pairs.len() == all {
            "every pair".to_owned()
        } else {
            format!("ranks {}{more}", some.join(" "))
        };
        text += &format!("transport {:5} {which}\n", choice.transport);
        for (transport, why) in &choice.refused {
            text += &format!("  {}: {why}\n", transport.title());
        }
    }
    text
}
