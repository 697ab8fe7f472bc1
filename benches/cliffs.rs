//! Looks for cliffs: sizes at which twice the bytes take much more than twice the time.
//!
//! ```text
//! cargo bench --bench cliffs                  # shm and tcp, 2 ranks: a few minutes
//! cargo bench --bench cliffs -- -n 4 --transports shm --collectives gather,scatter
//! ```
//!
//! Every round runs `maypole perf` over all sizes, and the least median of a size over all rounds
//! counts, because other load only adds time. A doubling from `s` to `2s` bytes is a cliff if
//! `t(2s) > 2.6 t(s)`. Times below a microsecond count as one microsecond, so a cliff that ends
//! below 2.6 us is not reported.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

/// The ratio of the times of `2s` and `s` bytes above which a doubling is a cliff.
const BAR: f64 = 2.6;
/// Microseconds. A shorter time counts as this time.
const LEAST: f64 = 1.0;

/// Find sizes at which twice the bytes take more than 2.6 times as long.
#[derive(Parser)]
struct CliffArgs {
    /// The number of ranks.
    #[arg(short = 'n', long, default_value_t = 2)]
    ranks: usize,

    /// Transports, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "shm,tcp")]
    transports: Vec<String>,

    /// Collectives, as `maypole perf` names them, separated by commas.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "all-reduce,broadcast,reduce,all-gather,reduce-scatter,all-to-all,scatter,\
                         gather"
    )]
    collectives: Vec<String>,

    /// The largest size.
    #[arg(long, default_value = "64M")]
    max: String,

    /// The number of rounds.
    #[arg(long, default_value_t = 3)]
    rounds: usize,

    /// Milliseconds of sampling at each point.
    #[arg(long, default_value_t = 20)]
    budget: u64,

    /// The `maypole` program to measure [default: the program built with this bench].
    #[arg(long, value_name = "FILE", default_value = env!("CARGO_BIN_EXE_maypole"))]
    maypole: PathBuf,

    /// Passed by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Microseconds by collective and bytes.
type Times = BTreeMap<(String, u64), f64>;

fn main() -> Result<ExitCode> {
    let args = CliffArgs::parse();
    for transport in &args.transports {
        let mut least = Times::new();
        for round in 0..args.rounds {
            eprintln!("{transport}, round {} of {}", round + 1, args.rounds);
            args.measure(transport, &mut least)?;
        }
        report(transport, args.ranks, &least);
    }
    Ok(ExitCode::SUCCESS)
}

impl CliffArgs {
    fn measure(&self, transport: &str, least: &mut Times) -> Result<()> {
        let mut command = Command::new(&self.maypole);
        command.arg("perf").args(&self.collectives);
        command.args(["-n", &self.ranks.to_string(), "--transport", transport, "--factor", "2"]);
        command.args(["--min", "8", "--max", &self.max, "--json", "-"]);
        command.args(["--budget", &self.budget.to_string()]).stdin(Stdio::null());
        let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "maypole perf failed: {}", said.trim());
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let object: Value = serde_json::from_str(line).context("not JSON")?;
            // Broadcasts are in place only.
            if object["in_place"] == true && object["collective"] != "broadcast" {
                continue;
            }
            let collective = object["collective"].as_str().context("no collective")?.to_owned();
            let bytes = object["bytes"].as_u64().context("no bytes")?;
            let us = object["time_us"]["p50"].as_f64().context("no time")?;
            let known = least.entry((collective, bytes)).or_insert(us);
            *known = known.min(us);
        }
        Ok(())
    }
}

/// Prints every doubling that is a cliff, and the number of all doublings.
fn report(transport: &str, ranks: usize, least: &Times) {
    println!("# {transport}, {ranks} ranks: doublings with t(2s) > {BAR} t(s)");
    let mut doublings = 0;
    let mut cliffs = 0;
    for ((collective, bytes), us) in least {
        let Some(twice) = least.get(&(collective.clone(), 2 * bytes)) else { continue };
        doublings += 1;
        let ratio = twice / us.max(LEAST);
        if ratio > BAR {
            cliffs += 1;
            println!(
                "{collective:>16} {bytes:>10} {us:>10.2} us, twice {twice:>10.2} us: {ratio:.2}"
            );
        }
    }
    println!("# {cliffs} of {doublings} doublings");
}
