//! The options of `maypole perf`. [`super::settings`] checks them together.

use crate::perf::choices::{
    PairSelection, Selected, Subject, TransportSelection, selected, selected_algorithm, subject,
};
use crate::perf::counts::CountRule;
use crate::perf::measure::SamplingOptions;
use crate::perf::messages::MessageTest;
use crate::perf::parse::{assignment, positive, rank, ratio};
use crate::run::hosts::HostArgs;
use crate::run::positive_seconds;
use crate::{names, sizes};
use clap::ArgAction;
use clap::builder::BoolishValueParser;
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::{DataType, ReduceOp};
use std::path::PathBuf;
use std::time::Duration;

/// Measure collectives, or messages between ranks, check every result, print a table.
///
/// Without a launcher in the environment this command starts its ranks itself, on this host. Under
/// `maypole run`, torchrun, mpirun, mpiexec or srun each process is a rank.
///
/// With --hosts or --hostfile it starts them on other hosts over ssh, as `maypole run` does; rank 0, whose
/// lines these are, is on the first host, and so are the files that it writes.
///
/// A sample is one batch of back-to-back calls that lasts about 400 us. Its time is measured with
/// the host's monotonic clock, from the first rank's start to the last rank's end, and divided by
/// the number of calls. Ctrl-C ends the measurement after the current sample and prints the
/// results until then; a second Ctrl-C kills.
///
/// Options of nccl-tests are accepted where they have a meaning here: -b, -e, -f, --stepbytes, -g
/// (here the number of ranks), -w, -c 0 or 1, -d float, -o prod, -r, -T. Two letters differ: -n is
/// the number of ranks, and -i the number of timed calls (--iters).
///
/// Exit code: 0; 1 if a result was wrong or a rank failed; 2 if the options contradict each other; 3
/// if a row is slower than --fail-below allows.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PerfArgs {
    #[arg(
        value_name = "COLLECTIVE",
        default_value = "all",
        value_parser = subject,
        help = format!(
            "What to measure: all collectives, or any of {}; or messages between two ranks: p2p, \
             or any of {}",
            Collective::option_names(),
            names::listed(MessageTest::ALL.map(|test| test.name().to_owned()))
        )
    )]
    pub(crate) subjects: Vec<Subject>,

    /// Of p2p: which pairs of ranks. half: rank r and rank r + n/2, all at the same time. all: every
    /// pair alone, as a matrix, with a sentence that names slow links and odd ranks.
    #[arg(long, value_enum, value_name = "WHICH", default_value_t = PairSelection::Half)]
    pub(crate) pairs: PairSelection,

    /// How many ranks to start [default: 4, of p2p 2; under a launcher, those that it started].
    #[arg(
        short = 'n',
        long,
        visible_short_alias = 'g',
        alias = "ngpus",
        value_name = "N",
        value_parser = positive
    )]
    pub(crate) ranks: Option<usize>,

    #[command(flatten)]
    pub(crate) on: HostArgs,

    /// What carries bytes between ranks; all: every transport that joins them, one after the other.
    #[arg(short, long, value_enum, default_value_t = TransportSelection::All)]
    pub(crate) transport: TransportSelection,

    /// The algorithms to measure, separated by commas: names, all, or auto (the tuner's choice)
    /// [default: auto; with --report, all].
    #[arg(
        short,
        long,
        value_name = "NAME",
        value_delimiter = ',',
        value_parser = selected_algorithm
    )]
    pub(crate) algorithm: Vec<Selected<Option<Algorithm>>>,

    /// Measure the schedules of FILE, which `maypole draw --schedule` reads too, instead of the
    /// library's. They are proved first. Below each row stands the price that the tuner would give
    /// them, and the algorithm that it would choose.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = [
            "subjects", "algorithm", "roots", "registered", "registered_too", "report"
        ]
    )]
    pub(crate) schedule: Option<PathBuf>,

    /// The smallest size in bytes [default: 8]. As in nccl-tests, a size is that of the whole: of
    /// the vector, or of all ranks' blocks together.
    #[arg(short = 'b', long, alias = "minbytes", value_name = "SIZE", value_parser = sizes::parse)]
    pub(crate) min: Option<usize>,

    /// The largest size in bytes [default: 64M].
    #[arg(short = 'e', long, alias = "maxbytes", value_name = "SIZE", value_parser = sizes::parse)]
    pub(crate) max: Option<usize>,

    /// Each size is this many times the one before [default: 4].
    #[arg(short, long, alias = "stepfactor", value_name = "N")]
    pub(crate) factor: Option<usize>,

    /// Each size is this many bytes more than the one before, instead of --factor.
    #[arg(
        long,
        alias = "stepbytes",
        value_name = "SIZE",
        value_parser = sizes::parse,
        conflicts_with = "factor"
    )]
    pub(crate) step: Option<usize>,

    /// The sizes themselves, separated by commas [default, without any option for sizes and
    /// without --report: 8,4K,256K,4M].
    #[arg(
        long,
        value_name = "SIZES",
        value_delimiter = ',',
        value_parser = sizes::parse,
        conflicts_with_all = ["min", "max", "factor", "step"]
    )]
    pub(crate) sizes: Vec<usize>,

    /// The type of the elements: f16, bf16, f32, f64, i8 ... i64, u8 ... u64, or a name of
    /// nccl-tests: half, bfloat16, float, double, int32 ... Several are separated by commas; all: each
    /// of them.
    #[arg(
        short = 'd',
        long = "type",
        alias = "datatype",
        value_name = "TYPE",
        value_delimiter = ',',
        default_value = "f32",
        value_parser = selected(names::data_type)
    )]
    pub(crate) kinds: Vec<Selected<DataType>>,

    /// The reduction: sum, product (or prod), min, max, avg, and, or, xor. Several are separated by
    /// commas; all: each that the type has.
    #[arg(
        short,
        long = "op",
        value_name = "OP",
        value_delimiter = ',',
        default_value = "sum",
        value_parser = selected(names::reduce_op)
    )]
    pub(crate) ops: Vec<Selected<ReduceOp>>,

    /// Bytes behind a page of memory at which each buffer begins, a multiple of the element size. A
    /// large Vec or malloc begins at 16.
    #[arg(long, value_name = "BYTES", default_value_t = 16)]
    pub(crate) offset: usize,

    /// Measure on registered memory, which the ranks of a host reach in place: the buffers are cut
    /// from an arena (Communicator::arena). All ranks must share memory, so this is shared memory
    /// only. The algorithm of a call that ran so has the mark /reg.
    #[arg(long)]
    pub(crate) registered: bool,

    /// Measure each point on ordinary memory and then on registered memory.
    #[arg(long, conflicts_with = "registered")]
    pub(crate) registered_too: bool,

    /// The root of broadcast, reduce, gather and scatter. Several are separated by commas; all: each
    /// rank in turn.
    #[arg(
        short,
        long = "root",
        value_name = "RANK",
        value_delimiter = ',',
        default_value = "0",
        value_parser = selected(rank)
    )]
    pub(crate) roots: Vec<Selected<usize>>,

    /// Measure requests, and how much of each is hidden behind computing that takes as long.
    #[arg(long, conflicts_with_all = ["registered", "registered_too", "schedule", "report"])]
    pub(crate) overlap: bool,

    /// Measure blocks of unequal lengths. The whole is cut into shares, of which rank r has r + 1
    /// (linear), or as many as are listed (1:2:0:5). all means the collectives with blocks.
    #[arg(
        long,
        value_name = "RULE",
        conflicts_with_all = [
            "overlap", "schedule", "report", "registered", "registered_too"
        ]
    )]
    pub(crate) counts: Option<CountRule>,

    /// Say below each row what each rank took, and how far apart the ranks began.
    #[arg(long)]
    pub(crate) per_rank: bool,

    #[command(flatten)]
    pub(crate) sampling: SamplingOptions,

    /// Write one JSON object a line to FILE, for each point out of place and in place. `-` writes
    /// to standard output, instead of the table.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Print the schema of the objects of --json (JSON Schema, draft 2020-12), and measure nothing.
    #[arg(long)]
    pub(crate) schema: bool,

    /// Write every sample to each object of --json: the time of a call in each batch.
    #[arg(long, requires = "json")]
    pub(crate) samples: bool,

    /// Write a table with one line a row to FILE. `-` writes to standard output, instead of the
    /// table for readers.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,

    /// Compare with the results of an earlier run, which --json and --samples have written to FILE, or
    /// with those of the report in this folder, and print the rows that changed beyond noise.
    #[arg(long, value_name = "FILE")]
    pub(crate) compare: Option<PathBuf>,

    /// Of --compare: compare with the results in this file, instead of measuring.
    #[arg(long, value_name = "FILE", requires = "compare")]
    pub(crate) to: Option<PathBuf>,

    /// Of --compare and --alternate: exit with 3 if a row has less than this part of its speed
    /// before, beyond noise.
    #[arg(long, value_name = "RATIO", value_parser = ratio)]
    pub(crate) fail_below: Option<f64>,

    /// Measure with this program and with PROGRAM, another build of maypole, in turn, and print the
    /// rows in which they differ beyond noise.
    #[arg(
        long,
        value_name = "PROGRAM",
        conflicts_with_all = ["json", "csv", "report", "compare"]
    )]
    pub(crate) alternate: Option<PathBuf>,

    /// Measure without and with this variable, in turn; with --alternate, PROGRAM gets it.
    #[arg(
        long,
        value_name = "NAME=VALUE",
        value_parser = assignment,
        conflicts_with_all = ["json", "csv", "report", "compare"]
    )]
    pub(crate) alternate_env: Vec<(String, String)>,

    /// Of --alternate and --alternate-env: how often both are started.
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = positive)]
    pub(crate) rounds: usize,

    /// Write a page (index.html) and its figures (results.csv, messages.csv, results.json) to this
    /// folder. The page shows every algorithm beside its predicted time, pairs of ranks (--pairs all) as
    /// heat maps, a line through the times of several sizes, percentiles, and with --compare what changed.
    /// It loads nothing.
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,

    /// How long a rank waits for another rank before it fails [default: MAYPOLE_TIMEOUT, or 300].
    #[arg(short = 'T', long, value_name = "SECONDS", value_parser = positive_seconds)]
    pub(crate) timeout: Option<Duration>,

    /// Bind each rank to one core; the ranks of a host take its cores in turn.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        default_value = "true",
        default_missing_value = "true",
        value_parser = BoolishValueParser::new(),
        action = ArgAction::Set
    )]
    pub(crate) bind: bool,

    /// Ranks are threads of this process, joined by a board or by streams in memory: for tests of
    /// this command.
    #[arg(long, hide = true)]
    pub(crate) threads: bool,
}
