//! The settings of a measurement: the options of the command line, completed and checked together.

use super::args::{PerfArgs, Selected, Subject, TransportSelection};
use super::benchmark::{Benchmark, CallParameters};
use super::compare::Baseline;
use super::messages::MessageBenchmark;
use crate::schedules::{NamedSchedules, in_words};
use crate::{names, sizes};
use anyhow::{Context, Result, bail, ensure};
use maypole::algorithms::Algorithm;
use maypole::schedule::Placement;
use maypole::schedule::collective::Collective;
use maypole::schedule::verify::verify;
use maypole::{DataType, ReduceOp};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The settings for a world of known size. No two of them contradict each other.
#[derive(Clone, Debug)]
pub(crate) struct PerfSettings {
    pub(crate) world: usize,
    pub(crate) benchmark: Benchmark,
    /// The same of other types, operations and roots, as far as they make a difference.
    pub(crate) others: Vec<Benchmark>,
    /// Requests are measured, and computing beside them.
    pub(crate) overlap: bool,
    /// Rows say what each rank took.
    pub(crate) per_rank: bool,
    /// Messages between ranks, which are measured instead of collectives.
    pub(crate) messages: Option<MessageBenchmark>,
    /// Messages between all pairs, which a report of collectives shows, too.
    pub(crate) matrices: Vec<MessageBenchmark>,
    /// The schedules of a file, which are measured instead of the library's.
    pub(crate) own: Option<Arc<NamedSchedules>>,
    pub(crate) transport: TransportSelection,
    pub(crate) deterministic: bool,
    /// The buffers are registered memory.
    pub(crate) registered: bool,
    /// Each point is also measured in buffers that are not registered.
    pub(crate) ordinary_too: bool,
    pub(crate) iters: Option<usize>,
    pub(crate) warmup: usize,
    pub(crate) budget: Duration,
    pub(crate) check: bool,
    pub(crate) reuse_buffers: bool,
    pub(crate) json: Option<PathBuf>,
    pub(crate) samples: bool,
    pub(crate) csv: Option<PathBuf>,
    pub(crate) svg: Option<PathBuf>,
    /// The results of an earlier run to compare with.
    pub(crate) compare: Option<PathBuf>,
    /// The least part of its speed that a row must have kept.
    pub(crate) fail_below: Option<f64>,
    pub(crate) report: Option<PathBuf>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) bind: bool,
    pub(crate) sabotage: Option<usize>,
    pub(crate) slow_rank: Option<usize>,
}

/// How many ranks are started without `-n`.
const DEFAULT_RANKS: usize = 4;
/// How many ranks are started for messages between two ranks.
const DEFAULT_PAIR: usize = 2;
/// One size for each regime: latency, small messages, cache, memory.
const DEFAULT_SIZES: [usize; 4] = [8, 4 << 10, 256 << 10, 4 << 20];
/// Bytes of a page, on which every buffer would begin without `--offset`.
const PAGE: usize = 4096;
const DEFAULT_MIN: usize = 8;
const DEFAULT_MAX: usize = 64 << 20;
const DEFAULT_FACTOR: usize = 4;
/// The most sizes of a range.
const MOST_SIZES: usize = 1 << 14;

impl PerfSettings {
    /// Everything that is measured, one type, operation and root after the other.
    pub(crate) fn benchmarks(&self) -> impl Iterator<Item = &Benchmark> {
        std::iter::once(&self.benchmark).chain(&self.others)
    }

    /// The earlier run to compare with.
    pub(crate) fn baseline(&self) -> Result<Option<Baseline>> {
        self.compare.as_deref().map(|path| Baseline::read("--compare", path)).transpose()
    }
}

impl PerfArgs {
    /// How many ranks to start where no launcher has started this process as one.
    ///
    /// # Errors
    ///
    /// If the file of `--schedule` cannot be read.
    pub(crate) fn ranks(&self) -> Result<usize> {
        let own = self.schedule.as_deref().map(NamedSchedules::of_file).transpose()?;
        let usual = if self.tests().is_empty() { DEFAULT_RANKS } else { DEFAULT_PAIR };
        let default = own.map_or(usual, |own| own.schedules.len());
        Ok(self.ranks.unwrap_or(default))
    }

    /// The settings for a world of `world` ranks.
    ///
    /// # Errors
    ///
    /// Fails where options contradict each other or the world; the message names the options.
    pub(crate) fn settings(&self, world: usize) -> Result<PerfSettings> {
        if let Some(ranks) = self.ranks
            && ranks != world
        {
            bail!(
                "-n asks for {ranks} ranks, but the launcher has started {world}; leave -n out \
                 under a launcher (the number of timed calls is -i)"
            );
        }
        ensure!(
            self.fail_below.is_none() || self.compare.is_some() || self.alternates(),
            "--fail-below: there is nothing to compare with; add --compare FILE or --alternate \
             PROGRAM"
        );
        let roots = listed(&self.roots, || (0..world).collect());
        if let Some(root) = roots.iter().find(|root| **root >= world) {
            bail!(names::no_such_root(*root, world));
        }
        let own = self.own(world)?.map(Arc::new);
        let collective = own.as_ref().map(|own| own.collective);
        let mut benchmarks = self.benchmarks(world, collective, &roots)?.into_iter();
        let benchmark = benchmarks.next().context("no type has such an operation")?;
        let messages = self.messages(world, &benchmark)?;
        if messages.is_none() && benchmark.is_empty() {
            bail!("{}", nothing_to_measure(&benchmark));
        }
        Ok(PerfSettings {
            world,
            benchmark,
            others: benchmarks.collect(),
            overlap: self.overlap,
            per_rank: self.per_rank,
            matrices: self.matrices(world, messages.is_some()),
            messages,
            own,
            transport: self.transport(world)?,
            deterministic: self.deterministic,
            registered: self.has_registered(),
            ordinary_too: self.registered_too,
            iters: self.iters,
            warmup: self.warmup,
            budget: Duration::from_millis(self.budget),
            check: self.check,
            reuse_buffers: self.reuse_buffers,
            json: self.json.clone(),
            samples: self.samples,
            csv: self.csv.clone(),
            svg: self.svg.clone(),
            compare: self.compare.clone(),
            fail_below: self.fail_below,
            report: self.report.clone(),
            timeout: self.timeout,
            bind: self.bind,
            sabotage: self.sabotage,
            slow_rank: self.slow_rank,
        })
    }

    /// What is measured of each type, operation and root. A collective that has no operation or no
    /// root is measured with the first of them alone.
    fn benchmarks(
        &self,
        world: usize,
        own: Option<Collective>,
        roots: &[usize],
    ) -> Result<Vec<Benchmark>> {
        let kinds = listed(&self.kinds, || DataType::NUMBERS.to_vec());
        let takes_all = |op: ReduceOp| !self.ops.iter().any(|it| it.is(&op));
        let ops = listed(&self.ops, || ReduceOp::ALL.to_vec());
        let mut benchmarks = Vec::new();
        for kind in kinds {
            let is_left_out = |op: &ReduceOp| takes_all(*op) && !op.supports(kind);
            for (nth_op, op) in ops.iter().copied().filter(|op| !is_left_out(op)).enumerate() {
                ensure!(
                    op.supports(kind),
                    "--op {op} works on the bits of integers; --type {} is not an integer type",
                    kind.name()
                );
                for (nth_root, root) in roots.iter().enumerate() {
                    let mut collectives =
                        own.map_or_else(|| self.collectives(*root, op), |own| vec![own]);
                    collectives.retain(|collective| {
                        (nth_op == 0 || collective.reduces())
                            && (nth_root == 0 || collective.root().is_some())
                    });
                    let offset = self.offset(kind)?;
                    let parameters = CallParameters { kind, op, world, offset };
                    let (algorithms, sizes) = (self.algorithms(), self.sizes()?);
                    benchmarks.push(Benchmark { collectives, algorithms, sizes, parameters });
                }
            }
        }
        Ok(benchmarks)
    }

    /// True if points are measured on registered memory.
    pub(crate) fn has_registered(&self) -> bool {
        self.registered || self.registered_too
    }

    /// True if two programs or settings are measured in turn.
    pub(crate) fn alternates(&self) -> bool {
        self.alternate.is_some() || !self.alternate_env.is_empty()
    }

    /// The schedules of `--schedule`, proved.
    fn own(&self, world: usize) -> Result<Option<NamedSchedules>> {
        let Some(path) = &self.schedule else { return Ok(None) };
        let own = NamedSchedules::of_file(path)?;
        let (name, ranks) = (path.display(), own.schedules.len());
        ensure!(
            ranks == world,
            "--schedule {name} has the steps of {ranks} ranks, and there are {world}: start {ranks}"
        );
        #[cfg(feature = "cuda")]
        ensure!(
            self.transport != TransportSelection::Cuda,
            "--schedule: calls on GPUs run the library's schedules alone; use another --transport"
        );
        if let Err(flaw) = verify(own.collective, &own.schedules, Placement::Apart) {
            bail!("--schedule {name} has a flaw: {}", in_words(&flaw, &own.schedules));
        }
        Ok(Some(own))
    }

    /// The transports to measure. Memory can be registered where ranks share it, and nowhere else.
    fn transport(&self, world: usize) -> Result<TransportSelection> {
        if !self.has_registered() {
            return Ok(self.transport);
        }
        ensure!(
            world > 1,
            "--registered: one rank has no other rank that could reach its memory; start two or \
             more with -n"
        );
        ensure!(
            !matches!(self.transport, TransportSelection::Tcp | TransportSelection::Ib),
            "--registered: ranks reach one another's memory only where they share it, never over \
             --transport tcp or ib; use --transport shm, or leave --transport out"
        );
        Ok(TransportSelection::Shm)
    }

    fn offset(&self, kind: DataType) -> Result<usize> {
        let element = kind.size();
        ensure!(
            self.offset.is_multiple_of(element),
            "--offset {}: elements of --type {} have {element} bytes; take a multiple of that",
            self.offset,
            kind.name()
        );
        ensure!(
            self.offset < PAGE,
            "--offset {}: buffers begin less than a page ({PAGE} bytes) behind a page",
            self.offset
        );
        Ok(self.offset)
    }

    fn collectives(&self, root: usize, op: ReduceOp) -> Vec<Collective> {
        let mut chosen = Vec::new();
        for subject in &self.subjects {
            match subject {
                Subject::Collectives(Selected::All) => {
                    chosen.extend(Collective::all(root).into_iter().filter(|it| op_fits(op, *it)))
                }
                Subject::Collectives(Selected::One(collective)) => {
                    chosen.push(collective.with_root(root));
                }
                Subject::Messages(_) => {}
            }
        }
        distinct(chosen)
    }

    fn algorithms(&self) -> Vec<Option<Algorithm>> {
        if self.algorithm.is_empty() && self.report.is_some() {
            return Algorithm::ALL.map(Some).to_vec();
        }
        if self.algorithm.is_empty() {
            return vec![None];
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
        let no_size_given = self.min.is_none()
            && self.max.is_none()
            && self.factor.is_none()
            && self.step.is_none();
        // A plotted line needs more sizes than a first look.
        if no_size_given && self.report.is_none() {
            return Ok(DEFAULT_SIZES.to_vec());
        }
        let min = self.min.unwrap_or(DEFAULT_MIN.min(self.max.unwrap_or(DEFAULT_MIN)));
        let max = self.max.unwrap_or(min.max(DEFAULT_MAX));
        let factor = self.factor.unwrap_or(DEFAULT_FACTOR);
        ensure!(min <= max, "--min {} is more than --max {}", sizes::name(min), sizes::name(max));
        ensure!(factor >= 2, "--factor {factor}: the factor must be at least 2");
        if let Some(step) = self.step {
            let sizes = (max - min) / step + 1;
            ensure!(
                sizes <= MOST_SIZES,
                "--step {} makes {sizes} sizes from {} to {}, and the most is {MOST_SIZES}: give a \
                 larger --step",
                sizes::name(step),
                sizes::name(min),
                sizes::name(max)
            );
        }
        let next = |size: &usize| match self.step {
            Some(step) => size.checked_add(step),
            None => size.checked_mul(factor),
        };
        let next_to_max = |size: &usize| next(size).filter(|next| *next <= max);
        Ok(std::iter::successors(Some(min), next_to_max).collect())
    }
}

/// False for scans with an average, which no scan implements.
fn op_fits(op: ReduceOp, collective: Collective) -> bool {
    op != ReduceOp::Avg || !matches!(collective, Collective::Scan | Collective::ExclusiveScan)
}

/// The choices, each once.
fn listed<T: Copy + PartialEq>(chosen: &[Selected<T>], all: impl Fn() -> Vec<T>) -> Vec<T> {
    let values = chosen.iter().flat_map(|choice| match choice {
        Selected::All => all(),
        Selected::One(value) => vec![*value],
    });
    distinct(values.collect())
}

/// The error where no algorithm implements any of the collectives.
fn nothing_to_measure(benchmark: &Benchmark) -> String {
    let named = names::listed(benchmark.algorithms.iter().flatten().map(ToString::to_string));
    let implemented = benchmark.collectives.iter().map(|collective| {
        let algorithms = names::algorithms_for(*collective);
        let algorithms = names::listed(algorithms.into_iter().map(|one| one.to_string()));
        format!("{}: {algorithms}", names::dashed(*collective))
    });
    format!(
        "--algorithm {named} implements none of the collectives to measure; these do:\n  {}",
        implemented.collect::<Vec<_>>().join("\n  ")
    )
}

/// Each value once, in the order of first appearance.
pub(crate) fn distinct<T: PartialEq>(all: Vec<T>) -> Vec<T> {
    let mut kept = Vec::with_capacity(all.len());
    for one in all {
        if !kept.contains(&one) {
            kept.push(one);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::messages::MessageTest;
    use clap::Parser;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        args: PerfArgs,
    }

    fn settings(line: &str) -> Result<PerfSettings> {
        let words = std::iter::once("perf").chain(line.split_whitespace());
        let args = CommandLine::try_parse_from(words)?.args;
        args.settings(args.ranks()?)
    }

    fn sizes(line: &str) -> Vec<usize> {
        settings(line).unwrap().benchmark.sizes
    }

    #[test]
    fn without_options_everything_is_measured_in_a_few_sizes() {
        let all = settings("").unwrap();
        assert_eq!(all.world, 4);
        assert_eq!(all.benchmark.collectives.len(), 11);
        assert_eq!(all.transport, TransportSelection::All);
        assert!(all.check);
        assert_eq!(all.benchmark.sizes, DEFAULT_SIZES);
    }

    #[test]
    fn a_report_measures_all_algorithms_in_many_sizes() {
        let benchmark = settings("all-reduce --report there").unwrap().benchmark;
        assert_eq!(benchmark.algorithms.len(), Algorithm::ALL.len());
        assert_eq!(benchmark.sizes.len(), 12);
        let line = "all-reduce --report there -a ring,auto --max 64";
        let benchmark = settings(line).unwrap().benchmark;
        assert_eq!(benchmark.algorithms, [Some(Algorithm::Ring), None]);
        assert_eq!(benchmark.sizes, [8, 32]);
    }

    #[test]
    fn sizes_go_from_min_to_max_by_the_factor_or_the_step() {
        assert_eq!(sizes("--min 8 --max 1K"), [8, 32, 128, 512]);
        assert_eq!(sizes("-b 8 -e 16 -f 2"), [8, 16]);
        assert_eq!(sizes("-b 1K -e 3K --step 1K"), [1024, 2048, 3072]);
        assert_eq!(sizes("--max 4"), [4]);
        assert_eq!(sizes("--min 128M"), [128 << 20]);
        assert_eq!(sizes("--sizes 4K,8"), [4096, 8]);
    }

    #[test]
    fn command_lines_of_nccl_tests_are_understood() {
        let line = "all_reduce -b 8 -e 32 -f 2 -g 2 -w 5 -c 1 -d float -o prod -r 1 -T 60";
        let settings = settings(line).unwrap();
        assert_eq!(settings.benchmark.sizes, [8, 16, 32]);
        assert_eq!(settings.world, 2);
        assert_eq!(settings.warmup, 5);
        assert!(settings.check);
        assert_eq!(settings.benchmark.parameters.kind, maypole::DataType::F32);
        assert_eq!(settings.benchmark.parameters.op, ReduceOp::Product);
        assert_eq!(settings.timeout, Some(Duration::from_secs(60)));
        let long = "--minbytes 8 --maxbytes 32 --stepbytes 8 --datatype half --check 0 --ngpus 3";
        let settings = super::tests::settings(long).unwrap();
        assert_eq!(settings.benchmark.sizes, [8, 16, 24, 32]);
        assert_eq!(settings.benchmark.parameters.kind, maypole::DataType::F16);
        assert_eq!(settings.world, 3);
        assert!(!settings.check);
    }

    #[test]
    fn messages_are_measured_between_two_ranks() {
        let tests = |line: &str| settings(line).unwrap().messages.unwrap().tests;
        assert_eq!(tests("p2p latency"), MessageTest::PAIRS);
        assert_eq!(tests("exchange -n 4"), [MessageTest::Exchange]);
        assert_eq!(settings("p2p").unwrap().world, 2);
        assert!(settings("p2p --pairs all -n 4").unwrap().messages.unwrap().all_pairs);
        assert!(settings("all-reduce").unwrap().messages.is_none());
    }

    #[test]
    fn buffers_begin_where_those_of_users_do() {
        let offset = |line: &str| settings(line).unwrap().benchmark.parameters.offset;
        assert_eq!(offset(""), 16);
        assert_eq!(offset("--offset 0"), 0);
        assert_eq!(offset("--type i8 --offset 3"), 3);
    }

    #[test]
    fn registered_memory_is_shared_memory() {
        let over = |line: &str| settings(line).unwrap().transport;
        assert_eq!(over("--registered"), TransportSelection::Shm);
        assert_eq!(over("--registered --transport auto"), TransportSelection::Shm);
        assert_eq!(over("--registered-too"), TransportSelection::Shm);
        assert!(settings("--registered-too").unwrap().ordinary_too);
        assert!(!settings("").unwrap().registered);
    }

    #[test]
    fn check_needs_no_value() {
        assert!(settings("--check").unwrap().check);
        assert!(settings("-c true").unwrap().check);
        assert!(!settings("-c false").unwrap().check);
    }

    #[test]
    fn the_root_reaches_every_rooted_collective() {
        let collectives =
            settings("broadcast all-reduce broadcast --root 3").unwrap().benchmark.collectives;
        assert_eq!(collectives, [Collective::Broadcast { root: 3 }, Collective::AllReduce]);
    }

    #[test]
    fn types_operations_and_roots_may_be_all() {
        let points = |line: &str| {
            let settings = settings(line).unwrap();
            let points = settings.benchmarks().flat_map(|it| {
                let CallParameters { kind, op, .. } = it.parameters;
                it.collectives.iter().map(move |collective| (kind.name(), op, *collective))
            });
            points.collect::<Vec<_>>()
        };
        let all = points("-d all -o all -r all -n 3");
        let count =
            |kind: &str, op: ReduceOp| all.iter().filter(|it| it.0 == kind && it.1 == op).count();
        // Of the first operation all; of others three roots of reduce, and four without a root.
        assert_eq!(count("f32", ReduceOp::Sum), 11 + 2 * 4);
        assert_eq!(count("f32", ReduceOp::Max), 3 + 4);
        assert_eq!(count("f32", ReduceOp::Avg), 3 + 2, "no scan has an average");
        assert_eq!(count("f32", ReduceOp::Xor), 0);
        assert_eq!(count("u8", ReduceOp::Xor), 3 + 4);
        assert_eq!(
            points("barrier -d f32,f64 -r all"),
            [
                ("f32", ReduceOp::Sum, Collective::Barrier),
                ("f64", ReduceOp::Sum, Collective::Barrier)
            ]
        );
    }

    #[test]
    fn contradictions_are_refused() {
        for (line, says) in [
            ("--min 64 --max 8", "--min 64 is more than --max 8"),
            ("--factor 1", "at least 2"),
            (
                "--min 8 --max 1T --step 1",
                "1099511627769 sizes from 8 to 1T, and the most is 16384",
            ),
            ("--factor 2 --step 8", "cannot be used with"),
            ("--root 4", "no rank 4"),
            ("-n 2 --root 2", "no rank 2"),
            ("-n 0", "at least 1"),
            ("barrier --algorithm ring", "barrier: dissemination"),
            ("--algorithm rung", "one-shot"),
            ("--type quad", "bf16"),
            ("--op mean", "avg"),
            ("--check maybe", "neither true"),
            ("everything", "reduce-scatter"),
            ("--min 0", "at least one byte"),
            ("--transport pigeon", "tcp"),
            ("--timeout 0", "more than 0"),
            ("--timeout -1", ""),
            ("--offset 2", "multiple of that"),
            ("--type f16 --offset 1", "have 2 bytes"),
            ("--offset 4096", "less than a page"),
            ("p2p all-reduce", "in two runs"),
            ("p2p -n 1", "a message has two ranks"),
            ("latency -a ring", "--algorithm is about collectives"),
            ("p2p --svg x", "add --pairs all"),
            ("--pairs all", "measure p2p"),
            ("--samples", "--json"),
            ("--registered -n 1", "two or more with -n"),
            ("--registered --transport tcp", "use --transport shm"),
        ] {
            let error = settings(line).expect_err(line).to_string();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
