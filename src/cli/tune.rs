//! `maypole tune`: measures the costs of messages and bytes on this host and saves them for the
//! tuner.
//!
//! Two ranks send a vector back and forth: half a round trip of `m` bytes takes `alpha + m *
//! beta`. Then both ranks combine their vectors at the same time, with one message each way, which
//! takes `m * gamma` longer. A straight line is fitted to each of the two over several sizes; the
//! lines give alpha, beta and gamma. Then each rank in turn lets the kernel copy the other one's
//! private memory. What other programs took meanwhile decides whether this is repeated ([`guard`]).
//! Last, calls are timed by the measured costs and by the built-in ones, and rows by
//! which they are not faster are not saved.

use crate::fit::{LinearFit, fit_line};
use crate::output::{self, OutputError};
use crate::{run, sizes};
use anyhow::{Context, Result, ensure};
use guard::Attempt;
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
mod guard;
mod pair;
mod verdict;

/// Measure the costs of messages and bytes on this host, show the fit, and save it for the tuner.
///
/// Two ranks on two hosts measure the network between them instead, and add it to the table of
/// rank 0's host: `maypole run --hosts a,b maypole tune`.
///
/// Takes a few seconds, during which the host should be idle: a measurement that other programs
/// disturb is repeated, at most three times. If the last one was disturbed, too, nothing is saved,
/// and the exit code is 2. In a job, all ranks use the saved costs of rank 0. The cost of sharing a
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

    /// Save the table even if other programs disturbed all measurements, or the lines differ much from
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

/// The length of a sample: shorter than a time slice of the kernel, so that some samples are not
/// interrupted on a busy host.
const SAMPLE: Duration = Duration::from_micros(200);
/// Time from SIGTERM to SIGKILL, for ranks that hang.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

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
    let Some(attempt) = guard::settled(&mut world, args.samples, has_cores)? else {
        return Ok(ExitCode::SUCCESS);
    };
    if !agreed(&mut world, args.judge(&attempt))? {
        return Ok(ExitCode::SUCCESS);
    }
    let table = of_rank_0(&mut world, &attempt.table)?;
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

    /// Refuses a table that cannot be trusted, if it is to be saved, and one that no machine has.
    fn judge(&self, attempt: &Attempt) -> Result<()> {
        if !self.force && !self.dry_run {
            attempt.judge()?;
        }
        attempt.table.check().context(
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
    let mut goes_on = [u8::from(mine.is_ok())];
    world.broadcast(&mut goes_on, 0)?;
    if world.rank() == 0 {
        mine.map_err(Into::into)?;
    }
    Ok(goes_on[0] == 1)
}

/// The table that rank 0 has measured, on both ranks: by different tables they would make different calls.
fn of_rank_0(world: &mut Communicator, mine: &CostTable) -> Result<CostTable> {
    let text = mine.to_string();
    let mut length = [text.len() as u64];
    world.broadcast(&mut length, 0)?;
    let mut bytes = text.into_bytes();
    bytes.resize(usize::try_from(length[0])?, 0);
    world.broadcast(&mut bytes, 0)?;
    String::from_utf8(bytes)?.parse().context("the table of rank 0 is unreadable")
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
    let mut report = FitReport::new(world.rank() == 0);
    let mut board = RankPair::new(world.over(Transport::Shm)?, samples);
    let mut table = CostTable::BUILT_IN;
    table.tiny = report.fit("tiny", &board.series(&TINY)?);
    if !agreed(world, report.print())? {
        return Ok(None);
    }
    table.small = report.fit("small", &board.series(&SMALL)?);
    // These sizes lie close together; a small one is added so that the line determines alpha.
    table.chunk = report.fit("chunk", &board.series(&[&[SMALL[0]][..], &CHUNK].concat())?);
    if !agreed(world, report.print())? {
        return Ok(None);
    }
    match board.copies()? {
        Ok(points) => table.copy = report.fit_copies(&points, table.tiny.alpha),
        Err(why) => report.text += &format!("# copy: not measured: {why}\n"),
    }
    if !agreed(world, report.print())? {
        return Ok(None);
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
    Ok(agreed(world, report.print())?.then_some((table, report)))
}

/// Fits the costs and, on rank 0, shows the fit.
struct FitReport {
    shows: bool,
    /// The lines that have not been printed yet.
    text: String,
    /// The largest error of a line so far, relative to the measured time.
    error: f64,
    /// The samples of all points, each divided by the median of its point.
    relative: Vec<f64>,
}

impl FitReport {
    fn new(shows: bool) -> Self {
        let text = format!(
            "# microseconds of a message one way, and of a reduction both ways, measured and \
             fitted\n\
             #{:>6} {:>8} {:>10} {:>10} {:>10} {:>10}\n",
            "link", "bytes", "one way", "fitted", "combined", "fitted"
        );
        Self { shows, text, error: 0.0, relative: Vec::new() }
    }

    /// Prints the lines since the last call.
    fn print(&mut self) -> std::result::Result<(), OutputError> {
        let text = std::mem::take(&mut self.text);
        if self.shows { output::print(text) } else { Ok(()) }
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

    /// As [`fit`](Self::fit), for copies by the kernel, each with a message that takes `message`
    /// picoseconds.
    fn fit_copies(&mut self, points: &[(usize, f64)], message: u64) -> Costs {
        let line = fit_line(
            &points.iter().map(|(bytes, time)| (*bytes as f64, *time)).collect::<Vec<_>>(),
        );
        for (bytes, time) in points {
            let fitted = line.at(*bytes as f64);
            self.error = self.error.max((fitted / time - 1.0).abs());
            let times = [*time, fitted].map(|time| format!("{:>10.3}", time / 1e6)).join(" ");
            self.text += &format!(" {:>6} {:>8} {times}\n", "copy", sizes::name(*bytes));
        }
        let alpha = (line.start.round() as u64).saturating_sub(message);
        let costs = Costs { alpha, beta: kib(line.slope), gamma: 0 };
        self.text += &format!("# copy: alpha {alpha} ps, beta {} ps/KiB\n", costs.beta);
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

    #[test]
    fn planted_costs_are_found() {
        let points = |start: f64, slope: f64| {
            SMALL.map(|bytes| (bytes as f64, start + slope * bytes as f64))
        };
        let found = costs(fit_line(&points(140_000.0, 164.0)), fit_line(&points(150_000.0, 180.0)));
        assert_eq!(found, Costs { alpha: 140_000, beta: 164 * 1024, gamma: 16 * 1024 });
    }
}
