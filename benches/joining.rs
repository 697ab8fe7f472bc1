//! How long ranks take to join a world and to make their first barrier.
//!
//! ```text
//! cargo bench --bench joining -- --ranks 16,64,96
//! ```
//!
//! Each run starts that many processes on this host with `maypole run`. A line shows the seconds
//! from the first start to the end of the last process and, on rank 0, until all ranks had joined
//! and until the end of its first barrier. It also shows the processor time of all processes,
//! divided by the ranks: on a host with fewer cores than ranks, this time decides how long joining
//! takes.

use clap::Parser;
use maypole::Communicator;
use std::process::{Command, ExitCode};
use std::time::Instant;

/// Time how ranks join and make their first barrier.
#[derive(Parser)]
struct JoiningArgs {
    /// Numbers of ranks, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "2,16,64,96")]
    ranks: Vec<usize>,

    /// The number of runs with each number of ranks.
    #[arg(long, default_value_t = 3)]
    runs: usize,

    /// Passed by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Clock ticks a second in `/proc/self/stat`, which is the same on all Linux machines.
const TICKS: f64 = 100.0;

fn main() -> ExitCode {
    let args = JoiningArgs::parse();
    let done = if std::env::var_os("MAYPOLE_RANK").is_some() {
        rank().map_err(|error| error.to_string())
    } else {
        all_runs(&args)
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("joining: {error}");
            ExitCode::FAILURE
        }
    }
}

fn all_runs(args: &JoiningArgs) -> Result<(), String> {
    println!(
        "#{:>5} {:>10} {:>10} {:>12} {:>16}",
        "ranks", "whole (s)", "joined (s)", "barrier (s)", "cpu a rank (ms)"
    );
    for ranks in &args.ranks {
        for _ in 0..args.runs {
            one_run(*ranks)?;
        }
    }
    Ok(())
}

/// Starts this program again with `ranks` ranks, and prints a line.
fn one_run(ranks: usize) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_maypole"));
    command.args(["run", "--no-tag-output", "-n", &ranks.to_string(), "--"]).arg(own);
    let spent = seconds_of_children()?;
    let start = Instant::now();
    let output = command.output().map_err(|error| error.to_string())?;
    let whole = start.elapsed().as_secs_f64();
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{ranks} ranks: {}: {text}", output.status));
    }
    let each = (seconds_of_children()? - spent) * 1e3 / ranks as f64;
    let told = String::from_utf8_lossy(&output.stdout);
    println!(" {ranks:>5} {whole:>10.3} {} {each:>16.1}", told.trim_end());
    Ok(())
}

/// Seconds of processor time of all processes that this one started and that have ended.
fn seconds_of_children() -> Result<f64, String> {
    let text = std::fs::read_to_string("/proc/self/stat").map_err(|error| error.to_string())?;
    // The second field is the program's name in parentheses, which may contain spaces.
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    let [user, system] = [13, 14].map(ticks);
    let ticks = user.zip(system).map(|(user, system)| user + system);
    ticks.map(|ticks| ticks / TICKS).ok_or_else(|| "/proc/self/stat has other fields".to_owned())
}

/// Joins and makes one barrier. Rank 0 prints the seconds until it had joined, and until the end of
/// the barrier.
fn rank() -> Result<(), maypole::Error> {
    let start = Instant::now();
    let mut comm = Communicator::from_env()?;
    let joined = start.elapsed().as_secs_f64();
    comm.barrier()?;
    let barrier = start.elapsed().as_secs_f64();
    if comm.rank() == 0 {
        println!("{joined:>10.3} {barrier:>12.3}");
    }
    comm.close()
}
