//! Whether calls are faster by measured costs than by the built-in ones.
//!
//! A line fits a few messages of two ranks, and a machine may have changed its speed while it was
//! measured. So calls of several collectives and sizes are timed by both tables in turn, and of each
//! transport the table gets the measured rows if calls take less time by them.

use super::SAMPLE;
use crate::statistics;
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

type Call = fn(&mut Communicator, &mut [f32]) -> maypole::Result<()>;

/// The calls that are timed, of a vector that is as long as the whole.
const CALLS: [Call; 6] = [
    |comm, data| comm.all_reduce(data, ReduceOp::Max),
    |comm, data| comm.broadcast(data, 0),
    |comm, data| comm.reduce(data, ReduceOp::Max, 0),
    |comm, data| comm.all_gather(data),
    |comm, data| comm.reduce_scatter(data, ReduceOp::Max),
    |comm, data| comm.all_to_all(data),
];

/// The table to save, and lines with the reasons. `measured` has rows for TCP and for boards, and
/// for verbs where the ranks have them. Collective: rank 0 decides.
pub(super) fn better_rows(
    world: &mut Communicator,
    measured: &CostTable,
) -> Result<(CostTable, String)> {
    const BUILT_IN: CostTable = CostTable::BUILT_IN;
    let (mut table, mut text) = (*measured, String::new());
    if !is_faster(world, Transport::Shm, measured, &mut text)? {
        let CostTable { tiny, small, chunk, copy, .. } = BUILT_IN;
        table = CostTable { tiny, small, chunk, copy, ..table };
    }
    if !is_faster(world, Transport::Tcp, measured, &mut text)? {
        table.tcp = BUILT_IN.tcp;
    }
    let has_verbs = measured.verbs != BUILT_IN.verbs;
    if has_verbs && !is_faster(world, Transport::Ib, measured, &mut text)? {
        table.verbs = BUILT_IN.verbs;
    }
    Ok((table, text))
}

/// True if calls over `transport` are faster by `measured` than by the built-in table.
fn is_faster(
    world: &mut Communicator,
    transport: Transport,
    measured: &CostTable,
    text: &mut String,
) -> Result<bool> {
    let mut groups = [world.over(transport)?, world.over(transport)?];
    groups[0].set_costs(CostTable::BUILT_IN);
    groups[1].set_costs(*measured);
    let mean = compared(&mut groups)?;
    // Ranks differ in their measurements.
    let is_faster = world.broadcast_value(Some(mean >= MARGIN), 0)?;
    let kept = if is_faster { "measured" } else { "built-in" };
    let _ = writeln!(
        text,
        "# {transport}: time by the built-in costs / by measured rows, geometric mean of {} calls: \
         {mean:.2}; the {kept} rows are saved",
        CALLS.len() * SIZES.len()
    );
    Ok(is_faster)
}

/// The geometric mean over all calls of their time by the first group divided by that by the second.
fn compared(groups: &mut [Communicator; 2]) -> Result<f64> {
    let mut sum = 0.0;
    for call in CALLS {
        for bytes in SIZES {
            let rounds = times(groups, bytes, call)?;
            let ratios = rounds.iter().map(|[first, second]| first / second).collect();
            sum += statistics::median(ratios).expect("there are rounds").ln();
        }
    }
    Ok((sum / (CALLS.len() * SIZES.len()) as f64).exp())
}

/// By round and group: the time of a call.
fn times(groups: &mut [Communicator; 2], bytes: usize, call: Call) -> Result<Vec<[f64; 2]>> {
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
    let calls = (SAMPLE.as_secs_f64() / slowest).clamp(1.0, 1000.0) as u64;
    let [first, second] = groups;
    let calls = first.broadcast_value(Some(calls), 0)?;
    (0..ROUNDS).map(|_| Ok([batch(first, calls)?, batch(second, calls)?])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tables have the same costs, so no call is clearly slower in all rounds of both.
    #[test]
    fn every_call_is_timed_by_both_tables() {
        let means = Communicator::run_local(2, |mut comm| {
            let mut groups = [0, 1].map(|_| comm.split(Some(0), 0).unwrap().unwrap());
            compared(&mut groups).unwrap()
        });
        assert!(means.iter().all(|mean| mean.is_finite() && *mean > 0.0), "{means:?}");
    }
}
