//! The communicator: a group of ranks that call collectives together.

pub(crate) mod api;
#[doc = include_str!("faults.md")]
pub mod faults {}
pub(crate) mod join;

pub use crate::control::transport::{Transport, UnknownTransport};
use crate::engine::Engine;
pub use crate::engine::calls::report::{CallPath, Counters, LastCall, ProgramCache};
use crate::engine::conditions::RunConditions;
pub use crate::execute::{Moved, StoreCounts};
use crate::requests::handle::EngineHandle;
pub use crate::requests::request::{Request, wait_all, wait_any};
use crate::schedule::hosts::{Boards, Hosts};
use crate::topology::StreamLinks;
pub use crate::{element, error, status};
pub use api::arguments::buffers::{CallBuffers, IntoBuffers};
pub use api::arguments::operation::{IntoOp, Op, Operation};
pub use api::arguments::owned::{Apart, InPlace, OwnedBuffers};
pub use api::arguments::placement::BufferPlacement;
pub use api::arguments::slices::{AnyElement, AnySlice, AnySliceMut, IntoInput, IntoOutput};
pub use api::failure::abort::AbortHandle;
pub use api::messages::Group;
pub use api::requests::message_handle::MessageHandle;
pub use api::requests::scope::Scope;
pub use api::settings::Within;
pub use join::local::Local;
pub use maypole_transports::registered::{Arena, RegisteredBuffer};
use std::fmt;
use std::time::Duration;
#[doc(hidden)]
pub use {crate::control::links::ThreadLinks, join::local::Deaths};

/// The longest wait for a peer without `MAYPOLE_TIMEOUT`.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// One rank's membership in a group of ranks that call collectives together.
///
/// All ranks of a communicator call the same collectives in the same order; `&mut self` makes that
/// easy to keep within a rank. A call blocks until this rank's part is done; a
/// [request](Self::start) is a call that does not block. If calls do not match, or a peer dies or
/// never calls, every rank gets an error (see [`Error`](error::Error)); no rank hangs. The ranks
/// that still exist after a failure [go on](Self::shrink) with a new communicator.
///
/// A rank whose last call only sends may return before a mismatch of the call is detected. Then
/// [`close`](Self::close) returns that error, or that of a dropped request: call it at the end.
///
/// A communicator may be sent to other threads (`Send`), but only one thread may use it at a time
/// (not `Sync`), because the ranks' calls are matched by their order. Threads that call collectives
/// independently need a communicator each: see [`duplicate`](Self::duplicate) and
/// [`split`](Self::split). Requests may be waited for in any thread.
///
/// The same calls return the same bits on every run, and an all-reduce returns the same bits on all
/// ranks. The tuner chooses in which order floats are combined, unless
/// [`set_deterministic`](Self::set_deterministic) fixes the order.
///
/// Lengths are in elements. Below, `count` is the length of a vector (broadcast, reduce,
/// all-reduce) or of one rank's block (all other collectives). `world` is the number of ranks.
///
/// ```
/// use maypole::{Communicator, ReduceOp};
/// let sums = Communicator::run_local(4, |mut comm| {
///     let mut x = [comm.rank() as f32, 1.0];
///     comm.all_reduce(&mut x, ReduceOp::Sum).unwrap();
///     x
/// });
/// assert_eq!(sums, [[6.0, 4.0]; 4]);
/// ```
pub struct Communicator {
    pub(crate) engine: EngineHandle<Self>,
    /// Where the ranks run, whatever joins them.
    hosts: Hosts,
    /// True if dropping this communicator does not leave the group: this rank has left already, or
    /// another communicator of this rank will leave.
    left: bool,
}

/// Prints rank and world, without waiting for requests.
impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Communicator");
        fields.field("rank", &self.rank()).field("world", &self.world()).finish_non_exhaustive()
    }
}

impl Communicator {
    fn new(engine: Engine, hosts: Hosts) -> Self {
        engine.health.control.departures().open();
        Self { engine: EngineHandle::new(engine), hosts, left: false }
    }

    /// The conditions of this group, but for [`set_costs`](Self::set_costs). Readable while requests are in flight.
    fn conditions(&self) -> &RunConditions {
        &self.engine.messages.conditions
    }

    /// Makes the communicators of `world` ranks that are threads of this process. Each one goes to
    /// a thread of its own. For tests, lessons and trainers that use threads; [`Local`] has
    /// options.
    ///
    /// ```
    /// use maypole::Communicator;
    /// for mut comm in Communicator::local(2) {
    ///     std::thread::spawn(move || comm.barrier().unwrap());
    /// }
    /// ```
    ///
    /// # Panics
    /// If `world` is zero.
    pub fn local(world: usize) -> Vec<Self> {
        Local::new(world).build()
    }

    /// Runs `rank` on `world` threads, each with its communicator. Returns their results, by rank.
    ///
    /// # Panics
    /// If `world` is zero, or with the panic of the rank that panicked first.
    pub fn run_local<T: Send>(world: usize, rank: impl Fn(Self) -> T + Sync) -> Vec<T> {
        Local::new(world).run(rank)
    }

    /// Returns this rank, from 0 to `world - 1`.
    #[doc(alias("MPI_Comm_rank", "ncclCommUserRank", "get_rank"))]
    #[inline]
    pub fn rank(&self) -> usize {
        self.engine.rank
    }

    /// Returns the number of ranks.
    #[doc(alias("ncclCommCount", "get_world_size", "world_size"))]
    #[inline]
    pub fn world(&self) -> usize {
        self.engine.boards.world()
    }

    /// Another name of [`world`](Self::world), MPI's: the number of ranks of this communicator.
    #[doc(alias = "MPI_Comm_size")]
    #[inline]
    pub fn size(&self) -> usize {
        self.world()
    }

    /// Returns the hosts that the ranks run on, whatever transport joins them.
    ///
    /// ```
    /// use maypole::{Communicator, Transport};
    /// // Two threads of this process, which share no memory.
    /// Communicator::run_local(2, |mut comm| {
    ///     let comm = comm.over(Transport::Tcp).unwrap();
    ///     assert_eq!(comm.hosts().numbers(), [0, 0]);
    ///     assert_eq!(comm.boards().numbers(), [0, 1]);
    /// });
    /// ```
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// True if the bytes between ranks that share no board are encrypted and authenticated, as
    /// `MAYPOLE_ENCRYPT=1` or [`JoinConfig::encrypt`](crate::world::bootstrap::JoinConfig) sets.
    /// The control plane always is.
    pub fn is_encrypted(&self) -> bool {
        self.conditions().encrypts
    }

    /// Returns what carries the streams between ranks that share no board, as all ranks have decided
    /// together.
    ///
    /// ```
    /// use maypole::{Communicator, topology::StreamLinks};
    /// Communicator::run_local(2, |comm| assert!(matches!(comm.stream_links(), StreamLinks::Tcp(_))));
    /// ```
    pub fn stream_links(&self) -> &StreamLinks {
        &self.conditions().links
    }

    /// Returns the boards that join the ranks: ranks of one board share memory, and streams join
    /// all others.
    pub fn boards(&self) -> &Boards {
        &self.engine.boards
    }
}
