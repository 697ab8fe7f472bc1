//! Ranks that are threads of one process.

use crate::comm::{Communicator, DEFAULT_TIMEOUT};
use crate::control::links::{MemoryLinks, ThreadLinks, between_threads};
use crate::control::threads::SharedWorld;
use crate::engine::Engine;
use crate::engine::conditions::RunConditions;
use crate::engine::ways::Datapath;
use crate::schedule::hosts::{Boards, Hosts};
use crate::tuner::CostTable;
use maypole_transports::Waiting;
use maypole_transports::cores::UsableCores;
use maypole_transports::lock;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// Makes communicators for threads of this process, with options.
///
/// ```
/// use maypole::{Local, ReduceOp};
/// // Two "hosts" of two ranks: boards within, in-process streams of 1 byte between.
/// let sums = Local::new(4).hosts(&[0, 0, 1, 1]).stream_capacity(1).run(|mut comm| {
///     let mut x = [1u64; 3];
///     comm.all_reduce(&mut x, ReduceOp::Sum).unwrap();
///     x
/// });
/// assert_eq!(sums, [[4; 3]; 4]);
/// ```
#[derive(Clone, Debug)]
pub struct Local {
    hosts: Vec<usize>,
    capacity: usize,
    timeout: Duration,
    costs: CostTable,
    way: Option<Datapath>,
}

impl Local {
    /// Describes `world` ranks that share one board.
    ///
    /// # Panics
    /// If `world` is zero.
    pub fn new(world: usize) -> Self {
        assert!(world > 0, "a world has at least one rank");
        Self {
            hosts: vec![0; world],
            capacity: 64 << 10,
            timeout: DEFAULT_TIMEOUT,
            costs: CostTable::BUILT_IN,
            way: None,
        }
    }

    /// Pretends that ranks with different numbers are on different hosts: streams join them instead
    /// of a board.
    ///
    /// # Panics
    /// If there is not one number for each rank.
    #[must_use]
    pub fn hosts(mut self, hosts: &[usize]) -> Self {
        assert_eq!(hosts.len(), self.hosts.len(), "one host for each rank");
        self.hosts = hosts.to_vec();
        self
    }

    /// Sets the buffer size of a stream between two threads, in bytes in each direction; at least
    /// 1.
    #[must_use]
    pub fn stream_capacity(mut self, bytes: usize) -> Self {
        self.capacity = bytes.max(1);
        self
    }

    /// Sets the timeout of a wait for a peer.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the tuner's costs of messages and bytes, instead of the built-in ones.
    #[must_use]
    pub fn costs(mut self, costs: CostTable) -> Self {
        self.costs = costs;
        self
    }

    /// Forces one way to move the bytes of long calls, as `MAYPOLE_WAY` does for processes.
    ///
    /// # Panics
    /// If there is no way of this name.
    #[doc(hidden)]
    #[must_use]
    pub fn way(mut self, name: &str) -> Self {
        self.way = Some(name.parse().unwrap_or_else(|why| panic!("{why}")));
        self
    }

    /// Makes the communicators, by rank. Each one goes to a thread of its own.
    pub fn build(&self) -> Vec<Communicator> {
        let world = self.hosts.len();
        let shared = SharedWorld::new(Arc::new(MemoryLinks(self.capacity)), (0..world).collect());
        let cores = UsableCores::count([&UsableCores::of_this_thread()]);
        self.communicators(&shared, cores, world.div_ceil(cores))
    }

    /// [`Self::build`] over `links`, for worlds of tests: nothing depends on the cores of this
    /// machine. The second value reports deaths to the world.
    #[doc(hidden)]
    pub fn build_over(&self, links: Arc<dyn ThreadLinks>) -> (Vec<Communicator>, Deaths) {
        let shared = SharedWorld::new(links, (0..self.hosts.len()).collect());
        let deaths = Deaths(Arc::downgrade(&shared));
        (self.communicators(&shared, 0, 1), deaths)
    }

    fn communicators(
        &self,
        shared: &Arc<SharedWorld>,
        cores: usize,
        crowding: usize,
    ) -> Vec<Communicator> {
        let hosts = Hosts::new(&self.hosts);
        let boards = Boards::within(&hosts);
        let world = boards.world();
        let conditions = RunConditions {
            waiting: Waiting::new(world, cores, self.timeout),
            crowding,
            costs: self.costs,
            encrypts: false,
            links: between_threads(),
        };
        let communicator = |rank| {
            let control = shared.control_of(rank);
            let mut engine = Engine::new(rank, boards.clone(), control, conditions.clone());
            engine.settings.way = self.way;
            Communicator::new(engine, hosts.clone())
        };
        (0..world).map(communicator).collect()
    }

    /// Runs `rank` for each communicator, on a thread of its own. Returns the results, by rank.
    ///
    /// # Panics
    /// With the panic of the rank that panicked first. Panics of other ranks may be its consequence.
    pub fn run<T: Send>(&self, rank: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
        let results: Mutex<Vec<(usize, T)>> = Mutex::default();
        run_on_threads(self.build(), &|comm| {
            let at = comm.rank();
            let result = rank(comm);
            lock(&results).push((at, result));
        });
        let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.sort_by_key(|(at, _)| *at);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

/// Runs `rank` for each of `communicators`, on a thread of its own. Takes `rank` by reference, so
/// that programs with many calls of [`Local::run`] contain this code once.
///
/// # Panics
/// With the panic of the rank that panicked first.
fn run_on_threads(communicators: Vec<Communicator>, rank: &(dyn Fn(Communicator) + Sync)) {
    let first_panic = Mutex::new(None);
    std::thread::scope(|scope| {
        for comm in communicators {
            scope.spawn(|| {
                // The panic continues in the caller's thread, so no state that it left incomplete
                // is used.
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| rank(comm))) {
                    lock(&first_panic).get_or_insert(panic);
                }
            });
        }
    });
    if let Some(panic) = lock(&first_panic).take() {
        resume_unwind(panic);
    }
}

/// Reports deaths of ranks to a world of threads.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Deaths(Weak<SharedWorld>);

impl Deaths {
    /// Reports the death of rank `rank` to the world, and how it was detected. Without effect after
    /// the world was dropped.
    pub fn tell(&self, rank: usize, how: &str) {
        if let Some(shared) = self.0.upgrade() {
            shared.died(rank, how);
        }
    }
}
