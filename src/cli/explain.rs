//! `maypole explain`: why the tuner chooses an algorithm for a call.

use crate::perf::benchmark::{BenchmarkPoint, CallParameters};
use crate::perf::check::oracle::Oracle;
use crate::perf::measure::batch::{CallBatch, SampledWork};
use crate::perf::measure::workload::Workload;
use crate::perf::offset::BufferOffset;
use crate::{names, output, run, sizes, tune};
use anyhow::{Result, ensure};
use clap::ValueEnum;
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::schedule::hosts::{Boards, Hosts, ReachedMemory};
use maypole::topology::StreamLinks;
use maypole::tuner::{
    CostTable, Explanation, PlanOverride, Question, choose, copied_choice, priced_bytes,
    reaching_choice,
};
use maypole::world::launch::{self, Launcher};
use maypole::{Communicator, DataType, ReduceOp, Transport};
use maypole_transports::cores::UsableCores;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Explain which algorithm the tuner chooses for a call, and why: every candidate with its
/// predicted time, and the algorithms that cannot run it.
///
/// By default, this command predicts for ranks on this host. With --measure, or under a launcher,
/// ranks run the call as well, and the measured time is shown beside the prediction. Calls are
/// chosen and priced by one of eight lengths in each doubling, which the output names. The costs of
/// messages and bytes are those of `maypole tune`, or those built in.
#[derive(clap::Args)]
pub(crate) struct ExplainArgs {
    #[arg(value_parser = names::collective, help = names::collective_help())]
    collective: Collective,

    /// The number of ranks. Under a launcher, the ranks that it started count instead.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 4)]
    ranks: usize,

    #[cfg(feature = "cuda")]
    #[command(flatten)]
    gpus: crate::gpus::GpuArgs,

    /// The root of broadcast, reduce, gather and scatter.
    #[arg(short, long, value_name = "RANK", default_value_t = 0)]
    root: usize,

    /// Bytes of the whole: of the vector, or of all ranks' blocks together.
    #[arg(short, long, value_name = "SIZE", default_value = "1M", value_parser = sizes::parse)]
    bytes: usize,

    /// The transport between the ranks.
    #[arg(short, long, value_enum, default_value_t = TransportArg::Shm)]
    transport: TransportArg,

    /// The type of the elements. Sizes are rounded up to whole elements in every block.
    #[arg(
        short = 'd',
        long = "type",
        value_name = "TYPE",
        default_value = "f32",
        value_parser = names::data_type
    )]
    kind: DataType,

    /// Use this algorithm instead of the tuner's choice.
    #[arg(short, long, value_name = "NAME")]
    algorithm: Option<Algorithm>,

    /// Start the ranks and run the call as well.
    #[arg(short, long)]
    measure: bool,

    /// Which cores the ranks run on that are started to measure: each on one, unless this says otherwise.
    #[arg(long, value_enum, value_name = "WHERE", default_value_t = run::Bind::Core)]
    bind: run::Bind,
}

/// The transport between ranks.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum TransportArg {
    /// Shared memory.
    Shm,
    /// TCP.
    Tcp,
    /// InfiniBand or RoCE.
    Ib,
    /// The memory of GPUs: see --gpus and --cluster. The output says which prices were measured.
    #[cfg(feature = "cuda")]
    Cuda,
}

impl From<TransportArg> for Transport {
    fn from(over: TransportArg) -> Self {
        match over {
            TransportArg::Shm => Self::Shm,
            TransportArg::Tcp => Self::Tcp,
            TransportArg::Ib => Self::Ib,
            #[cfg(feature = "cuda")]
            TransportArg::Cuda => Self::Auto,
        }
    }
}

pub(crate) fn main(args: ExplainArgs) -> Result<ExitCode> {
    let launched = launch::describe_env()?.launch;
    let alone = launched.launcher == Launcher::Alone;
    let ranks = if alone { args.ranks } else { launched.world };
    ensure!(
        !(args.measure && args.is_on_gpus()),
        "explain does not measure on GPUs: 'maypole perf --transport cuda' does"
    );
    #[cfg(feature = "cuda")]
    if args.is_on_gpus() {
        return args.explain_on_gpus(ranks, launched.rank == 0);
    }
    #[cfg(feature = "cuda")]
    ensure!(!args.gpus.are_given(), "--gpus and --cluster need --transport cuda");
    let collective = names::rooted(args.collective, args.root, ranks, names::MOST_RANKS)?;
    if alone && args.measure {
        return run::again(ranks, args.bind, tune::GRACE);
    }
    if alone {
        return show(&args.predict(collective, ranks), true);
    }
    let is_first = launched.rank == 0;
    let (explanation, mut rows) = args.measure(collective)?;
    let code = show(&explanation, is_first)?;
    rows.sort_unstable();
    if let (Some(median), Some(chosen), true) =
        (rows.get(rows.len() / 2), explanation.chosen(), is_first)
    {
        let us = median.as_nanos() as f64 / ROW as f64 / 1e3;
        let error = chosen.predicted_ns as f64 / 1e3 / us - 1.0;
        let way = if error < 0.0 { "low" } else { "high" };
        output::print(format_args!(
            "measured: {us:.3} us, median of {} rows of {ROW} calls; predicted {:.0} % too {way}\n",
            rows.len(),
            error.abs() * 100.0
        ))?;
    }
    Ok(code)
}

fn show(explanation: &Explanation, is_first: bool) -> Result<ExitCode> {
    if is_first {
        output::print(explanation)?;
    }
    ensure!(
        explanation.choice.is_ok(),
        "no algorithm can run this call; the explanation above says why"
    );
    Ok(ExitCode::SUCCESS)
}

impl ExplainArgs {
    /// Bytes of the whole, rounded up to whole elements in each block.
    fn whole(&self, collective: Collective, ranks: usize) -> usize {
        let blocks = if collective.is_blocked() { ranks } else { 1 };
        match collective {
            Collective::Barrier => 0,
            _ => self.bytes.div_ceil(blocks * self.kind.size()) * blocks * self.kind.size(),
        }
    }

    fn is_on_gpus(&self) -> bool {
        !matches!(self.transport, TransportArg::Shm | TransportArg::Tcp | TransportArg::Ib)
    }

    /// Explains a call on GPUs, of which each of `ranks` ranks has one unless the options set more.
    #[cfg(feature = "cuda")]
    fn explain_on_gpus(&self, ranks: usize, is_first: bool) -> Result<ExitCode> {
        let gpus = self.gpus.ranks(ranks)?;
        let world = gpus.links.world();
        let collective = names::rooted(self.collective, self.root, world, names::MOST_RANKS)?;
        let bytes = self.whole(collective, world);
        let wanted = self.algorithm.map(PlanOverride::from);
        show(&gpus.explain(collective, bytes, wanted), is_first)
    }

    fn predict(&self, collective: Collective, ranks: usize) -> Explanation {
        let asked = self.whole(collective, ranks);
        let bytes = priced_bytes(asked);
        let wanted = self.algorithm.map(PlanOverride::from);
        let hosts = Hosts::new(&vec![0; ranks]);
        let boards = match self.transport {
            TransportArg::Shm => Boards::within(&hosts),
            _ => Boards::separate(ranks),
        };
        let crowding = ranks.div_ceil(UsableCores::count([&UsableCores::of_this_thread()]));
        let question = Question { collective, boards: &boards, bytes, crowding, gpus: None };
        let (links, costs) = match self.transport {
            TransportArg::Ib => (StreamLinks::Verbs, CostTable::tuned().with_streams_by_verbs()),
            _ => (StreamLinks::undecided(), CostTable::tuned()),
        };
        let choice = choose(&question, wanted, &costs);
        let able = |algorithm| self.algorithm.is_none_or(|wanted| wanted == algorithm);
        let mut explained = Explanation::new(&question, &hosts, &links, wanted, choice);
        explained.bytes = asked;
        let registered = reaching_choice(&question, &costs, ReachedMemory::Registered, able);
        explained.registered = Some(registered);
        explained.copied = Some(copied_choice(&question, &costs, able));
        explained
    }

    /// Runs the call as one rank of several. Returns its explanation, and the times of rows of calls.
    fn measure(&self, collective: Collective) -> Result<(Explanation, Vec<Duration>)> {
        let mut world = Communicator::from_env()?;
        let mut comm = world.over(self.transport.into())?;
        comm.set_algorithm(self.algorithm);
        let bytes = self.whole(collective, comm.world());
        let explanation = comm.explain(collective, bytes);
        if explanation.choice.is_err() {
            return Ok((explanation, Vec::new()));
        }
        let (kind, world) = (self.kind, comm.world());
        let (op, offset, off_cache) = (ReduceOp::Sum, BufferOffset::Fixed(OFFSET), None);
        let parameters = CallParameters { kind, op, world, offset, off_cache };
        let oracle = Oracle::new(parameters, collective);
        let blocks = if collective.is_blocked() { world } else { 1 };
        let count = bytes / kind.size() / blocks;
        let point = BenchmarkPoint { collective, algorithm: None, count, shares: None };
        let (place, rank) = (point.placements()[0], comm.rank());
        let mut work = Workload::new(parameters, point, place, rank, &oracle, None)?;
        let batch = CallBatch { calls: ROW, ..CallBatch::default() };
        let start = Instant::now();
        let mut rows = Vec::new();
        for _ in 0..ROWS {
            let row = Instant::now();
            work.run(&mut comm, &batch)?;
            rows.push(row.elapsed());
            let mut is_over = [u8::from(start.elapsed() > LONGEST)];
            comm.broadcast(&mut is_over, 0)?;
            if is_over == [1] {
                break;
            }
        }
        Ok((comm.explain(collective, bytes), rows))
    }
}

/// Rows of calls, after which calls move their bytes in the fastest way. The median of the last ones counts.
const ROWS: usize = 20;
/// Calls of a row.
const ROW: u64 = 100;
/// No row begins later.
const LONGEST: Duration = Duration::from_secs(1);
/// Bytes past a page boundary at which buffers begin, as a large `Vec` does.
const OFFSET: usize = 16;
