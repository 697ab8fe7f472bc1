//! `maypole tune`: measures the costs of messages and bytes on this host and saves them for the
//! tuner.
//!
//! Two ranks send a vector back and forth: half a round trip of `m` bytes takes `alpha + m *
//! beta`. Then both ranks combine their vectors at the same time, with one message each way, which
//! takes `m * gamma` longer. A straight line is fitted to each of the two over several sizes; the
//! lines give alpha, beta and gamma. Then each rank in turn lets the kernel copy the other one's
//! private memory. What other programs took meanwhile decides whether the result is saved.
//! Last, calls are timed by the measured costs and by the built-in ones, and rows by
//! which they are not faster are not saved.

use crate::fit::{LinearFit, fit_line};
use crate::output;
use crate::perf::mapping::RankMapping;
use crate::perf::measure::noise::{Noise, NoiseWatch};
use crate::perf::measure::summary::Summary;
use crate::{run, sizes};
use anyhow::{Context, Result, bail, ensure};
use maypole::tuner::saved::TableLocation;
use maypole::tuner::{CostTable, Costs, Network};
use maypole::world::launch::{self, Launcher};
use maypole::{Communicator, Error, Transport};
use maypole_transports::cores::UsableCores;
use pair::{RankPair, TunePoint};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

mod file;
mod pair;
mod verdict;

/// Measure the costs of messages and bytes on this host, show the fit, and save it for the tuner.
///
/// Two ranks on two hosts measure the network between them instead, and add it to the table of
/// rank 0's host: `maypole run --hosts a,b maypole tune`.
///
/// Takes a few seconds, during which the host should be idle: of a measurement that other programs
/// disturb nothing is saved, and the exit code is 2. In a job, all ranks use the saved costs of rank 0. The cost of sharing a
/// core is not measured.
#[derive(clap::Args)]
pub(crate) struct TuneArgs {
    /// Save the table to FILE [default: the file in MAYPOLE_TUNE, or one in the user's cache
    /// directory].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Show the fit and save nothing.
    #[arg(long)]
    dry_run: bool,

    /// Save the table even if other programs disturbed the measurement, or the lines differ much from
    /// the measured times.
    #[arg(long)]
    force: bool,

    /// Which cores the two ranks run on: each on one, unless this says otherwise.
    #[arg(long, value_enum, value_name = "WHERE", default_value_t = run::Bind::Core)]
    bind: run::Bind,

    /// The number of samples for each size; the least counts.
    #[arg(
        long,
        value_name = "N",
        default_value = "40",
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    samples: u32,
}

/// The largest error of a line, relative to the measured time, with which a table is saved.
const TOLERANCE: f64 = 0.6;
/// The length of a sample: shorter than a time slice of the kernel, so that some samples are not
/// interrupted on a busy host.
const SAMPLE: Duration = Duration::from_micros(200);
/// Time from SIGTERM to SIGKILL, for ranks that hang.
const GRACE: Duration = Duration::from_secs(5);

/// Bytes of messages in the three kinds of board slots, and over TCP and verbs.
const TINY: [usize; 3] = [8, 24, 48];
const SMALL: [usize; 5] = [256, 1 << 10, 4 << 10, 8 << 10, 16 << 10];
const CHUNK: [usize; 4] = [20 << 10, 24 << 10, 28 << 10, 32 << 10];
const TCP: [usize; 6] = [8, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 128 << 10];
/// Bytes of messages between hosts.
const NETWORK: [usize; 3] = [8, 512 << 10, 2 << 20];
/// Bytes that the kernel copies from process to process.
const COPY: [usize; 4] = [64 << 10, 128 << 10, 256 << 10, 512 << 10];

pub(crate) fn main(args: TuneArgs) -> Result<ExitCode> {
    let launched = launch::describe_env()?.launch;
    if launched.launcher == Launcher::Alone {
        ensure!(
            UsableCores::count([&UsableCores::of_this_thread()]) >= 2,
            "two ranks need two cores, and this process may use only one"
        );
        // Found now rather than after all the measuring.
        if let Some(location) = args.location() {
            file::probe(&location).context("cannot save the table")?;
        }
        return run::again(2, args.bind, GRACE);
    }
    ensure!(
        launched.world == 2,
        "maypole tune runs with 2 ranks, but the launcher has started {}",
        launched.world
    );
    let mut world = Communicator::from_env()?;
    let location = args.location();
    if !agreed(&mut world, location.as_ref().map_or(Ok(()), file::probe))? {
        return Ok(ExitCode::SUCCESS);
    }
    if world.hosts().count() == 2 {
        let table = network(&mut world, args.samples)?;
        return args.save(launched.rank, location, &table);
    }
    let has_cores = args.bind == run::Bind::Core;
    let watch = NoiseWatch::new(&RankMapping::exchange(&mut world, has_cores)?);
    let before = watch.begin();
    let Some((table, report)) = measure(&mut world, args.samples)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let noise = watch.end(&mut world, &before)?;
    if !agreed(&mut world, args.judge(&table, &report, &noise))? {
        return Ok(ExitCode::SUCCESS);
    }
    let table = of_rank_0(&mut world, &table)?;
    let (table, why) = verdict::better_rows(&mut world, &table)?;
    if launched.rank == 0 && location.is_some() {
        output::print(why)?;
    }
    args.save(launched.rank, location, &table)
}

impl TuneArgs {
    /// Saves the table on rank 0.
    fn save(
        &self,
        rank: usize,
        location: Option<TableLocation>,
        table: &CostTable,
    ) -> Result<ExitCode> {
        if let (0, Some(location)) = (rank, location) {
            let path = file::store(&location, table).context("cannot save the table")?;
            output::print_line(format_args!("saved in {}", path.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Refuses a table that was measured under other load or fits badly, if it is to be saved, and one
    /// that no machine has.
    fn judge(&self, table: &CostTable, report: &FitReport, noise: &Noise) -> Result<()> {
        const REMEDY: &str = "so nothing is saved; repeat when the host is idle, or use --force";
        if !self.force && !self.dry_run {
            let spread = Summary::of(&report.relative);
            if let Some(why) = spread.and_then(|spread| noise.words(&spread)) {
                bail!("the measurement was disturbed: {why}; {REMEDY}");
            }
            let percent = (report.error * 100.0).round();
            ensure!(
                report.error <= TOLERANCE,
                "the fitted lines are off by up to {percent} %, {REMEDY}"
            );
        }
        table.check().context(
            "the measured costs are of no machine, so nothing is saved; repeat when the host is \
             idle",
        )
    }

    /// Where the table is saved; `None` with `--dry-run`.
    fn location(&self) -> Option<TableLocation> {
        let named = self.output.clone().map(TableLocation::File);
        (!self.dry_run).then(|| named.unwrap_or_else(TableLocation::from_env))
    }
}

/// Returns whether both ranks continue. Rank 0 continues if `mine` is no error, and rank 1 if rank
/// 0 does, so that neither waits for the other.
///
/// # Errors
///
/// On rank 0, the error in `mine`.
fn agreed<E: Into<anyhow::Error>>(world: &mut Communicator, mine: Result<(), E>) -> Result<bool> {
    let goes_on = world.broadcast_value(Some(mine.is_ok()), 0)?;
    if world.rank() == 0 {
        mine.map_err(Into::into)?;
    }
    Ok(goes_on)
}

/// The table that rank 0 has measured, on both ranks: by different tables they would make different calls.
fn of_rank_0(world: &mut Communicator, mine: &CostTable) -> Result<CostTable> {
    let text = world.broadcast_value(Some(mine.to_string()), 0)?;
    text.parse().context("the table of rank 0 is unreadable")
}

/// The table of rank 0's host with the network that joins the two ranks. Slow paths hide behind copies: the bandwidth
/// counts where it is below that of loopback.
fn network(world: &mut Communicator, samples: u32) -> Result<CostTable> {
    let mut table = CostTable::tuned();
    let mut stream = RankPair::new(world.over(Transport::Tcp)?, samples.min(10));
    let points = stream.series(&NETWORK)?;
    let kib = (points[2].ping - points[1].ping) * 1024.0 / (NETWORK[2] - NETWORK[1]) as f64;
    let hop = (points[0].ping - table.tcp.alpha as f64).max(1.0);
    let wire = if kib > table.tcp.beta as f64 { kib as u64 } else { 0 };
    table.network = Network { hop: hop as u64, wire, ..Network::default() };
    if world.rank() == 0 {
        output::print_line(format_args!("between the hosts: {}", table.network))?;
    }
    Ok(table)
}

/// Measures each kind of link. `None` on rank 1 if rank 0 cannot print.
fn measure(world: &mut Communicator, samples: u32) -> Result<Option<(CostTable, FitReport)>> {
    let mut report = FitReport::new();
    let mut board = RankPair::new(world.over(Transport::Shm)?, samples);
    let mut table = CostTable::BUILT_IN;
    table.tiny = report.fit("tiny", &board.series(&TINY)?);
    table.small = report.fit("small", &board.series(&SMALL)?);
    // These sizes lie close together; a small one is added so that the line determines alpha.
    table.chunk = report.fit("chunk", &board.series(&[&[SMALL[0]][..], &CHUNK].concat())?);
    match board.copies(table.tiny.alpha)? {
        Ok(points) => table.copy = report.fit("copy", &points),
        Err(why) => report.text += &format!("# copy: not measured: {why}\n"),
    }
    let mut stream = RankPair::new(world.over(Transport::Tcp)?, samples);
    table.tcp = report.fit("tcp", &stream.series(&TCP)?);
    report.relative.extend([board, stream].into_iter().flat_map(|pair| pair.relative));
    match world.over(Transport::Ib) {
        Ok(comm) => {
            table.verbs = report.fit("verbs", &RankPair::new(comm, samples).series(&TCP)?);
        }
        // Both ranks get this error, before either has sent data.
        Err(Error::Join { why, .. }) => report.text += &format!("# verbs: not measured: {why}\n"),
        Err(error) => return Err(error.into()),
    }
    let shown = if world.rank() == 0 { output::print(&report.text) } else { Ok(()) };
    Ok(agreed(world, shown)?.then_some((table, report)))
}

/// Fits the costs and, on rank 0, shows the fit.
struct FitReport {
    text: String,
    /// The largest error of a line so far, relative to the measured time.
    error: f64,
    /// The samples of all points, each divided by the median of its point.
    relative: Vec<f64>,
}

impl FitReport {
    fn new() -> Self {
        let text = format!(
            "# microseconds of a message one way, and of a reduction both ways, measured and \
             fitted\n\
             #{:>6} {:>8} {:>10} {:>10} {:>10} {:>10}\n",
            "link", "bytes", "one way", "fitted", "combined", "fitted"
        );
        Self { text, error: 0.0, relative: Vec::new() }
    }

    /// Fits the costs to the measured times, and adds the lines that show both.
    fn fit(&mut self, name: &str, points: &[TunePoint]) -> Costs {
        let of = |time: fn(&TunePoint) -> f64| {
            fit_line(&points.iter().map(|it| (it.bytes as f64, time(it))).collect::<Vec<_>>())
        };
        let ping = of(|it| it.ping);
        let fold = of(|it| it.fold);
        for point in points {
            let size = point.bytes as f64;
            let off = (ping.at(size) / point.ping - 1.0).abs();
            self.error = self.error.max(off);
            let times = [point.ping, ping.at(size), point.fold, fold.at(size)]
                .map(|time| format!("{:>10.3}", time / 1e6));
            self.text +=
                &format!(" {name:>6} {:>8} {}\n", sizes::name(point.bytes), times.join(" "));
        }
        let costs = costs(ping, fold);
        let Costs { alpha, beta, gamma } = costs;
        self.text +=
            &format!("# {name}: alpha {alpha} ps, beta {beta} ps/KiB, gamma {gamma} ps/KiB\n");
        costs
    }
}

fn kib(slope: f64) -> u64 {
    (slope * 1024.0).round() as u64
}

fn costs(ping: LinearFit, fold: LinearFit) -> Costs {
    // A ping-pong is two calls in turn, and changing the direction costs time that no message
    // takes.
    let alpha = ping.start.min(fold.start).round() as u64;
    Costs { alpha, beta: kib(ping.slope), gamma: kib((fold.slope - ping.slope).max(0.0)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[track_caller]
    fn is_refused(noise: Noise, spread: f64, error: f64, says: &str) {
        let mut report = FitReport::new();
        report.relative = (0..=100).map(|nth| 1.0 + spread * f64::from(nth) / 100.0).collect();
        report.error = error;
        let args = Tuning::parse_from(["tune"]).args;
        let judged = args.judge(&CostTable::BUILT_IN, &report, &noise);
        let why = judged.err().map(|why| why.to_string()).unwrap_or_default();
        assert_eq!(why.is_empty(), says.is_empty(), "{why}");
        assert!(why.contains(says) && (says.is_empty() || why.contains("--force")), "{why}");
    }

    #[derive(clap::Parser)]
    struct Tuning {
        #[command(flatten)]
        args: TuneArgs,
    }

    #[test]
    fn other_programs_stolen_time_wild_samples_and_bad_fits_are_refused() {
        // Nothing was taken during a second on two cores.
        let (others, stolen) = (Some(0.0), Some(0.0));
        let quiet = Noise { others, stolen, cores: 2.0 };
        is_refused(quiet, 0.2, 0.1, "");
        is_refused(Noise { others: None, stolen: None, ..quiet }, 0.2, 0.1, "");
        let others = Noise { others: Some(0.5), ..quiet };
        is_refused(others, 0.2, 0.1, "other programs took 0.5 of the ranks' 2 cores");
        let stolen = Noise { stolen: Some(0.4), ..quiet };
        is_refused(stolen, 0.2, 0.1, "the hypervisor took 0.4 cores");
        is_refused(quiet, 2.0, 0.1, "the batches spread by");
        is_refused(quiet, 0.2, 0.7, "off by up to 70 %");
    }

    #[test]
    fn planted_costs_are_found() {
        let points = |start: f64, slope: f64| {
            SMALL.map(|bytes| (bytes as f64, start + slope * bytes as f64))
        };
        let found = costs(fit_line(&points(140_000.0, 164.0)), fit_line(&points(150_000.0, 180.0)));
        assert_eq!(found, Costs { alpha: 140_000, beta: 164 * 1024, gamma: 16 * 1024 });
    }
}
