//! The cost of choosing a way to move bytes: times of calls that choose, compared with each forced way.
//!
//! ```text
//! cargo bench --bench regret                          # 40 points, five rounds: ten minutes
//! cargo bench --bench regret -- --rounds 1 --points all-gather:2:1048576
//! ```
//!
//! Each point is measured in every way in turn, within two seconds: as a program runs by itself, and with each
//! value of `MAYPOLE_WAY` that is possible there. The order is reversed from round to round. A barrier between
//! two ranks is timed before and after; if it changed, the machine has, and the point is measured again. The
//! regret of a round is the time of the calls that choose, divided by that of the fastest forced way in the same
//! round. The table has medians over the rounds.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::str::FromStr;

/// A choice is good up to this regret.
const GOOD: f64 = 1.10;
/// Calls that only move bytes can copy from process to process.
const WAYS: [&str; 4] = ["deep-ring", "past-caches", "ordinary", "copied"];
const COLLECTIVES: [&str; 8] = [
    "broadcast",
    "all-gather",
    "all-to-all",
    "scatter",
    "gather",
    "all-reduce",
    "reduce",
    "reduce-scatter",
];
/// Those that combine elements.
const COMBINING: [&str; 3] = ["all-reduce", "reduce", "reduce-scatter"];
/// Ranks, and bytes of the whole.
const SIZES: [(usize, u64); 5] =
    [(2, 64 << 10), (2, 1 << 20), (2, 16 << 20), (4, 256 << 10), (4, 4 << 20)];
/// A point is measured so often until the machine stays the same.
const ATTEMPTS: usize = 4;
/// The machine has changed if a barrier takes so many times as long.
const CHANGED: f64 = 1.6;

/// Compare what calls choose with each way that is forced.
#[derive(Parser)]
struct RegretArgs {
    /// The number of rounds.
    #[arg(long, default_value_t = 5)]
    rounds: usize,

    /// Milliseconds of sampling in each way.
    #[arg(long, default_value_t = 200)]
    budget: u64,

    /// Points, as COLLECTIVE:RANKS:BYTES, separated by commas [default: 40 of them].
    #[arg(long, value_delimiter = ',')]
    points: Vec<RegretPoint>,

    /// The `maypole` program to measure [default: the program built with this bench].
    #[arg(long, value_name = "FILE", default_value = env!("CARGO_BIN_EXE_maypole"))]
    maypole: PathBuf,

    /// Passed by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Debug)]
struct RegretPoint {
    collective: String,
    ranks: usize,
    bytes: u64,
}

impl FromStr for RegretPoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let [collective, ranks, bytes] = parts[..] else {
            return Err("a point is COLLECTIVE:RANKS:BYTES".to_owned());
        };
        let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
        let ranks = number(ranks)? as usize;
        Ok(Self { collective: collective.to_owned(), ranks, bytes: number(bytes)? })
    }
}

fn main() -> Result<ExitCode> {
    let args = RegretArgs::parse();
    let points = if args.points.is_empty() { all_points() } else { args.points.clone() };
    println!(
        "# microseconds of a call, median of {} rounds; regret is chosen / best forced",
        args.rounds
    );
    println!(
        "{:>15} {:>5} {:>9} {:>9} {:>11} {:>9} {:>9} {:>9} {:>7}",
        "collective",
        "ranks",
        "bytes",
        "deep",
        "past-caches",
        "ordinary",
        "copied",
        "chosen",
        "regret"
    );
    let mut good = 0;
    for point in &points {
        let rounds = (0..args.rounds).map(|round| args.round(point, round));
        let rounds = rounds.collect::<Result<Vec<_>>>()?;
        let regret = median(rounds.iter().map(|round| round.chosen / round.best()).collect());
        good += usize::from(regret <= GOOD);
        let RegretPoint { collective, ranks, bytes } = point;
        print!("{collective:>15} {ranks:>5} {bytes:>9}");
        for (nth, width) in [9, 11, 9, 9].into_iter().enumerate() {
            let forced: Option<Vec<f64>> = rounds.iter().map(|round| round.forced[nth]).collect();
            match forced {
                Some(times) => print!(" {:>width$.2}", median(times)),
                None => print!(" {:>width$}", "-"),
            }
        }
        let chosen = median(rounds.iter().map(|round| round.chosen).collect());
        let mark = if regret > GOOD { " !" } else { "" };
        println!(" {chosen:>9.2} {regret:>7.2}{mark}");
    }
    println!("# {good} of {} points at {GOOD} or less", points.len());
    Ok(ExitCode::SUCCESS)
}

fn all_points() -> Vec<RegretPoint> {
    let of = |collective: &str| {
        let collective = collective.to_owned();
        SIZES.map(|(ranks, bytes)| RegretPoint { collective: collective.clone(), ranks, bytes })
    };
    COLLECTIVES.into_iter().flat_map(of).collect()
}

/// Microseconds of one round.
struct Round {
    /// By way, if it is possible.
    forced: [Option<f64>; WAYS.len()],
    chosen: f64,
}

impl Round {
    fn best(&self) -> f64 {
        self.forced.iter().flatten().copied().fold(f64::INFINITY, f64::min)
    }
}

impl RegretArgs {
    fn round(&self, point: &RegretPoint, round: usize) -> Result<Round> {
        for attempt in 0.. {
            let before = self.barrier()?;
            let measured = self.measure(point, round)?;
            let after = self.barrier()?;
            let changed = before.max(after) > before.min(after) * CHANGED;
            eprintln!(
                "{point:?}, round {}: a barrier took {before:.3} and {after:.3} us",
                round + 1
            );
            if !changed || attempt + 1 == ATTEMPTS {
                return Ok(measured);
            }
        }
        unreachable!("the last attempt returns")
    }

    /// Measures all ways in turn, in the reverse order in every other round.
    fn measure(&self, point: &RegretPoint, round: usize) -> Result<Round> {
        let combines = COMBINING.contains(&point.collective.as_str());
        let possible = if combines { &WAYS[..3] } else { &WAYS[..] };
        let mut order: Vec<Option<usize>> = (0..possible.len()).map(Some).chain([None]).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        let mut measured = Round { forced: [None; WAYS.len()], chosen: f64::NAN };
        for nth in order {
            let us = self.perf(point, nth.map(|nth| WAYS[nth]))?;
            match nth {
                Some(nth) => measured.forced[nth] = Some(us),
                None => measured.chosen = us,
            }
        }
        Ok(measured)
    }

    /// Microseconds of a call, out of place where that is possible.
    fn perf(&self, point: &RegretPoint, way: Option<&str>) -> Result<f64> {
        let mut command = Command::new(&self.maypole);
        command.args(["perf", &point.collective, "--transport", "shm", "--reuse-buffers"]);
        command.args(["-n", &point.ranks.to_string(), "--sizes", &point.bytes.to_string()]);
        command.args(["--json", "-", "--budget", &self.budget.to_string()]);
        command.env_remove("MAYPOLE_WAY").envs(way.map(|way| ("MAYPOLE_WAY", way)));
        let objects = lines(&mut command)?;
        let is_apart = |it: &&Value| it["in_place"] == false || point.collective == "broadcast";
        let object = objects.iter().find(is_apart).context("no measurement")?;
        ensure!(object["wrong"] == 0, "wrong results: {object}");
        object["time_us"]["p50"].as_f64().context("no time")
    }

    /// Microseconds of a barrier between two ranks.
    fn barrier(&self) -> Result<f64> {
        let mut command = Command::new(&self.maypole);
        command.args(["perf", "barrier", "-n", "2", "--transport", "shm", "--json", "-"]);
        let objects = lines(command.args(["--budget", "20"]))?;
        objects[0]["time_us"]["p50"].as_f64().context("a barrier without a time")
    }
}

/// The objects that `command` prints, of which there is one at least.
fn lines(command: &mut Command) -> Result<Vec<Value>> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {}", said.trim());
    let printed = String::from_utf8_lossy(&output.stdout);
    let objects: Vec<Value> =
        printed.lines().map(serde_json::from_str).collect::<Result<_, _>>().context("not JSON")?;
    ensure!(!objects.is_empty(), "{command:?} measured nothing");
    Ok(objects)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
