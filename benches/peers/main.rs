//! Measures maypole beside other libraries, in alternating rounds of one run.
//!
//! ```text
//! cargo bench --bench peers -- --peers FOLDER [--transport shm] [--ranks 2] [--rounds 7] \
//!     [--sizes 8,4096,1048576]
//! ```
//!
//! `FOLDER` holds `peers.sh`, a bash file that defines `peer_run NAME TRANSPORT RANKS`. This
//! function runs the program that measures peer NAME, and prints a JSON object a line with `coll`,
//! `bytes`, `median_us` and `ok`. The variables `PB_COLLS`, `PB_SIZES`, `PB_BUDGET_MS`,
//! `PB_MINSAMP` and `PB_MAX` tell the program what to measure. It takes samples like
//! `maypole perf`: batches of about 400 us, from the first rank's start to the last rank's end.
//!
//! On a shared machine, other load changes wall-clock times from minute to minute, but it slows all
//! programs that run in the same seconds alike. So every round runs every library, and the order is
//! reversed from round to round. The result is the median over rounds of the best peer's time
//! divided by maypole's time: above 1, maypole is faster than all peers.

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

#[path = "../src/bin/maypole/statistics.rs"]
mod statistics;

/// Compare `maypole perf` with other libraries, round by round.
#[derive(Parser)]
struct PeersArgs {
    /// The folder with peers.sh [default: $PEERS]; without it nothing is compared.
    #[arg(long, value_name = "FOLDER")]
    peers: Option<PathBuf>,

    /// Peers, as peers.sh names them, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "ompi5,impi,mpich5")]
    names: Vec<String>,

    /// The transport: shm or tcp.
    #[arg(long, default_value = "shm")]
    transport: String,

    /// The number of ranks.
    #[arg(short = 'n', long, default_value_t = 2)]
    ranks: usize,

    /// The number of rounds. Every library runs once in each round.
    #[arg(long, default_value_t = 5)]
    rounds: usize,

    /// Collectives, as `maypole perf` names them, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "all-reduce")]
    collectives: Vec<String>,

    /// Bytes of the whole, separated by commas.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "8,256,4096,16384,65536,262144,1048576,4194304"
    )]
    sizes: Vec<usize>,

    /// Milliseconds of sampling at each point.
    #[arg(long, default_value_t = 50)]
    budget: u64,

    /// The algorithm to compare.
    #[arg(long, default_value = "auto")]
    algorithm: String,

    /// The `maypole` program to measure [default: the program built with this bench].
    #[arg(long, value_name = "FILE", default_value = env!("CARGO_BIN_EXE_maypole"))]
    maypole: PathBuf,

    /// Passed by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A collective, as `maypole perf --json` names it, and bytes of the whole.
type PeerPoint = (String, u64);
/// Microseconds at each point, in one round.
type Times = BTreeMap<PeerPoint, f64>;

const OURS: &str = "maypole";

fn main() -> Result<ExitCode> {
    let args = PeersArgs::parse();
    let folder = args.peers.clone().or_else(|| std::env::var_os("PEERS").map(PathBuf::from));
    let Some(peers) = folder.filter(|folder| folder.join("peers.sh").is_file()) else {
        eprintln!(
            "SKIPPED: nothing to compare with. Name the folder of peers.sh: -- --peers FOLDER, or \
             PEERS=FOLDER"
        );
        return Ok(ExitCode::SUCCESS);
    };
    let mut libraries: Vec<&str> =
        std::iter::once(OURS).chain(args.names.iter().map(String::as_str)).collect();
    let mut rounds = Vec::new();
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        let mut times: BTreeMap<&str, Times> = BTreeMap::new();
        for library in &libraries {
            let taken = if *library == OURS { args.ours() } else { args.peer(&peers, library) };
            match taken {
                Ok(taken) => _ = times.insert(library, taken),
                Err(error) if *library == OURS => return Err(error),
                Err(error) => eprintln!("SKIPPED in this round: {library}: {error:#}"),
            }
        }
        rounds.push(times);
        libraries.reverse();
    }
    args.print(&rounds);
    Ok(ExitCode::SUCCESS)
}

impl PeersArgs {
    fn ours(&self) -> Result<Times> {
        let sizes: Vec<_> = self.sizes.iter().map(ToString::to_string).collect();
        let mut command = Command::new(&self.maypole);
        command.arg("perf").args(&self.collectives);
        command.args([
            "-n",
            &self.ranks.to_string(),
            "--transport",
            &self.transport,
            "--algorithm",
            &self.algorithm,
        ]);
        command.args([
            "--sizes",
            &sizes.join(","),
            "--budget",
            &self.budget.to_string(),
            "--json",
            "-",
        ]);
        let mut times = Times::new();
        for object in lines(&mut command)? {
            // The peers are measured out of place; a broadcast is in place only.
            if object["in_place"] == true && object["collective"] != "broadcast" {
                continue;
            }
            insert(
                &mut times,
                &object["collective"],
                &object["bytes"],
                &object["time_us"]["p50"],
                object["wrong"] == 0,
            )?;
        }
        Ok(times)
    }

    fn peer(&self, folder: &Path, name: &str) -> Result<Times> {
        let sizes: Vec<_> = self.sizes.iter().map(ToString::to_string).collect();
        let wanted: Vec<_> = self.collectives.iter().map(|collective| theirs(collective)).collect();
        let mut command = Command::new("bash");
        command.args(["-c", "source ./peers.sh; peer_run \"$@\"", "peers", name, &self.transport]);
        command.arg(self.ranks.to_string()).current_dir(folder);
        command
            .env("PB_COLLS", wanted.join(","))
            .env("PB_SIZES", sizes.join(","))
            .env_remove("PB_SIZES_AR");
        command.env("PB_BUDGET_MS", self.budget.to_string()).env("PB_MINSAMP", "5");
        command.env("PB_MAX", self.sizes.iter().max().map_or(0, |max| 2 * max).to_string());
        let mut times = Times::new();
        for object in lines(&mut command)? {
            if let Some(error) = object.get("error") {
                bail!("the peer failed: {error}");
            }
            // A peer selects collectives by substring: "gather" also runs "allgather".
            if let Some(ours) = self.collectives.iter().find(|ours| object["coll"] == theirs(ours))
            {
                let collective = Value::from(ours.replace('-', "_"));
                insert(
                    &mut times,
                    &collective,
                    &object["bytes"],
                    &object["median_us"],
                    object["ok"] == true,
                )?;
            }
        }
        Ok(times)
    }

    fn print(&self, rounds: &[BTreeMap<&str, Times>]) {
        println!(
            "# {} ranks over {}, {} rounds in turn; median microseconds a call",
            self.ranks,
            self.transport,
            rounds.len()
        );
        println!(
            "# best/ours: the best peer's time divided by maypole's, median of the rounds \
             (least to most); above 1 maypole is faster"
        );
        print!("# {:>14} {:>10} {OURS:>10}", "collective", "bytes");
        self.names.iter().for_each(|name| print!(" {name:>10}"));
        println!(" | {:>9} (least to most)", "best/ours");
        let points: BTreeSet<&PeerPoint> =
            rounds.iter().flat_map(|round| round.get(OURS)).flat_map(Times::keys).collect();
        for point in points {
            print!("  {:>14} {:>10}", point.0, point.1);
            let of = |library: &str| {
                rounds.iter().filter_map(|round| round.get(library)?.get(point).copied()).collect()
            };
            for library in std::iter::once(OURS).chain(self.names.iter().map(String::as_str)) {
                print!(
                    " {:>10}",
                    statistics::median(of(library))
                        .map_or_else(|| "-".to_owned(), |us| format!("{us:.3}"))
                );
            }
            println!(" | {}", self.ratio(point, rounds));
        }
    }

    fn ratio(&self, point: &PeerPoint, rounds: &[BTreeMap<&str, Times>]) -> String {
        let in_round = |round: &BTreeMap<&str, Times>| {
            let ours = round.get(OURS)?.get(point)?;
            let peers = self.names.iter().filter_map(|name| round.get(name.as_str())?.get(point));
            Some(peers.copied().min_by(f64::total_cmp)? / ours)
        };
        let ratios: Vec<f64> = rounds.iter().filter_map(in_round).collect();
        let least = ratios.iter().copied().min_by(f64::total_cmp);
        let most = ratios.iter().copied().max_by(f64::total_cmp);
        match (statistics::median(ratios), least, most) {
            (Some(median), Some(least), Some(most)) => {
                format!("{median:>9.2} ({least:.2} to {most:.2})")
            }
            _ => format!("{:>9}", "-"),
        }
    }
}

/// The name of a collective in the peers' programs.
fn theirs(collective: &str) -> String {
    match collective.replace('-', "_").as_str() {
        "reduce_scatter" => "reduce_scatter".to_owned(),
        other => other.replace('_', ""),
    }
}

fn insert(
    times: &mut Times,
    collective: &Value,
    bytes: &Value,
    us: &Value,
    right: bool,
) -> Result<()> {
    let collective = collective.as_str().context("a line without a collective")?.to_owned();
    if !right {
        bail!("{collective} of {bytes} bytes was wrong");
    }
    times
        .insert((collective, bytes.as_u64().context("no bytes")?), us.as_f64().context("no time")?);
    Ok(())
}

/// The JSON objects that `command` prints.
fn lines(command: &mut Command) -> Result<Vec<Value>> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {command:?}"))?;
    let objects: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).with_context(|| format!("not JSON: {line}")))
        .collect::<Result<_>>()?;
    if objects.is_empty() || !output.status.success() {
        bail!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(objects)
}
