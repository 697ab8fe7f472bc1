//! Compares the tuner's choice with every other plan that can run the call, in alternating rounds.
//!
//! ```text
//! cargo bench --bench choice -- --ranks 2,4,8 --transports shm,tcp --sizes 8,4096,65536,1048576
//! ```
//!
//! A point is a collective, a size and a transport; its rows are the plans that can run it. Every
//! round runs all rows, in another order than the round before. The best row is the one with the
//! least median over the first, third, fifth ... round. The other rounds measure it and the choice,
//! because a row that was the best by luck would look too good in the same rounds. The choice is
//! good if it takes at most 1.25 times as long as the best row with 2 ranks, and 1.5 times with
//! more ranks.

use clap::Parser;
use maypole::schedule::collective::Collective;
use maypole::tuner::{Candidate, Plan, Question, choose};
use maypole::{Communicator, Error, ReduceOp, Transport};
use std::process::{Command, ExitCode};
use std::time::Instant;

#[path = "../src/cli/statistics.rs"]
mod statistics;

/// Compare the tuner's choices with every other plan, in alternating rounds.
#[derive(Clone, Debug, Parser)]
struct ChoiceArgs {
    /// Numbers of ranks, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "2,4,8")]
    ranks: Vec<usize>,

    /// Transports, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "shm,tcp")]
    transports: Vec<Transport>,

    /// Bytes of the whole, separated by commas.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "8,64,512,4096,32768,262144,2097152,16777216"
    )]
    sizes: Vec<usize>,

    /// Collectives, separated by commas [default: all].
    #[arg(long, value_delimiter = ',')]
    collectives: Vec<Collective>,

    /// The number of rounds, at least 7.
    #[arg(long, default_value_t = FEWEST_ROUNDS, value_parser = rounds)]
    rounds: usize,

    /// Prints the predicted and the measured time of every row, too.
    #[arg(long)]
    rows: bool,

    /// How many milliseconds each plan runs in a round.
    #[arg(long, default_value_t = 2.0)]
    milliseconds: f64,

    /// Passed by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

const FEWEST_ROUNDS: usize = 7;

fn rounds(text: &str) -> Result<usize, std::num::ParseIntError> {
    Ok(text.parse::<usize>()?.max(FEWEST_ROUNDS))
}

fn main() -> ExitCode {
    let mut options = ChoiceArgs::parse();
    if options.collectives.is_empty() {
        options.collectives = Collective::all(0).to_vec();
    }
    if std::env::var_os("MAYPOLE_RANK").is_some() {
        return exit_code(rank(&options).map_err(|error| error.to_string()));
    }
    options
        .ranks
        .iter()
        .map(|ranks| exit_code(launch(*ranks)))
        .find(|code| *code != ExitCode::SUCCESS)
        .unwrap_or_default()
}

fn exit_code(done: Result<(), String>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("choice: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Starts this program again with `ranks` ranks.
fn launch(ranks: usize) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_maypole"));
    command
        .args(["run", "--no-tag-output", "-n", &ranks.to_string(), "--"])
        .arg(own)
        .args(std::env::args().skip(1));
    let status = command.status().map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("{ranks} ranks: {status}")) }
}

/// Measures all points as one rank of several.
fn rank(options: &ChoiceArgs) -> Result<(), Error> {
    let mut world = Communicator::from_env()?;
    let shows = world.rank() == 0;
    let ranks = world.world();
    if shows {
        println!(
            "# {ranks} ranks: the tuner's choice beside the best of all rows; times are medians of \
             every second round"
        );
        println!(
            "#{:>4} {:>14} {:>9} {:>26} {:>26} {:>10} {:>10} {:>6}",
            "over", "collective", "bytes", "choice", "best", "us", "best us", "ratio"
        );
    }
    let mut good = 0;
    let mut points = 0;
    for &transport in &options.transports {
        let mut comm = world.over(transport)?;
        for &collective in &options.collectives {
            for &bytes in sizes(collective, &options.sizes) {
                let point = Point::new(&comm, collective, bytes).measure(&mut comm, options)?;
                points += 1;
                good += usize::from(point.ratio <= limit(ranks));
                if shows {
                    println!(" {:>4} {point}", transport.name());
                    let rows = if options.rows { &point.rows[..] } else { &[] };
                    rows.iter().for_each(|row| println!("      {row}"));
                }
            }
        }
    }
    if shows {
        let share = 100.0 * good as f64 / points.max(1) as f64;
        println!(
            "# {ranks} ranks: {good} of {points} points within {} of the best: {share:.1} %\n",
            limit(ranks)
        );
    }
    Ok(())
}

fn limit(ranks: usize) -> f64 {
    if ranks <= 2 { 1.25 } else { 1.5 }
}

fn sizes(collective: Collective, sizes: &[usize]) -> &[usize] {
    if collective == Collective::Barrier { &sizes[..1] } else { sizes }
}

/// One call, the plans that can run it with their prices, and the index of the tuner's choice.
struct Point {
    collective: Collective,
    bytes: usize,
    rows: Vec<Candidate>,
    choice: usize,
}

/// The measured times of the choice and of the best row, in microseconds.
struct PointResult {
    collective: Collective,
    bytes: usize,
    choice: Plan,
    best: Plan,
    choice_us: f64,
    best_us: f64,
    ratio: f64,
    rows: Vec<RowResult>,
}

/// A plan with its predicted and its measured time.
struct RowResult {
    row: Candidate,
    us: f64,
}

impl Point {
    fn new(comm: &Communicator, collective: Collective, bytes: usize) -> Self {
        // Rounds the size up to whole elements, in every block.
        let unit = size_of::<f32>() * if collective.is_blocked() { comm.world() } else { 1 };
        let bytes = if collective == Collective::Barrier { 0 } else { bytes.div_ceil(unit) * unit };
        let question = Question {
            collective,
            boards: comm.boards(),
            bytes,
            crowding: comm.crowding(),
            gpus: None,
        };
        let choice = choose(&question, None, &comm.costs()).expect("nothing is asked for by name");
        let rows = choice.candidates;
        let choice = rows.iter().position(|row| row.plan == choice.plan);
        Self { collective, bytes, rows, choice: choice.expect("the choice is a legal row") }
    }

    fn measure(&self, comm: &mut Communicator, options: &ChoiceArgs) -> Result<PointResult, Error> {
        let mut work = Work::new(self.collective, self.bytes, comm.world());
        let mut calls = Vec::new();
        for row in &self.rows {
            work.batch(comm, row.plan, 1)?;
            let one = work.batch(comm, row.plan, 2)?;
            calls.push(((options.milliseconds * 1e3 / one) as u32).clamp(1, 20_000));
        }
        // Each round runs every row once, in another order than the round before.
        let count = self.rows.len();
        let mut times = vec![Vec::new(); self.rows.len()];
        for round in 0..options.rounds {
            for turn in 0..count {
                let at = (turn + round) % count;
                let at = if round % 2 == 0 { at } else { count - 1 - at };
                times[at].push(work.batch(comm, self.rows[at].plan, calls[at])?);
            }
        }
        comm.set_plan(None);
        Ok(self.compare(&times))
    }

    fn compare(&self, times: &[Vec<f64>]) -> PointResult {
        let median_us = |at: usize, odd: usize| {
            statistics::median(times[at].iter().skip(odd).step_by(2).copied().collect())
                .expect("there are rounds")
        };
        let best = (0..times.len())
            .min_by(|a, b| median_us(*a, 0).total_cmp(&median_us(*b, 0)))
            .expect("there are rows");
        let rows = self
            .rows
            .iter()
            .enumerate()
            .map(|(at, row)| RowResult { row: *row, us: median_us(at, 1) });
        let pairs = times[self.choice].iter().zip(&times[best]).skip(1).step_by(2);
        PointResult {
            collective: self.collective,
            bytes: self.bytes,
            choice: self.rows[self.choice].plan,
            best: self.rows[best].plan,
            choice_us: median_us(self.choice, 1),
            best_us: median_us(best, 1),
            ratio: statistics::median(pairs.map(|(choice, best)| choice / best).collect())
                .expect("there are rounds"),
            rows: rows.collect(),
        }
    }
}

impl std::fmt::Display for RowResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Plan { algorithm, window } = self.row.plan;
        let predicted_us = self.row.predicted_ns as f64 / 1e3;
        let row = format!("{algorithm} {window}");
        write!(f, "{row:>30} predicted {predicted_us:>10.2} us, measured {:>10.2} us", self.us)
    }
}

impl std::fmt::Display for PointResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let row = |plan: Plan| format!("{} {}", plan.algorithm, plan.window);
        let Self { collective, bytes, choice, best, choice_us, best_us, ratio, rows: _ } = self;
        let name = collective.name();
        let choice = row(*choice);
        let best = row(*best);
        write!(
            f,
            "{name:>14} {bytes:>9} {choice:>26} {best:>26} {choice_us:>10.2} {best_us:>10.2} \
             {ratio:>6.2}"
        )
    }
}

/// A collective with its buffers.
struct Work {
    collective: Collective,
    block: Vec<f32>,
    whole: Vec<f32>,
    other: Vec<f32>,
}

impl Work {
    fn new(collective: Collective, bytes: usize, world: usize) -> Self {
        let count = bytes / size_of::<f32>();
        Self {
            collective,
            block: vec![0.0; count / world],
            whole: vec![0.0; count],
            other: vec![0.0; count],
        }
    }

    /// Makes `calls` calls by `plan`. Returns the microseconds of one call on the slowest rank,
    /// equal on all ranks.
    fn batch(&mut self, comm: &mut Communicator, plan: Plan, calls: u32) -> Result<f64, Error> {
        comm.set_plan(None);
        comm.barrier()?;
        comm.set_plan(Some(plan));
        let start = Instant::now();
        for _ in 0..calls {
            self.call(comm)?;
        }
        let mut took = [start.elapsed().as_nanos() as f64 / 1e3 / f64::from(calls)];
        comm.set_plan(None);
        comm.all_reduce(&mut took, ReduceOp::Max)?;
        Ok(took[0])
    }

    fn call(&mut self, comm: &mut Communicator) -> Result<(), Error> {
        let Self { collective, block, whole, other } = self;
        match *collective {
            Collective::Broadcast { root } => comm.broadcast(whole, root),
            Collective::Reduce { root } => comm.reduce(whole, ReduceOp::Max, root),
            Collective::AllReduce => comm.all_reduce(whole, ReduceOp::Max),
            Collective::Gather { root } => comm.gather((block, whole), root),
            Collective::AllGather => comm.all_gather((block, whole)),
            Collective::Scatter { root } => comm.scatter((whole, block), root),
            Collective::ReduceScatter => comm.reduce_scatter((whole, block), ReduceOp::Max),
            Collective::AllToAll => comm.all_to_all((whole, other)),
            Collective::Scan => comm.scan(whole, ReduceOp::Max),
            Collective::ExclusiveScan => comm.exclusive_scan(whole, ReduceOp::Max),
            Collective::Barrier => comm.barrier(),
        }
    }
}
