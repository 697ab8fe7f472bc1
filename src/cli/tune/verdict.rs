//! Whether calls are faster by measured costs than by the built-in ones.
//!
//! A line fits a few messages of two ranks, and a machine may have changed its speed while it was
//! measured. So calls of several collectives and sizes are timed by each table in turn, and of each
//! transport the table gets those rows by which calls took the least time.

use super::SAMPLE;
use crate::{sizes, statistics};
use anyhow::Result;
use maypole::tuner::CostTable;
use maypole::{Communicator, ReduceOp, Transport};
use std::fmt::Write;
use std::time::Instant;

/// Bytes of a call.
const SIZES: [usize; 5] = [8, 4 << 10, 64 << 10, 1 << 20, 4 << 20];
/// Times that each table's calls are timed, in turn.
const ROUNDS: usize = 5;
/// By how much calls must be faster for measured rows to be kept: less is noise.
const MARGIN: f64 = 1.02;
/// A call that takes so much longer than by the built-in costs is named.
const SLOWER: f64 = 0.9;

type Call = fn(&mut Communicator, &mut [f32]) -> maypole::Result<()>;

/// The calls that are timed, of a vector that is as long as the whole.
const CALLS: [(&str, Call); 6] = [
    ("all-reduce", |comm, data| comm.all_reduce(data, ReduceOp::Max)),
    ("broadcast", |comm, data| comm.broadcast(data, 0)),
    ("reduce", |comm, data| comm.reduce(data, ReduceOp::Max, 0)),
    ("all-gather", |comm, data| comm.all_gather(data)),
    ("reduce-scatter", |comm, data| comm.reduce_scatter(data, ReduceOp::Max)),
    ("all-to-all", |comm, data| comm.all_to_all(data)),
];

/// Some rows of a measured table, and the built-in ones otherwise.
struct TableRows {
    name: &'static str,
    table: CostTable,
}

/// How calls by some rows compare with calls by the built-in costs.
struct Ratios<'a> {
    rows: &'a TableRows,
    /// The geometric mean of the time by the built-in costs divided by that by the rows.
    mean: f64,
    /// The calls that are clearly slower.
    slower: Vec<String>,
}

/// The table to save, and lines with the reasons. `measured` has rows for TCP and for boards, and
/// for verbs where the ranks have them. Collective: rank 0 decides.
pub(super) fn better_rows(
    world: &mut Communicator,
    measured: &CostTable,
) -> Result<(CostTable, String)> {
    const BUILT_IN: CostTable = CostTable::BUILT_IN;
    let CostTable { tiny, small, chunk, copy, tcp, verbs, .. } = *measured;
    let slots = CostTable { tiny, small, chunk, ..BUILT_IN };
    let boards = [
        TableRows { name: "slots and copies", table: CostTable { copy, ..slots } },
        TableRows { name: "slots", table: slots },
        TableRows { name: "copies", table: CostTable { copy, ..BUILT_IN } },
    ];
    let streams = [TableRows { name: "tcp", table: CostTable { tcp, ..BUILT_IN } }];
    let adapters = [TableRows { name: "verbs", table: CostTable { verbs, ..BUILT_IN } }];
    let mut text = String::new();
    let CostTable { tiny, small, chunk, copy, .. } =
        decided(world, Transport::Shm, &boards, &mut text)?;
    let CostTable { tcp, .. } = decided(world, Transport::Tcp, &streams, &mut text)?;
    let mut has_verbs = [u8::from(verbs != BUILT_IN.verbs)];
    world.broadcast(&mut has_verbs, 0)?;
    let CostTable { verbs, .. } = match has_verbs {
        [0] => BUILT_IN,
        _ => decided(world, Transport::Ib, &adapters, &mut text)?,
    };
    Ok((CostTable { tiny, small, chunk, copy, tcp, verbs, ..*measured }, text))
}

/// The best of `all` and the built-in table for calls over `transport`.
fn decided(
    world: &mut Communicator,
    transport: Transport,
    all: &[TableRows],
    text: &mut String,
) -> Result<CostTable> {
    let mut groups = Vec::new();
    for table in std::iter::once(CostTable::BUILT_IN).chain(all.iter().map(|rows| rows.table)) {
        let mut group = world.over(transport)?;
        group.set_costs(table);
        groups.push(group);
    }
    let ratios = compared(&mut groups, all)?;
    let best = best_of(&ratios);
    let chosen = best.and_then(|best| all.iter().position(|rows| std::ptr::eq(rows, best.rows)));
    // Ranks differ in their measurements. The place of a table, from one; zero is the built-in one.
    let mut place = [chosen.map_or(0, |at| at as u64 + 1)];
    world.broadcast(&mut place, 0)?;
    tell(transport, &ratios, best, text);
    Ok(match place[0] {
        0 => CostTable::BUILT_IN,
        place => all[place as usize - 1].table,
    })
}

/// The rows by which calls took the least time, if that is clearly less than by the built-in costs.
fn best_of<'a, 'b>(ratios: &'a [Ratios<'b>]) -> Option<&'a Ratios<'b>> {
    let faster = ratios.iter().filter(|ratios| ratios.mean >= MARGIN);
    faster.max_by(|a, b| a.mean.total_cmp(&b.mean))
}

fn tell(transport: Transport, ratios: &[Ratios<'_>], best: Option<&Ratios<'_>>, text: &mut String) {
    let means: Vec<String> =
        ratios.iter().map(|it| format!("{} {:.2}", it.rows.name, it.mean)).collect();
    let kept = best.map_or_else(
        || "no measured row makes calls faster, so the built-in ones stay".to_owned(),
        |best| format!("the measured rows of {} are kept", best.rows.name),
    );
    let _ = writeln!(
        text,
        "# {transport}: time by the built-in costs / by measured rows, geometric mean of {} calls: {}; \
         {kept}",
        CALLS.len() * SIZES.len(),
        means.join(", ")
    );
    for slower in best.iter().flat_map(|best| &best.slower) {
        let _ = writeln!(text, "# {transport}: slower by them: {slower}");
    }
}

/// Times all calls by each group in turn. The first group has the built-in costs, the others those of
/// `all`.
fn compared<'a>(groups: &mut [Communicator], all: &'a [TableRows]) -> Result<Vec<Ratios<'a>>> {
    let mut ratios: Vec<_> =
        all.iter().map(|rows| Ratios { rows, mean: 0.0, slower: Vec::new() }).collect();
    for (name, call) in CALLS {
        for bytes in SIZES {
            let times = times(groups, bytes, call)?;
            for (at, ratios) in ratios.iter_mut().enumerate() {
                let of_rounds = times.iter().map(|round| round[0] / round[at + 1]).collect();
                let ratio = statistics::median(of_rounds).expect("there are rounds");
                ratios.mean += ratio.ln();
                if ratio < SLOWER {
                    ratios.slower.push(format!("{name} of {} ({ratio:.2})", sizes::name(bytes)));
                }
            }
        }
    }
    let count = (CALLS.len() * SIZES.len()) as f64;
    ratios.iter_mut().for_each(|ratios| ratios.mean = (ratios.mean / count).exp());
    Ok(ratios)
}

/// By round and group: the time of a call.
fn times(groups: &mut [Communicator], bytes: usize, call: Call) -> Result<Vec<Vec<f64>>> {
    // Two elements at least: one for each rank.
    let mut data = vec![0f32; bytes / size_of::<f32>()];
    let mut batch = |comm: &mut Communicator, calls: u64| -> Result<f64> {
        comm.barrier()?;
        let start = Instant::now();
        for _ in 0..calls {
            call(comm, &mut data)?;
        }
        Ok(start.elapsed().as_secs_f64() / calls as f64)
    };
    let mut slowest = 0f64;
    for comm in &mut *groups {
        batch(comm, 2)?;
        slowest = slowest.max(batch(comm, 2)?);
    }
    let mut calls = [(SAMPLE.as_secs_f64() / slowest).clamp(1.0, 1000.0) as u64];
    groups[0].broadcast(&mut calls, 0)?;
    (0..ROUNDS).map(|_| groups.iter_mut().map(|comm| batch(comm, calls[0])).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_make_no_call_faster_are_not_kept() {
        let rows = ["slots and copies", "slots", "copies"]
            .map(|name| TableRows { name, table: CostTable::BUILT_IN });
        let best = |means: [f64; 3]| {
            let ratios: Vec<Ratios<'_>> = rows
                .iter()
                .zip(means)
                .map(|(rows, mean)| Ratios { rows, mean, slower: Vec::new() })
                .collect();
            best_of(&ratios).map(|best| best.rows.name)
        };
        assert_eq!(best([1.2, 1.1, 1.3]), Some("copies"));
        assert_eq!(best([0.9, 1.1, 0.8]), Some("slots"));
        assert_eq!(best([0.87, 1.01, 1.0]), None, "as noise may look");
    }

    /// The tables have the same costs, so no call is clearly slower in all rounds of both.
    #[test]
    fn every_call_is_timed_by_every_table() {
        let rows = [TableRows { name: "the same", table: CostTable::BUILT_IN }];
        let compared = Communicator::run_local(2, |mut comm| {
            let mut groups = [0, 1].map(|_| comm.split(Some(0), 0).unwrap().unwrap());
            let ratios = compared(&mut groups, &rows).unwrap();
            ratios[0].mean
        });
        assert!(compared.iter().all(|mean| mean.is_finite() && *mean > 0.0), "{compared:?}");
    }
}
