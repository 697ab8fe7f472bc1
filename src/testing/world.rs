//! The settings of a simulated world, and its run.

use crate::network::{
    NetworkConditions, SimulatedFault, SimulatedNetwork, SimulatedThread, WorldObserver,
};
use crate::run::{RankOutcome, SimulatedRun};
use crate::watchdog::watch;
use maypole::comm::{Deaths, ThreadLinks};
use maypole::tuner::CostTable;
use maypole::{Communicator, Local};
use maypole_transports::AnyStream;
use maypole_transports::turns::AddedThread;
use std::any::Any;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::scope;
use std::time::Duration;

/// Turns after which a run counts as a hang. A small run takes some thousands.
const MOST_TURNS: u64 = 50_000_000;

/// A world of ranks that are threads of this process, take turns, and are joined by links that a
/// seed rules: see the [module](super).
///
/// ```
/// use maypole::ReduceOp;
/// use maypole_testing::SimulatedWorld;
///
/// let world = SimulatedWorld::new(42).ranks(4);
/// let run = world.run(|mut comm| {
///     let mut x = [comm.rank() as u64, 1];
///     comm.all_reduce(&mut x, ReduceOp::Sum).unwrap();
///     x
/// });
/// let again = world.run(|mut comm| {
///     let mut x = [comm.rank() as u64, 1];
///     comm.all_reduce(&mut x, ReduceOp::Sum).unwrap();
///     x
/// });
/// assert_eq!(run, again, "turn by turn");
/// assert_eq!(run.into_values(), [[6, 4]; 4]);
/// ```
#[derive(Clone, Debug)]
pub struct SimulatedWorld {
    timeout: Option<Duration>,
    costs: CostTable,
    network: NetworkConditions,
}

impl SimulatedWorld {
    /// Describes a world of two ranks on two hosts, whose links hold 4096 bytes and deliver them
    /// within 200 us. Nothing goes wrong in it.
    pub fn new(seed: u64) -> Self {
        let network = NetworkConditions {
            seed,
            hosts: vec![0, 1],
            capacity: 4096,
            longest_delay: Duration::from_micros(200),
            faults: Vec::new(),
            most_turns: MOST_TURNS,
        };
        Self { timeout: None, costs: CostTable::BUILT_IN, network }
    }

    /// Sets the number of ranks. Each is on a host of its own.
    ///
    /// # Panics
    /// If it is zero.
    #[must_use]
    pub fn ranks(self, world: usize) -> Self {
        assert!(world > 0, "a world has at least one rank");
        self.hosts(&(0..world).collect::<Vec<_>>())
    }

    /// Sets the host of each rank, and so the number of ranks. Ranks of one host share a board,
    /// links join the others.
    ///
    /// A board delays nothing and splits nothing, but a rank can be dropped there, too.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub fn hosts(mut self, hosts: &[usize]) -> Self {
        assert!(!hosts.is_empty(), "a world has at least one rank");
        self.network.hosts = hosts.to_vec();
        self
    }

    /// Sets how many bytes a link holds in each direction; at least 1.
    #[must_use]
    pub fn link_capacity(mut self, bytes: usize) -> Self {
        self.network.capacity = bytes.max(1);
        self
    }

    /// Sets the longest time, by the simulated clock, that bytes travel on a link. About half of
    /// all bytes travel no time at all.
    #[must_use]
    pub fn longest_delay(mut self, delay: Duration) -> Self {
        self.network.longest_delay = delay;
        self
    }

    /// Sets the timeout of a wait for a peer, by the simulated clock.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the costs of messages and bytes by which the tuner chooses, instead of the built-in
    /// ones.
    #[must_use]
    pub fn costs(mut self, costs: CostTable) -> Self {
        self.costs = costs;
        self
    }

    /// Sets after how many turns a run counts as a hang: 50 million by default.
    #[must_use]
    pub fn most_turns(mut self, turns: u64) -> Self {
        self.network.most_turns = turns;
        self
    }

    /// Drops `rank` at a moment that the seed chooses: early and late moments alike, up to 2048
    /// steps of the rank. If the rank takes fewer steps, it is not dropped.
    ///
    /// The rank ends as if its process were killed. Bytes that it had sent are cut off somewhere.
    /// The other ranks learn of its death a little later, each by its links or by the control
    /// plane.
    #[must_use]
    pub fn drop_peer(self, rank: usize) -> Self {
        self.fault(SimulatedFault::Drop { rank, step: None })
    }

    /// Drops `rank` after so many of its steps. A step is a use of a link, or a turn of a wait.
    #[must_use]
    pub fn drop_peer_at(self, rank: usize, step: u64) -> Self {
        self.fault(SimulatedFault::Drop { rank, step: Some(step) })
    }

    /// Flips some bits of one byte of a message's head. The seed chooses the byte. If the ranks
    /// send fewer bytes, nothing is corrupted.
    #[must_use]
    pub fn corrupt_head(self) -> Self {
        self.fault(SimulatedFault::CorruptHead)
    }

    /// Flips some bits of one byte of a message's body. The seed chooses the byte. If the ranks
    /// send fewer bytes, nothing is corrupted.
    #[must_use]
    pub fn corrupt_body(self) -> Self {
        self.fault(SimulatedFault::CorruptBody)
    }

    fn fault(mut self, fault: SimulatedFault) -> Self {
        self.network.faults.push(fault);
        self
    }

    /// Runs `rank` for each communicator, on a thread of its own that takes turns with the others.
    ///
    /// # Panics
    /// With the first panic of a rank, after printing the seed. If all ranks are blocked, with the
    /// picture of the waits. If a rank to be dropped is not one of the world.
    pub fn run<T: Send>(&self, rank: impl Fn(Communicator) -> T + Sync) -> SimulatedRun<T> {
        let seed = self.network.seed;
        let network = SimulatedNetwork::new(self.network.clone());
        let links = Arc::new(SimulatedLinks(Arc::clone(&network)));
        let (communicators, deaths) = self.ranks_of_threads().build_over(links);
        network.observe(DeathNotice { seed, deaths });
        let threads = communicators.into_iter().enumerate();
        let threads: Vec<_> =
            threads.map(|(rank, comm)| (network.add_thread(rank), comm)).collect();
        let ends = scope(|scope| {
            let (running, over) = channel();
            let watched = &network;
            scope.spawn(move || watch(watched, seed, &over));
            let run = |(thread, comm)| {
                let rank = &rank;
                scope.spawn(move || run_rank(thread, comm, rank))
            };
            let threads: Vec<_> = threads.into_iter().map(run).collect();
            network.start();
            let ends: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            drop(running);
            ends
        });
        self.end(&network, ends.into_iter().map(|end| end.and_then(|end| end)).collect())
    }

    fn ranks_of_threads(&self) -> Local {
        let hosts = &self.network.hosts;
        let local = Local::new(hosts.len()).hosts(hosts).costs(self.costs);
        self.timeout.into_iter().fold(local, Local::timeout)
    }

    /// Makes the result of a run from the results of its ranks' threads.
    fn end<T>(&self, network: &SimulatedNetwork, ends: Vec<RankEnd<T>>) -> SimulatedRun<T> {
        let report = network.report();
        if let Some(picture) = report.hang {
            panic!("{picture}");
        }
        let outcome = |(rank, end)| match end {
            Ok(value) => RankOutcome::Returned(value),
            Err(_) if report.dropped.contains(&rank) => RankOutcome::Dropped,
            Err(panic) => {
                let seed = self.network.seed;
                let text = format!("rank {rank} panicked in the simulated world of seed {seed}");
                let _ = writeln!(io::stderr(), "maypole: {text}");
                resume_unwind(panic)
            }
        };
        SimulatedRun {
            seed: self.network.seed,
            outcomes: ends.into_iter().enumerate().map(outcome).collect(),
            turns: report.turns,
            trace: report.trace,
            elapsed: report.elapsed,
            corrupted: report.corrupted,
        }
    }
}

/// A rank's result, or its panic.
type RankEnd<T> = Result<T, Box<dyn Any + Send>>;

/// Runs one rank, and drops all that it has within its turns.
fn run_rank<T>(
    thread: SimulatedThread,
    comm: Communicator,
    rank: &impl Fn(Communicator) -> T,
) -> RankEnd<T> {
    catch_unwind(AssertUnwindSafe(move || {
        let _turn = Box::new(thread).enter();
        rank(comm)
    }))
}

/// Reports a death to the control plane.
struct DeathNotice {
    seed: u64,
    deaths: Deaths,
}

impl WorldObserver for DeathNotice {
    fn died(&self, rank: usize) {
        self.deaths.tell(rank, &format!("the simulation of seed {} dropped it", self.seed));
    }
}

/// The links of a simulated network, between the ranks of its world.
#[derive(Debug)]
struct SimulatedLinks(Arc<SimulatedNetwork>);

impl ThreadLinks for SimulatedLinks {
    fn pair(&self, near: usize, far: usize) -> (AnyStream, AnyStream) {
        let (here, there) = self.0.link(near, far);
        (AnyStream::Test(Box::new(here)), AnyStream::Test(Box::new(there)))
    }
}
