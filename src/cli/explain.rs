//! `maypole explain`: why the tuner chooses an algorithm for a call.

use crate::{names, output, sizes};
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
use maypole::{Communicator, DataType, Transport};
use maypole_transports::cores::UsableCores;
use std::process::ExitCode;

/// Explain which algorithm the tuner chooses for a call, and why: every candidate with its
/// predicted time, and the algorithms that cannot run it.
///
/// Without a launcher, this command predicts for ranks on this host; under one, for its ranks, over
/// their links. `maypole perf` measures the call. Calls are
/// chosen and priced by one of eight lengths in each doubling, which the output names. The costs of
/// messages and bytes are those of `maypole tune`, or those built in.
#[derive(clap::Args)]
pub(crate) struct ExplainArgs {
    #[arg(help = names::collective_help())]
    collective: Collective,

    /// The number of ranks. Under a launcher, the ranks that it started count instead.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 4)]
    ranks: usize,

    #[cfg(feature = "cuda")]
    /// A host of GPUs, or several, whose links count and of which each rank has a GPU: by name, as for
    /// `maypole simulate --cluster`, or @FILE. With --transport cuda.
    #[arg(long, value_name = "NAME", conflicts_with = "ranks")]
    cluster: Option<String>,

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
    /// The memory of GPUs: see --cluster. The output says which prices were measured.
    #[cfg(feature = "cuda")]
    Cuda,
}

pub(crate) fn main(args: ExplainArgs) -> Result<ExitCode> {
    let launched = launch::describe_env()?.launch;
    let alone = launched.launcher == Launcher::Alone;
    let ranks = if alone { args.ranks } else { launched.world };
    #[cfg(feature = "cuda")]
    if matches!(args.transport, TransportArg::Cuda) {
        return args.explain_on_gpus(ranks, launched.rank == 0);
    }
    #[cfg(feature = "cuda")]
    ensure!(args.cluster.is_none(), "--cluster needs --transport cuda");
    let collective = names::rooted(args.collective, args.root, ranks, names::MOST_RANKS)?;
    if alone {
        return show(&args.predict(collective, ranks), true);
    }
    show(&args.of_ranks(collective)?, launched.rank == 0)
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

    /// Explains a call on GPUs, of which each of `ranks` ranks has one unless the options set more.
    #[cfg(feature = "cuda")]
    fn explain_on_gpus(&self, ranks: usize, is_first: bool) -> Result<ExitCode> {
        let gpus = crate::gpus::RankGpus::of(self.cluster.as_deref(), ranks)?;
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

    /// Joins the other ranks, and explains the call over their links.
    fn of_ranks(&self, collective: Collective) -> Result<Explanation> {
        let mut world = Communicator::from_env()?;
        let mut comm = world.over(match self.transport {
            TransportArg::Shm => Transport::Shm,
            TransportArg::Ib => Transport::Ib,
            _ => Transport::Tcp,
        })?;
        comm.set_algorithm(self.algorithm);
        let bytes = self.whole(collective, comm.world());
        Ok(comm.explain(collective, bytes))
    }
}
