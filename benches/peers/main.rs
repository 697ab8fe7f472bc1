//! Measures maypole and other libraries, in alternating rounds of one run.
//!
//! ```text
//! cargo bench --bench peers -- --peers FOLDER --record FILE     # all 200 points: 20 minutes
//! cargo bench --bench peers -- --peers FOLDER --groups shm2,tcp4 --collectives all-reduce \
//!     --sizes 8,1048576 --rounds 3
//! ```
//!
//! `FOLDER` holds `peers.sh`, a bash file that defines `peer_run NAME TRANSPORT RANKS`. This
//! function runs the program that measures peer NAME, and prints a JSON object a line with `coll`,
//! `bytes`, `median_us` and `ok`. The variables `PB_COLLS`, `PB_SIZES`, `PB_BUDGET_MS`,
//! `PB_MINSAMP`, `PB_MAX` and `PB_OFFSET` select the measurements. The program samples like
//! `maypole perf`: batches of about 400 us, from the first rank's start to the last rank's end.
//!
//! On a shared machine, other load changes wall-clock times from minute to minute, but it slows all
//! programs that run in the same seconds alike. So every round runs every library, and the order is
//! reversed from round to round. The result of a point is the median over rounds of the best peer's
//! time divided by maypole's time: above 1, maypole is faster than all peers. Points below 0.9 get
//! more rounds. Every time is a median, of the samples of a program and then of the rounds.
//!
//! A virtual machine's cores may come nearer to one another or go apart, and then every library takes
//! another time. So a barrier between two ranks is timed before and after each round, and a round in
//! which it changed is measured again.
//!
//! `--busy 2` keeps two processes computing concurrently with the ranks, as a compiler or a data loader
//! would. The times of barriers are meaningless then, and no round is measured again.
//!
//! `--record FILE` stores the measurements: the same command, started again, measures only the missing
//! points.

use anyhow::{Context, Result, ensure};
use busy::BusyProcesses;
use clap::Parser;
use distance::CoreDistance;
use programs::{Programs, Selection, Times};
use record::Record;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

mod busy;
mod distance;
mod programs;
mod record;
#[path = "../../src/cli/statistics.rs"]
mod statistics;
mod summary;

/// Compare `maypole perf` with other libraries, round by round.
#[derive(Parser)]
struct PeersArgs {
    /// The folder with peers.sh [default: $PEERS]; without it nothing is compared.
    #[arg(long, value_name = "FOLDER")]
    peers: Option<PathBuf>,

    /// Peers, as peers.sh names them, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "ompi5,impi,mpich5")]
    names: Vec<String>,

    /// Peers whose ranks spin while they wait: left out where ranks outnumber cores.
    #[arg(long, value_delimiter = ',', default_value = "mpich5")]
    spinning: Vec<String>,

    /// Transports with numbers of ranks, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "shm2,shm4,shm8,tcp2,tcp4")]
    groups: Vec<Group>,

    /// The number of rounds. Every library runs once in each round.
    #[arg(long, default_value_t = 7)]
    rounds: usize,

    /// The number of rounds of points below 0.9.
    #[arg(long, default_value_t = 15)]
    slow_rounds: usize,

    /// Collectives, as `maypole perf` names them, separated by commas.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "all-reduce,broadcast,reduce,all-gather,reduce-scatter,all-to-all,scatter,\
                         gather"
    )]
    collectives: Vec<String>,

    /// Bytes of the whole, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "8,4096,65536,1048576,16777216")]
    sizes: Vec<u64>,

    /// Bytes behind a page at which every buffer begins, maypole's and the peers'.
    #[arg(long, default_value_t = 16)]
    offset: usize,

    /// Measure maypole on registered memory, in the groups over shm. The peers have private
    /// buffers.
    #[arg(long)]
    registered: bool,

    /// Measure calls that all ranks begin together, each by itself, instead of rows of calls.
    #[arg(long)]
    together: bool,

    /// The number of processes that compute without end beside the ranks.
    #[arg(long, default_value_t = 0)]
    busy: usize,

    /// Milliseconds of sampling at each point.
    #[arg(long, default_value_t = 50)]
    budget: u64,

    /// The algorithm to compare.
    #[arg(long, default_value = "auto")]
    algorithm: String,

    /// Keep every measurement in this file, and go on with those that it holds.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// The `maypole` program to measure [default: the program built with this bench].
    #[arg(long, value_name = "FILE", default_value = env!("CARGO_BIN_EXE_maypole"))]
    maypole: PathBuf,

    /// Passed by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Ranks over a transport, such as `shm2`.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Group {
    transport: String,
    ranks: usize,
}

impl FromStr for Group {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.find(|letter: char| letter.is_ascii_digit()).unwrap_or(text.len());
        let (transport, ranks) = text.split_at(digits);
        match (transport, ranks.parse()) {
            ("shm" | "tcp", Ok(ranks)) if ranks > 1 => {
                Ok(Self { transport: transport.to_owned(), ranks })
            }
            _ => Err(format!("{text:?} is no group such as shm2 or tcp4")),
        }
    }
}

impl std::fmt::Display for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.transport, self.ranks)
    }
}

/// The name of maypole among the libraries.
const OURS: &str = "maypole";
/// The ratio below which a point gets more rounds.
const SLOW: f64 = 0.9;
/// How often a round is measured in which the machine changes, before it is kept as it is.
const ATTEMPTS: usize = 4;

fn main() -> Result<ExitCode> {
    busy::compute_if_asked();
    let args = PeersArgs::parse();
    let folder = args.peers.clone().or_else(|| std::env::var_os("PEERS").map(PathBuf::from));
    let Some(peers) = folder.filter(|folder| folder.join("peers.sh").is_file()) else {
        eprintln!(
            "SKIPPED: nothing to compare with. Name the folder of peers.sh: -- --peers FOLDER, or \
             PEERS=FOLDER"
        );
        return Ok(ExitCode::SUCCESS);
    };
    ensure!(!args.sizes.is_empty(), "--sizes names no size");
    let peers = peers.canonicalize().context("cannot find the folder of --peers")?;
    let selection = Selection { collectives: args.collectives.clone(), sizes: args.sizes.clone() };
    let mut record = Record::open(args.record.as_deref(), &args.settings())?;
    let programs = args.programs(peers);
    let _busy = BusyProcesses::start(args.busy)?;
    for group in &args.groups {
        args.measure(&programs, &mut record, group, &selection, 0..args.rounds)?;
        for slow in summary::slow_points(&record, group, SLOW) {
            eprintln!("{group}: below {SLOW}: {} at {:?} bytes", slow.collectives[0], slow.sizes);
            args.measure(&programs, &mut record, group, &slow, args.rounds..args.slow_rounds)?;
        }
        println!("{}{}", record.states(group), summary::group_table(&record, group, &args.names));
    }
    println!("{}", summary::totals(&record, &args.groups, SLOW));
    println!("{}", summary::markdown(&record, &args.groups, &args.collectives, &args.sizes));
    Ok(ExitCode::SUCCESS)
}

impl PeersArgs {
    fn programs(&self, peers: PathBuf) -> Programs {
        Programs {
            peers,
            maypole: self.maypole.clone(),
            algorithm: self.algorithm.clone(),
            budget: self.budget,
            offset: self.offset,
            registered: self.registered,
            together: self.together,
        }
    }

    /// The options that a record must have been measured with, in a line.
    fn settings(&self) -> String {
        let memory = if self.registered { ", registered" } else { "" };
        let together = if self.together { ", together" } else { "" };
        let busy = if self.busy > 0 { format!(", busy {}", self.busy) } else { String::new() };
        format!(
            "collectives {}, sizes {:?}, offset {}, budget {} ms, algorithm {}{memory}{together}\
             {busy}",
            self.collectives.join(","),
            self.sizes,
            self.offset,
            self.budget,
            self.algorithm
        )
    }

    /// The libraries that are compared in `group`: ours first.
    fn libraries(&self, group: &Group) -> Vec<&str> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let fits = |name: &&str| group.ranks <= cores || !self.spinning.iter().any(|it| it == name);
        let peers = self.names.iter().map(String::as_str).filter(fits);
        std::iter::once(OURS).chain(peers).collect()
    }

    /// Runs each library once in each of `rounds`, except for recorded points.
    fn measure(
        &self,
        programs: &Programs,
        record: &mut Record,
        group: &Group,
        selection: &Selection,
        rounds: std::ops::Range<usize>,
    ) -> Result<()> {
        for round in rounds {
            let all = self.libraries(group);
            let has = |library: &&str| record.has(group, round, library, &selection.collectives[0]);
            if all.iter().all(has) {
                continue;
            }
            for attempt in 1..=ATTEMPTS {
                let before = programs.barrier()?;
                let taken = self.round(programs, group, selection, round)?;
                let state = CoreDistance { before, after: programs.barrier()? };
                eprintln!("{group}, round {}: {state}", round + 1);
                if !state.changed() || self.busy > 0 || attempt == ATTEMPTS {
                    for (library, times) in taken {
                        record.add(group, round, library, &times)?;
                    }
                    record.add_state(group, round, state)?;
                    break;
                }
            }
        }
        Ok(())
    }

    /// What each library takes in one round.
    fn round(
        &self,
        programs: &Programs,
        group: &Group,
        selection: &Selection,
        round: usize,
    ) -> Result<Vec<(&str, Times)>> {
        let mut libraries = self.libraries(group);
        if round % 2 == 1 {
            libraries.reverse();
        }
        let mut all = Vec::new();
        for library in libraries {
            eprintln!("{group}, round {}: {library}", round + 1);
            let taken = if library == OURS {
                programs.ours(group, selection)
            } else {
                programs.peer(library, group, selection)
            };
            match taken {
                Ok(taken) => all.push((library, taken)),
                Err(error) if library == OURS => return Err(error),
                Err(error) => eprintln!("SKIPPED in this round: {library}: {error:#}"),
            }
        }
        Ok(all)
    }
}
