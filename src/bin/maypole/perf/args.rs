//! What can be asked of `maypole perf`, and whether it makes sense.

use crate::perf::benchmark::{Given, What};
use crate::{names, sizes};
use anyhow::{Result, bail};
use clap::{ArgAction, ValueEnum};
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::{DataType, ReduceOp};
use std::path::PathBuf;
use std::time::Duration;

/// Measure collectives, check every result, print a table.
///
/// Without a launcher in the environment it starts its ranks itself, on this host; under `maypole
/// run`, torchrun, mpirun, mpiexec or srun each process is a rank.
///
/// A sample is one batch of back-to-back calls, so many that it lasts 400 us: from the first rank's
/// start to the last rank's end by the host's monotonic clock, divided by the calls. Ctrl-C ends
/// after the sample that is being taken and prints what there is; a second one kills.
///
/// Exit code: 0, or 1 if a result was wrong or a rank failed, or 2 if what was asked for makes no
/// sense.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// What to measure: all, or any of broadcast, reduce, all-reduce, gather, all-gather, scatter,
    /// reduce-scatter, all-to-all, barrier.
    #[arg(value_name = "COLLECTIVE", default_value = "all", value_parser = selected)]
    collectives: Vec<Selected<Collective>>,

    /// How many ranks to start [default: 4; under a launcher, those that it started].
    #[arg(short = 'n', long, value_name = "N", value_parser = positive)]
    ranks: Option<usize>,

    /// What ranks are joined by: shared memory, TCP, or one after the other.
    #[arg(short, long, value_enum, default_value_t = Over::All)]
    transport: Over,

    /// The algorithms to try, separated by commas: auto (the tuner's choice), all, or names.
    /// [default: auto; with --report, all]
    #[arg(short, long, value_name = "NAME", value_delimiter = ',', value_parser = algorithm)]
    algorithm: Vec<Selected<Option<Algorithm>>>,

    /// Combine floats in the order of the ranks, one by one: what MAYPOLE_DETERMINISTIC=1 costs.
    #[arg(long, conflicts_with = "algorithm")]
    deterministic: bool,

    /// The smallest size [default: 8], as in nccl-tests that of the whole: of the vector, or of all
    /// blocks together.
    #[arg(short = 'b', long, value_name = "SIZE", value_parser = sizes::parse)]
    min: Option<usize>,

    /// The largest size [default: 64M].
    #[arg(short = 'e', long, value_name = "SIZE", value_parser = sizes::parse)]
    max: Option<usize>,

    /// From one size to the next [default: 4].
    #[arg(short, long, value_name = "N")]
    factor: Option<usize>,

    /// The sizes themselves, separated by commas [default, if no size is given and no report asked
    /// for: 8,4K,256K,4M].
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = sizes::parse,
          conflicts_with_all = ["min", "max", "factor"])]
    sizes: Vec<usize>,

    /// The type of the elements: f16, bf16, f32, f64, i8 ... i64, u8 ... u64.
    #[arg(short = 'd', long = "type", value_name = "TYPE", default_value = "f32", value_parser = names::kind)]
    kind: DataType,

    /// How elements are combined: sum, product, min, max or avg.
    #[arg(short, long, value_name = "OP", default_value = "sum")]
    op: ReduceOp,

    /// The root of broadcast, reduce, gather and scatter.
    #[arg(short, long, value_name = "RANK", default_value_t = 0)]
    root: usize,

    /// Time this many calls at each point [default: what fits in --budget].
    #[arg(short, long, value_name = "N", value_parser = positive)]
    iters: Option<usize>,

    /// Calls before a point is timed. They are checked too.
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    warmup: usize,

    /// Milliseconds of sampling at each point.
    #[arg(long, value_name = "MS", default_value_t = 60)]
    budget: u64,

    /// Check results. `--check false` only measures.
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, default_value_t = true, default_missing_value = "true",
          action = ArgAction::Set)]
    check: bool,

    /// Write one JSON object a line, for each size in and out of place. `-` is standard output,
    /// instead of the table.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write a page with plots, index.html, and the same as results.csv to this folder: every
    /// algorithm beside what was predicted and what the machine could do at best.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,

    /// How long a rank waits for another before it gives up [default: MAYPOLE_TIMEOUT, or 300].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,

    /// Bind rank r of a host to its core r, counted round.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_value = "true", default_missing_value = "true",
          action = ArgAction::Set)]
    bind: bool,

    /// Ranks are threads of this process, joined by a board or by streams in memory: for tests of
    /// this command.
    #[arg(long, hide = true)]
    pub(crate) threads: bool,

    /// Every N-th measured call does nothing, on all ranks: shows that the check notices.
    #[arg(long, value_name = "N", hide = true, value_parser = positive)]
    sabotage: Option<usize>,
}

/// A choice, or all there are.
#[derive(Clone, Copy, Debug)]
enum Selected<T> {
    All,
    One(T),
}

/// What is measured over.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Over {
    /// Shared memory: all ranks are on one host.
    Shm,
    /// TCP between any two ranks, also on one host.
    Tcp,
    /// What the library would choose: shared memory within a host and TCP between hosts.
    Auto,
    /// Everything that is there.
    All,
}

/// What was asked for, for a given world; nothing in it contradicts itself.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) world: usize,
    pub(crate) what: What,
    pub(crate) over: Over,
    pub(crate) deterministic: bool,
    pub(crate) iters: Option<usize>,
    pub(crate) warmup: usize,
    pub(crate) budget: Duration,
    pub(crate) check: bool,
    pub(crate) json: Option<PathBuf>,
    pub(crate) report: Option<PathBuf>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) bind: bool,
    pub(crate) sabotage: Option<usize>,
}

/// Ranks that are started if nobody says how many.
const RANKS: usize = 4;
/// Short enough for a first look at everything, and one size of each kind: latency, small, cache,
/// memory.
const DEFAULT_SIZES: [usize; 4] = [8, 4 << 10, 256 << 10, 4 << 20];

impl Args {
    /// How many ranks to start, if nobody has started us as one.
    pub(crate) fn ranks(&self) -> usize {
        self.ranks.unwrap_or(RANKS)
    }

    /// The settings for a world of `world` ranks, or why there are none.
    pub(crate) fn settings(&self, world: usize) -> Result<Settings> {
        if let Some(ranks) = self.ranks
            && ranks != world
        {
            bail!("-n asks for {ranks} ranks, but the launcher has started {world}");
        }
        if self.root >= world {
            bail!("there is no rank {} in a world of {world} to be the root", self.root);
        }
        if !self.op.supports(self.kind) {
            bail!("'{}' works on the bits of integers, not on {}", self.op, self.kind.name());
        }
        let what = What {
            collectives: self.collectives(),
            algorithms: self.algorithms(),
            sizes: self.sizes()?,
            given: Given { kind: self.kind, op: self.op, world },
        };
        if what.is_nothing() {
            let names = names::listed(what.algorithms.iter().flatten().map(ToString::to_string));
            let there_are = what.collectives.iter().map(|collective| {
                let algorithms =
                    names::algorithms_for(*collective).into_iter().map(|one| one.to_string());
                format!("{}: {}", names::dashed(*collective), names::listed(algorithms))
            });
            bail!(
                "{names} has no answer to what is to be measured; there are for\n  {}",
                there_are.collect::<Vec<_>>().join("\n  ")
            );
        }
        Ok(Settings {
            world,
            what,
            over: self.transport,
            deterministic: self.deterministic,
            iters: self.iters,
            warmup: self.warmup,
            budget: Duration::from_millis(self.budget),
            check: self.check,
            json: self.json.clone(),
            report: self.report.clone(),
            timeout: self.timeout,
            bind: self.bind,
            sabotage: self.sabotage,
        })
    }

    fn collectives(&self) -> Vec<Collective> {
        let mut chosen = Vec::new();
        for selected in &self.collectives {
            match selected {
                Selected::All => chosen
                    .extend(Collective::all(self.root).into_iter().filter(|it| self.op_fits(*it))),
                Selected::One(collective) => chosen.push(collective.with_root(self.root)),
            }
        }
        distinct(chosen)
    }

    /// An average of running totals means nothing.
    fn op_fits(&self, collective: Collective) -> bool {
        self.op != ReduceOp::Avg
            || !matches!(collective, Collective::Scan | Collective::ExclusiveScan)
    }

    fn algorithms(&self) -> Vec<Option<Algorithm>> {
        if self.algorithm.is_empty() {
            return if self.report.is_some() {
                Algorithm::ALL.map(Some).to_vec()
            } else {
                vec![None]
            };
        }
        let mut chosen = Vec::new();
        for selected in &self.algorithm {
            match selected {
                Selected::All => chosen.extend(Algorithm::ALL.map(Some)),
                Selected::One(algorithm) => chosen.push(*algorithm),
            }
        }
        distinct(chosen)
    }

    fn sizes(&self) -> Result<Vec<usize>> {
        if !self.sizes.is_empty() {
            return Ok(self.sizes.clone());
        }
        // A line needs more than a look.
        if self.min.is_none()
            && self.max.is_none()
            && self.factor.is_none()
            && self.report.is_none()
        {
            return Ok(DEFAULT_SIZES.to_vec());
        }
        let min = self.min.unwrap_or(8.min(self.max.unwrap_or(8)));
        let (max, factor) = (self.max.unwrap_or(min.max(64 << 20)), self.factor.unwrap_or(4));
        if min > max {
            bail!("--min {} is more than --max {}", sizes::name(min), sizes::name(max));
        }
        if factor < 2 {
            bail!("--factor {factor} leads nowhere; it is at least 2");
        }
        let next = |size: &usize| size.checked_mul(factor).filter(|next| *next <= max);
        Ok(std::iter::successors(Some(min), next).collect())
    }
}

/// The first of each.
fn distinct<T: PartialEq>(all: Vec<T>) -> Vec<T> {
    let mut kept = Vec::with_capacity(all.len());
    for one in all {
        if !kept.contains(&one) {
            kept.push(one);
        }
    }
    kept
}

fn selected(text: &str) -> Result<Selected<Collective>, String> {
    if text == "all" {
        return Ok(Selected::All);
    }
    names::collective(text)
        .map(Selected::One)
        .map_err(|error| format!("{error}, and all for all of them"))
}

fn algorithm(text: &str) -> Result<Selected<Option<Algorithm>>, String> {
    match text {
        "all" => Ok(Selected::All),
        "auto" => Ok(Selected::One(None)),
        name => name
            .parse()
            .map(|one| Selected::One(Some(one)))
            .map_err(|error| format!("{error}; and auto and all")),
    }
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(_) => Err(format!("{text:?} is no number")),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|_| format!("{text:?} is no number of seconds"))?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(Duration::ZERO) => Err("must be more than 0".to_owned()),
        other => other.map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn settings(line: &str) -> Result<Settings> {
        let args =
            Line::try_parse_from(std::iter::once("perf").chain(line.split_whitespace()))?.args;
        args.settings(args.ranks())
    }

    #[test]
    fn nothing_given_is_everything_in_a_few_sizes() {
        let all = settings("").unwrap();
        assert_eq!(
            (all.world, all.what.collectives.len(), all.over, all.check),
            (4, 11, Over::All, true)
        );
        assert_eq!(all.what.sizes, DEFAULT_SIZES);
    }

    #[test]
    fn a_report_is_of_all_algorithms_in_many_sizes() {
        let what = settings("all-reduce --report there").unwrap().what;
        assert_eq!((what.algorithms.len(), what.sizes.len()), (Algorithm::ALL.len(), 12));
        let what = settings("all-reduce --report there -a ring,auto --max 64").unwrap().what;
        assert_eq!((what.algorithms, what.sizes), (vec![Some(Algorithm::Ring), None], vec![8, 32]));
    }

    #[test]
    fn sizes_go_from_min_to_max_by_the_factor() {
        assert_eq!(settings("--min 8 --max 1K").unwrap().what.sizes, [8, 32, 128, 512]);
        assert_eq!(settings("-b 8 -e 16 -f 2").unwrap().what.sizes, [8, 16]);
        assert_eq!(settings("--max 4").unwrap().what.sizes, [4]);
        assert_eq!(settings("--min 128M").unwrap().what.sizes, [128 << 20]);
        assert_eq!(settings("--sizes 4K,8").unwrap().what.sizes, [4096, 8]);
    }

    #[test]
    fn roots_reach_the_rooted() {
        let what = settings("broadcast all-reduce broadcast --root 3").unwrap().what;
        assert_eq!(what.collectives, [Collective::Broadcast { root: 3 }, Collective::AllReduce]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, says) in [
            ("--min 64 --max 8", "--min 64 is more than --max 8"),
            ("--factor 1", "at least 2"),
            ("--root 4", "no rank 4"),
            ("-n 2 --root 2", "no rank 2"),
            ("-n 0", "at least 1"),
            ("barrier --algorithm ring", "barrier: dissemination"),
            ("--algorithm rung", "one-shot"),
            ("--type float", "bf16"),
            ("--op mean", "avg"),
            ("everything", "reduce-scatter"),
            ("--min 0", "at least one byte"),
            ("--transport ib", "tcp"),
            ("--timeout 0", "more than 0"),
            ("--timeout -1", ""),
        ] {
            let error = settings(line).expect_err(line).to_string();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
