//! `maypole explain`: why a call runs as it does.

use crate::{names, sizes, tune};
use anyhow::{Result, ensure};
use clap::ValueEnum;
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::schedule::hosts::{Boards, Hosts};
use maypole::tuner::{CostTable, Explanation, PlanOverride, Question, choose};
use maypole::world::launch::{self, Launcher};
use maypole::{Communicator, DataType, ReduceOp, Transport};
use maypole_transports::cores::UsableCores;
use std::process::ExitCode;

/// Say which algorithm a call would run by, and why: every candidate with its predicted time, and
/// what was refused.
///
/// By itself it predicts for ranks on this host. With --measure, or under a launcher, ranks run the
/// call as well, and the measured time stands beside the prediction. The costs are those of
/// `maypole tune`, or those built in.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// broadcast, reduce, all-reduce, gather, all-gather, scatter, reduce-scatter, all-to-all or
    /// barrier.
    #[arg(value_parser = names::collective)]
    collective: Collective,

    /// How many ranks [under a launcher: those that it started].
    #[arg(short = 'n', long, value_name = "N", default_value_t = 4)]
    ranks: usize,

    /// The root of broadcast, reduce, gather and scatter.
    #[arg(short, long, value_name = "RANK", default_value_t = 0)]
    root: usize,

    /// Bytes of the whole: of the vector, or of all blocks together.
    #[arg(short, long, value_name = "SIZE", default_value = "1M", value_parser = sizes::parse)]
    bytes: usize,

    /// What joins the ranks.
    #[arg(short, long, value_enum, default_value_t = Over::Shm)]
    transport: Over,

    /// The type of the elements, which every block is a whole number of.
    #[arg(short = 'd', long = "type", value_name = "TYPE", default_value = "f32", value_parser = names::kind)]
    kind: DataType,

    /// Ask for this algorithm.
    #[arg(short, long, value_name = "NAME")]
    algorithm: Option<Algorithm>,

    /// Run the call as well.
    #[arg(short, long)]
    measure: bool,
}

/// What joins ranks.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Over {
    /// Shared memory.
    Shm,
    /// TCP.
    Tcp,
}

impl From<Over> for Transport {
    fn from(over: Over) -> Self {
        match over {
            Over::Shm => Self::Shm,
            Over::Tcp => Self::Tcp,
        }
    }
}

pub(crate) fn main(args: Args) -> Result<ExitCode> {
    let launched = launch::from_vars(&|name| std::env::var(name).ok())?.launch;
    let alone = launched.launcher == Launcher::Alone;
    let ranks = if alone { args.ranks } else { launched.world };
    let collective = names::rooted(args.collective, args.root, ranks)?;
    if alone && args.measure {
        return tune::start(ranks);
    }
    let explanation = if alone { args.predict(collective) } else { args.measure(collective)? };
    if launched.rank == 0 {
        print!("{explanation}");
    }
    ensure!(explanation.choice.is_ok(), "there is no such way to do it");
    Ok(ExitCode::SUCCESS)
}

impl Args {
    /// Bytes of the whole, rounded up to what the collective can be called with.
    fn whole(&self, collective: Collective, ranks: usize) -> usize {
        let blocks = if collective.is_blocked() { ranks } else { 1 };
        match collective {
            Collective::Barrier => 0,
            _ => self.bytes.div_ceil(blocks * self.kind.size()) * blocks * self.kind.size(),
        }
    }

    fn predict(&self, collective: Collective) -> Explanation {
        let hosts = Hosts::new(&vec![0; self.ranks]);
        let boards = match self.transport {
            Over::Shm => Boards::within(&hosts),
            Over::Tcp => Boards::separate(self.ranks),
        };
        let crowding = self.ranks.div_ceil(UsableCores::count([&UsableCores::of_this_thread()]));
        let bytes = self.whole(collective, self.ranks);
        let question = Question { collective, boards: &boards, bytes, crowding };
        let wanted = self.algorithm.map(PlanOverride::from);
        Explanation::new(
            &question,
            &hosts,
            wanted,
            choose(&question, wanted, &CostTable::tuned()),
            None,
        )
    }

    /// As one rank of several.
    fn measure(&self, collective: Collective) -> Result<Explanation> {
        let mut world = Communicator::from_env()?;
        let mut comm = world.over(self.transport.into())?;
        comm.set_algorithm(self.algorithm);
        let bytes = self.whole(collective, comm.world());
        let explanation = comm.explain(collective, bytes);
        if explanation.choice.is_err() {
            return Ok(explanation);
        }
        // As many elements of another type take as long, but for combining them.
        let mut work =
            Work::new(collective, bytes / self.kind.size() * self.kind.size(), comm.world());
        for _ in 0..RUNS {
            work.run(&mut comm)?;
        }
        Ok(comm.explain(collective, bytes))
    }
}

/// Calls of which the best one counts.
const RUNS: usize = 100;

/// A collective with its buffers.
pub(crate) struct Work {
    collective: Collective,
    block: Vec<u8>,
    whole: Vec<u8>,
    other: Vec<u8>,
}

impl Work {
    /// Of `bytes` bytes in all.
    pub(crate) fn new(collective: Collective, bytes: usize, world: usize) -> Self {
        let (whole, other) =
            (vec![0; bytes], vec![0; if collective == Collective::AllToAll { bytes } else { 0 }]);
        Self { collective, block: vec![0; bytes / world], whole, other }
    }

    pub(crate) fn run(&mut self, comm: &mut Communicator) -> maypole::Result<()> {
        let Self { collective, block, whole, other } = self;
        let sum = ReduceOp::Sum;
        match *collective {
            Collective::Broadcast { root } => comm.broadcast(whole, root),
            Collective::Reduce { root } => comm.reduce(whole, sum, root),
            Collective::AllReduce => comm.all_reduce(whole, sum),
            Collective::Gather { root } => comm.gather(block, whole, root),
            Collective::AllGather => comm.all_gather(block, whole),
            Collective::Scatter { root } => comm.scatter(whole, block, root),
            Collective::ReduceScatter => comm.reduce_scatter(whole, block, sum),
            Collective::AllToAll => comm.all_to_all(whole, other),
            Collective::Scan => comm.scan(whole, sum),
            Collective::ExclusiveScan => comm.exclusive_scan(whole, sum),
            Collective::Barrier => comm.barrier(),
        }
    }
}
