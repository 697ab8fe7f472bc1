//! A rank that measures: each collective at three lengths, alone and in a row.

use crate::statistics;
use anyhow::{Context, Result};
use maypole::algorithms::Algorithm;
use maypole::{Communicator, ReduceOp};
use std::thread;
use std::time::{Duration, SystemTime};

/// Set in a rank that measures: the algorithm that it forces, or nothing.
pub(crate) const MEASURES: &str = "FAR_MEASURES";

/// Calls of a row, and calls alone, of which the first two are not counted.
const ROW: usize = 10;
const ALONE: usize = 9;
/// All ranks have the time at which a call begins so long before it.
const AHEAD: Duration = Duration::from_millis(30);

const COLLECTIVES: [&str; 6] =
    ["broadcast", "reduce", "all-reduce", "all-gather", "reduce-scatter", "all-to-all"];

/// Set in a rank that measures the processor time of its waits.
pub(crate) const WAITS: &str = "FAR_WAITS";
/// Calls whose processor time is measured.
const WAITED: usize = 2000;

pub(crate) fn measure_if_asked() -> Result<bool> {
    if std::env::var_os(WAITS).is_some() {
        return waits().map(|()| true);
    }
    let Ok(forced) = std::env::var(MEASURES) else { return Ok(false) };
    let forced = if forced.is_empty() { None } else { Some(forced.parse::<Algorithm>()?) };
    let mut comm = Communicator::from_env()?;
    for name in COLLECTIVES {
        for bytes in [64, 64 << 10, 1 << 20] {
            measure(&mut comm, name, bytes, forced)?;
        }
    }
    comm.close()?;
    Ok(true)
}

fn measure(
    comm: &mut Communicator,
    name: &str,
    bytes: usize,
    forced: Option<Algorithm>,
) -> Result<()> {
    let (world, rank) = (comm.world(), comm.rank());
    let block = (bytes / size_of::<f32>() / world).max(1);
    let input = vec![1f32; block * world];
    let mut output = vec![0f32; block * world];
    let mut call = |comm: &mut Communicator| match name {
        "broadcast" => comm.broadcast(&mut output, 0),
        "reduce" if rank == 0 => comm.reduce((&input, &mut output), ReduceOp::Sum, 0),
        "reduce" => comm.reduce((&input, &mut []), ReduceOp::Sum, 0),
        "all-reduce" => comm.all_reduce((&input, &mut output), ReduceOp::Sum),
        "all-gather" => comm.all_gather((&input[..block], &mut output)),
        "reduce-scatter" => comm.reduce_scatter((&input, &mut output[..block]), ReduceOp::Sum),
        _ => comm.all_to_all((&input, &mut output)),
    };
    comm.set_algorithm(forced);
    // The algorithm may not implement the collective: on all ranks alike, and before anything is sent.
    if call(comm).is_err() {
        comm.set_algorithm(None);
        return Ok(());
    }
    let mut alone = Vec::new();
    for _ in 0..ALONE {
        comm.set_algorithm(None);
        comm.barrier()?;
        let mut times = vec![0f64; world];
        comm.all_gather((&[now()?], &mut times))?;
        let start = latest(&times) + AHEAD.as_secs_f64();
        thread::sleep(Duration::from_secs_f64((start - now()?).max(0.0)));
        comm.set_algorithm(forced);
        call(comm)?;
        let end = now()?;
        comm.set_algorithm(None);
        comm.all_gather((&[end], &mut times))?;
        let last = if name == "reduce" { times[0] } else { latest(&times) };
        alone.push((last - start) * 1e6);
    }
    comm.barrier()?;
    comm.set_algorithm(forced);
    let start = now()?;
    (0..ROW).try_for_each(|_| call(comm))?;
    comm.set_algorithm(None);
    comm.barrier()?;
    let row = (now()? - start) * 1e6 / ROW as f64;
    if rank == 0 {
        let alone = statistics::median(alone.split_off(2)).context("no samples")?;
        println!("{name} {} {alone:.1} {row:.1}", block * world * size_of::<f32>());
    }
    Ok(())
}

/// Prints microseconds of a short call, and of the processor for it.
fn waits() -> Result<()> {
    let mut comm = Communicator::from_env()?;
    let mut sum = [0f32; 16];
    (0..WAITED / 10).try_for_each(|_| comm.all_reduce(&mut sum, ReduceOp::Max))?;
    let (start, before) = (now()?, processor()?);
    (0..WAITED).try_for_each(|_| comm.all_reduce(&mut sum, ReduceOp::Max))?;
    let each = |seconds: f64| seconds * 1e6 / WAITED as f64;
    println!("{} {}", each(now()? - start), each(processor()? - before));
    Ok(comm.close()?)
}

/// Seconds of the processor that this thread has had.
fn processor() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split(' ').next().context("no time")?.parse::<f64>()? * 1e-9)
}

/// Seconds of the clock that all namespaces share.
fn now() -> Result<f64> {
    Ok(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs_f64())
}

fn latest(times: &[f64]) -> f64 {
    times.iter().copied().fold(0.0, f64::max)
}
