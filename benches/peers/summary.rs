//! The summary of a record: a table for each group, geometric means, the points below 0.9, and the
//! table of the README.

use crate::programs::{PeerPoint, Selection};
use crate::record::{Ratios, Record};
use crate::{Group, OURS};
use std::fmt::Write;

/// The points of `group` whose ratio is below `bar`: one selection a collective.
pub(crate) fn slow_points(record: &Record, group: &Group, bar: f64) -> Vec<Selection> {
    let mut selections: Vec<Selection> = Vec::new();
    for (collective, bytes) in below(record, group, bar) {
        match selections.iter_mut().find(|known| known.collectives[0] == *collective) {
            Some(known) => known.sizes.push(*bytes),
            None => selections
                .push(Selection { collectives: vec![collective.clone()], sizes: vec![*bytes] }),
        }
    }
    selections
}

fn below<'a>(record: &'a Record, group: &Group, bar: f64) -> Vec<&'a PeerPoint> {
    let ratio = |point: &PeerPoint| record.ratios(group, point).map_or(1.0, |it| it.median);
    record.points(group).into_iter().filter(|point| ratio(point) < bar).collect()
}

/// The median times of all libraries at each point, and the ratio.
pub(crate) fn group_table(record: &Record, group: &Group, peers: &[String]) -> String {
    let mut text = format!(
        "# {group}: median microseconds a call; best/ours: the best peer's time divided by \
         maypole's, median of the rounds (least to most); above 1 maypole is faster\n"
    );
    let _ = write!(text, "# {:>14} {:>10} {OURS:>10}", "collective", "bytes");
    peers.iter().for_each(|name| _ = write!(text, " {name:>10}"));
    let _ = writeln!(text, " | {:>9} (least to most)", "best/ours");
    for point in record.points(group) {
        let _ = write!(text, "  {:>14} {:>10}", point.0, point.1);
        for library in std::iter::once(OURS).chain(peers.iter().map(String::as_str)) {
            let time = record.time(group, library, point);
            let time = time.map_or_else(|| "-".to_owned(), |us| format!("{us:.3}"));
            let _ = write!(text, " {time:>10}");
        }
        let ratios = record.ratios(group, point).map_or_else(
            || format!("{:>9}", "-"),
            |it| {
                let range = format!("{:.2} to {:.2}", it.least, it.most);
                format!("{:>9.2} ({range}, {} rounds)", it.median, it.rounds)
            },
        );
        let _ = writeln!(text, " | {ratios}");
    }
    text
}

/// Geometric means of each group and of all, and the points below `bar`.
pub(crate) fn totals(record: &Record, groups: &[Group], bar: f64) -> String {
    let mut text = "# geometric mean of best peer / ours\n".to_owned();
    let mut all = Vec::new();
    for group in groups {
        let ratios: Vec<f64> = record
            .points(group)
            .into_iter()
            .filter_map(|point| Some(record.ratios(group, point)?.median))
            .collect();
        let _ = writeln!(text, "{:>6} {}", group.to_string(), mean(&ratios, bar));
        all.extend(ratios);
    }
    let _ = writeln!(text, "   all {}", mean(&all, bar));
    for group in groups {
        for point in below(record, group, bar) {
            let Some(it) = record.ratios(group, point) else { continue };
            let range = format!("{:.2} to {:.2}", it.least, it.most);
            let _ = writeln!(
                text,
                "# below {bar}: {group} {} {}: {:.2} ({range}, {} rounds)",
                point.0, point.1, it.median, it.rounds
            );
        }
    }
    text
}

fn mean(ratios: &[f64], bar: f64) -> String {
    let logs: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    let mean = (logs / ratios.len().max(1) as f64).exp();
    let ahead = ratios.iter().filter(|ratio| **ratio >= 1.0).count();
    let behind = ratios.iter().filter(|ratio| **ratio < bar).count();
    format!("{mean:.2} over {} points: {ahead} at 1 or more, {behind} below {bar}", ratios.len())
}

/// A Markdown table: a row for each group and collective; in each cell the median microseconds of a call
/// and, in brackets, the median ratio with the least and the greatest one of a round.
pub(crate) fn markdown(
    record: &Record,
    groups: &[Group],
    collectives: &[String],
    sizes: &[u64],
) -> String {
    let mut text = format!("{}\n\n| | |", machine());
    sizes.iter().for_each(|size| _ = write!(text, " {} |", size_name(*size)));
    let _ = write!(text, "\n|---|---|{}", "---|".repeat(sizes.len()));
    for group in groups {
        for collective in collectives {
            let ranks = format!("{}, {} ranks", group.transport, group.ranks);
            let _ = write!(text, "\n| {ranks} | {collective} |");
            for size in sizes {
                let point = (collective.clone(), *size);
                let cell = match (record.time(group, OURS, &point), record.ratios(group, &point)) {
                    (Some(us), Some(it)) => {
                        let Ratios { median, least, most, .. } = it;
                        format!("{} ({median:.2}; {least:.2} to {most:.2})", short(us))
                    }
                    (Some(us), None) => short(us),
                    _ => "-".to_owned(),
                };
                let _ = write!(text, " {cell} |");
            }
        }
    }
    text
}

/// Three significant digits.
fn short(us: f64) -> String {
    match us {
        ..1.0 => format!("{us:.3}"),
        ..10.0 => format!("{us:.2}"),
        ..100.0 => format!("{us:.1}"),
        _ => format!("{us:.0}"),
    }
}

fn size_name(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} B"),
    }
}

/// The processor, its cores and the system; the day, and the commit of the source.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let model = field("model name").unwrap_or_else(|| "unknown processor".to_owned());
    let number = field("model\t").unwrap_or_default();
    let system = read("/proc/sys/kernel/osrelease");
    let output = |program: &str, arguments: &[&str]| {
        let output = std::process::Command::new(program).args(arguments).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let day = output("date", &["-u", "+%F"]).unwrap_or_default();
    let commit = output("git", &["describe", "--always", "--dirty"]).unwrap_or_default();
    format!(
        "{cores} cores, {model} (model {number}), Linux {}; {day}, commit {commit}",
        system.trim()
    )
}
