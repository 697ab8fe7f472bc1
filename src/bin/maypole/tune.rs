//! `maypole tune`: measures what messages and bytes cost here, and keeps it for the tuner.
//!
//! Two ranks throw vectors to and fro: half a round trip of `m` bytes takes `alpha + m beta`. Then
//! both combine their vectors at once, in one message each way, which takes `gamma` a byte more.
//! Lines through a few sizes of each give the three.

use crate::{run, sizes};
use anyhow::{Context, Result, ensure};
use maypole::algorithms::Algorithm;
use maypole::tuner::saved::TableLocation;
use maypole::tuner::{CostTable, Costs, LinearFit, Plan, fit_line};
use maypole::world::launch::{self, Launcher};
use maypole::{Communicator, ReduceOp, Transport};
use maypole_transports::cores::UsableCores;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Measure what messages and bytes cost on this host, show the fit, and keep it for every job to
/// choose by.
///
/// Takes a few seconds; let the host be quiet meanwhile. Rank 0's table serves all ranks of a job.
/// What it costs to share a core is not measured.
#[derive(clap::Args)]
pub(crate) struct TuneArgs {
    /// Where to keep the table [default: as MAYPOLE_TUNE says, or the user's cache directory].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Show the fit and keep nothing.
    #[arg(long)]
    dry_run: bool,

    /// Keep the table even if the lines are far from what was measured.
    #[arg(long)]
    force: bool,

    /// Samples for each size; the least counts.
    #[arg(long, value_name = "N", default_value = "40", value_parser = clap::value_parser!(u32).range(1..=1000))]
    samples: u32,
}

/// How long a sample lasts: shorter than a turn of the kernel's, so that some are not interrupted
/// on busy hosts.
const SAMPLE: Duration = Duration::from_micros(200);
/// From the request to end to the kill, for ranks that hang.
const GRACE: Duration = Duration::from_secs(5);

/// How often to measure at most.
const ATTEMPTS: u32 = 4;
/// How far lines may be off, as a part of what was measured.
const TOLERANCE: f64 = 0.6;

/// Sizes of the slots of a board, and of messages by TCP.
const TINY: [usize; 3] = [8, 24, 48];
const SMALL: [usize; 5] = [256, 1 << 10, 4 << 10, 8 << 10, 16 << 10];
const CHUNK: [usize; 4] = [20 << 10, 24 << 10, 28 << 10, 32 << 10];
const TCP: [usize; 6] = [8, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 128 << 10];

pub(crate) fn main(args: TuneArgs) -> Result<ExitCode> {
    let launched = launch::from_vars(&|name| std::env::var(name).ok())?.launch;
    if launched.launcher == Launcher::Alone {
        ensure!(
            UsableCores::count([&UsableCores::of_this_thread()]) >= 2,
            "two ranks need two cores, and this process may use one only"
        );
        return start(2);
    }
    ensure!(launched.world == 2, "two ranks measure, not {}", launched.world);
    let mut world = Communicator::from_env()?;
    let (table, error) = settled(&mut world, args.samples)?;
    if launched.rank == 0 && !args.dry_run {
        let percent = (error * 100.0).round();
        ensure!(
            error <= TOLERANCE || args.force,
            "the lines are off by up to {percent} %, so nothing is kept; try when the host is quiet, or use --force"
        );
        let place = args.output.map_or_else(TableLocation::from_env, TableLocation::File);
        let path = place.store(&table).context("cannot keep the table")?;
        println!("kept in {}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts ranks: this program again, with the same arguments.
pub(crate) fn start(ranks: usize) -> Result<ExitCode> {
    let program = std::env::current_exe().context("cannot find my own program")?;
    let again = |_rank| {
        let mut command = Command::new(&program);
        command.args(std::env::args_os().skip(1));
        command
    };
    let options = run::LaunchOptions {
        output: run::OutputMode::RootInherited,
        grace: GRACE,
        port: None,
        bind: run::Bind::Auto,
    };
    Ok(run::launch(again, ranks, &options)?.code().into())
}

/// Measures again while the host is not quiet enough.
fn settled(world: &mut Communicator, samples: u32) -> Result<(CostTable, f64)> {
    let mut attempts = 0;
    loop {
        let (table, error) = measure(world, samples)?;
        attempts += 1;
        // Rank 0's counts, so that both go on or stop.
        let mut errors = [error];
        world.broadcast(&mut errors, 0)?;
        if errors[0] <= TOLERANCE || attempts == ATTEMPTS {
            return Ok((table, errors[0]));
        }
    }
}

fn measure(world: &mut Communicator, samples: u32) -> Result<(CostTable, f64)> {
    let mut report = FitReport { shows: world.rank() == 0, error: 0.0 };
    report.head();
    let mut board = RankPair { comm: world.over(Transport::Shm)?, samples };
    let tiny = report.fit("tiny", &board.series(&TINY)?);
    let small = report.fit("small", &board.series(&SMALL)?);
    // So near to one another, these sizes say nothing of what a message costs.
    let chunk = report.fit("chunk", &board.series(&[&[SMALL[0]][..], &CHUNK].concat())?);
    let mut stream = RankPair { comm: world.over(Transport::Tcp)?, samples };
    let tcp = report.fit("tcp", &stream.series(&TCP)?);
    Ok((CostTable { tiny, small, chunk, tcp, ..CostTable::BUILT_IN }, report.error))
}

/// What one size took, in picoseconds: one way, and combined both ways.
struct TunePoint {
    bytes: usize,
    ping: f64,
    fold: f64,
}

/// Two ranks and what joins them.
struct RankPair {
    comm: Communicator,
    samples: u32,
}

impl RankPair {
    fn series(&mut self, sizes: &[usize]) -> Result<Vec<TunePoint>> {
        sizes.iter().map(|bytes| self.point(*bytes)).collect()
    }

    fn point(&mut self, bytes: usize) -> Result<TunePoint> {
        let mut data = vec![0f32; bytes / size_of::<f32>()];
        let ping = self.time(Algorithm::Linear, |comm| {
            comm.broadcast(&mut data, 0)?;
            comm.broadcast(&mut data, 1)
        })?;
        let fold =
            self.time(Algorithm::OneShot, |comm| comm.all_reduce(&mut data, ReduceOp::Max))?;
        Ok(TunePoint { bytes, ping: ping / 2.0, fold })
    }

    /// The least picoseconds of a call in one window.
    fn time(
        &mut self,
        algorithm: Algorithm,
        mut call: impl FnMut(&mut Communicator) -> maypole::Result<()>,
    ) -> Result<f64> {
        let mut batch = |comm: &mut Communicator, calls: u32| -> Result<f64> {
            comm.set_plan(None);
            comm.barrier()?;
            comm.set_plan(Some(Plan { algorithm, window: 1 << 30 }));
            let start = Instant::now();
            (0..calls).try_for_each(|_| call(comm))?;
            Ok(start.elapsed().as_nanos() as f64 * 1e3 / f64::from(calls))
        };
        batch(&mut self.comm, 20)?;
        let one = batch(&mut self.comm, 20)?;
        let mut calls = [(SAMPLE.as_nanos() as f64 * 1e3 / one).clamp(4.0, 10_000.0) as u32];
        self.comm.set_plan(None);
        self.comm.broadcast(&mut calls, 0)?;
        (0..self.samples)
            .try_fold(f64::INFINITY, |least, _| Ok(least.min(batch(&mut self.comm, calls[0])?)))
    }
}

/// What rank 0 shows.
struct FitReport {
    shows: bool,
    /// How far lines are off at most, as a part of what was measured.
    error: f64,
}

impl FitReport {
    fn head(&self) {
        if self.shows {
            println!("# one way, and combined both ways: measured and fitted, in us");
            println!(
                "#{:>6} {:>8} {:>10} {:>10} {:>10} {:>10}",
                "link", "bytes", "one way", "fitted", "combined", "fitted"
            );
        }
    }

    /// The costs that fit best, shown beside what was measured.
    fn fit(&mut self, name: &str, points: &[TunePoint]) -> Costs {
        let of = |time: fn(&TunePoint) -> f64| {
            fit_line(&points.iter().map(|it| (it.bytes as f64, time(it))).collect::<Vec<_>>())
        };
        let ping = of(|it| it.ping);
        let fold = of(|it| it.fold);
        for point in points {
            let off = (ping.at(point.bytes as f64) / point.ping - 1.0).abs();
            self.error = self.error.max(off);
        }
        if self.shows {
            for TunePoint { bytes, ping: one_way, fold: combined } in points {
                let size = *bytes as f64;
                let times = [*one_way, ping.at(size), *combined, fold.at(size)]
                    .map(|time| format!("{:>10.3}", time / 1e6));
                println!(" {name:>6} {:>8} {}", sizes::name(*bytes), times.join(" "));
            }
        }
        let costs = costs(ping, fold);
        if self.shows {
            let Costs { alpha, beta, gamma } = costs;
            println!("# {name}: alpha {alpha} ps, beta {beta} ps/KiB, gamma {gamma} ps/KiB");
        }
        costs
    }
}

fn costs(ping: LinearFit, fold: LinearFit) -> Costs {
    let kib = |slope: f64| (slope * 1024.0).round() as u64;
    // To and fro are two calls that take turns, and turning costs something that is no message's.
    let alpha = ping.start.min(fold.start).round() as u64;
    Costs { alpha, beta: kib(ping.slope), gamma: kib((fold.slope - ping.slope).max(0.0)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_costs_are_found() {
        let points = |start: f64, slope: f64| {
            SMALL.map(|bytes| (bytes as f64, start + slope * bytes as f64))
        };
        let found = costs(fit_line(&points(140_000.0, 164.0)), fit_line(&points(150_000.0, 180.0)));
        assert_eq!(found, Costs { alpha: 140_000, beta: 164 * 1024, gamma: 16 * 1024 });
    }
}
