//! One rank's membership in a group on GPUs, and how it is made.

use super::abort::LocalAbortHandle;
use super::courier::CourierThread;
use super::options::CommOptions;
use super::rank::DeviceRank;
use super::setup;
use super::watch::FailureWatch;
use crate::algorithms::Algorithm;
use crate::comm::Communicator;
use crate::element::DataType;
use crate::engine::calls::call::{CollectiveCall, Reduction};
use crate::engine::calls::counts::CallCount;
use crate::engine::device::DeviceWitness;
use crate::engine::limits::LONGEST;
use crate::error::{Error, Result};
use crate::schedule::collective::Collective;
use crate::topology::DeviceLinks;
use cudarc::driver::{CudaContext, CudaStream};
use maypole_transports::turns::{self, poll_until};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// The time between two checks whether a GPU is done.
const PAUSE: Duration = Duration::from_micros(200);

/// One rank's membership in a group of ranks whose buffers are in the memory of GPUs.
///
/// All ranks call the same collectives in the same order, each on its own stream. A call returns
/// when its work is on the stream; [`synchronize`](Self::synchronize) waits until it is done, and
/// returns its error. After an error every later call fails.
///
/// Ranks of one process may share a GPU, as for tests and lessons; they all have to fit on it,
/// which the mailboxes see to. While some ranks have started a call there and others have not, the program
/// should allocate, free and load nothing on the GPU, and make no graph of a capture: the driver may
/// wait for all kernels of the GPU first, also for those that wait for the calling rank. Groups may
/// be made and left meanwhile.
///
/// The first call with new arguments makes a program and copies it to the GPU; the calls after it
/// start a kernel and do nothing else. Every call can be captured in a graph. Whether a call is captured
/// is part of the call: all ranks capture it, or none does. Calls and graphs of one `Comm` run one after
/// the other, in the order in which the host starts them, on any streams.
///
/// # Graphs
/// A graph may be replayed as long as its buffers live. After the `Comm` was dropped or closed, the
/// calls in it do nothing: they neither wait nor write. Their memory stays allocated until the
/// process ends.
///
/// ```no_run
/// use maypole::cuda::{Comm, driver};
/// use maypole::{Communicator, ReduceOp};
/// // Two ranks, threads of one process, on GPU 0.
/// let sums = Communicator::run_local(2, |mut comm| {
///     let stream = driver().unwrap().context(0).unwrap().new_stream().unwrap();
///     let comm = Comm::new(&mut comm, stream).unwrap();
///     let mut x = comm.stream().clone_htod(&[1.0f32 + comm.rank() as f32; 1000]).unwrap();
///     comm.all_reduce_in_place(&mut x, &ReduceOp::Sum).unwrap();
///     comm.synchronize().unwrap();
///     comm.stream().clone_dtoh(&x).unwrap()[0]
/// });
/// assert_eq!(sums, [3.0, 3.0]);
/// ```
pub struct Comm {
    rank: usize,
    world: usize,
    pub(super) stream: Arc<CudaStream>,
    /// Reports whether the group has failed, without the lock of `inner`, which calls hold.
    witness: DeviceWitness,
    abort: LocalAbortHandle,
    /// Set while a call was running: it counts from the next one on.
    new_timeout: Mutex<Option<Duration>>,
    inner: Mutex<DeviceRank>,
    /// Ends after the kernels of `inner`.
    _watch: FailureWatch,
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, world, .. } = self;
        write!(f, "Comm {{ rank: {rank}, world: {world}, gpu: {} }}", self.ordinal())
    }
}

impl Comm {
    /// Makes a group of the ranks of `comm` on the GPU of `stream`. Collective: all ranks call it,
    /// each with its own stream. Ranks may share a GPU. `comm` can be used as before.
    ///
    /// If some GPU does not reach the memory of another one of its host, or if the ranks are on several
    /// hosts, the ranks' mailboxes are in memory of the hosts ([`host_mailboxes`](Self::host_mailboxes)), and
    /// a thread of each rank carries publications to other hosts. `MAYPOLE_CUDA_MAILBOXES` puts them
    /// there in any case (`host`), or in none (`peer`).
    ///
    /// # Errors
    /// [`Error::Device`] if the ranks are more than 64, if a GPU has no memory or no multiprocessors left for the
    /// group, or if the driver does not register memory of the host where that is needed; else as every call.
    pub fn new(comm: &mut Communicator, stream: Arc<CudaStream>) -> Result<Self> {
        Self::with_options(comm, stream, &CommOptions::default())
    }

    fn with_options(
        comm: &mut Communicator,
        stream: Arc<CudaStream>,
        options: &CommOptions,
    ) -> Result<Self> {
        let mut comm = comm.duplicate()?;
        let connected = setup::connect(&mut comm, &stream, options)?;
        let (number, world) = (comm.rank(), comm.world());
        let witness = || comm.engine.get().device_witness();
        let (witness, watching) = (witness(), witness());
        let words = Arc::clone(connected.board.words());
        let departures = connected.courier.as_ref().map(CourierThread::departures);
        let mut rank = DeviceRank::new(comm, connected, Arc::clone(&stream));
        let patience = Arc::clone(&rank.patience);
        let departures = departures.unwrap_or_default();
        let watch = FailureWatch::start(watching, Arc::clone(&words), patience, departures);
        let _watch = watch.map_err(|error| rank.fail("cuda::Comm::new()", error.to_string()))?;
        let abort = LocalAbortHandle { words, aborted: Arc::clone(&rank.aborted) };
        let (new_timeout, inner) = (Mutex::default(), Mutex::new(rank));
        Ok(Self { rank: number, world, stream, witness, abort, new_timeout, inner, _watch })
    }

    /// Returns how many blocks of a kernel a call has at most. Equal on all ranks.
    pub fn lanes(&self) -> u32 {
        self.lock().connected().lanes
    }

    /// Makes the group of several GPUs, or several ranks of one, of this process: rank `r` is on
    /// `streams[r]`. Each `Comm` goes to a thread of its own.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Panics
    /// If there are no streams.
    pub fn from_devices(streams: Vec<Arc<CudaStream>>) -> Result<Vec<Self>> {
        let comms = Communicator::local(streams.len());
        let made: Vec<Result<Self>> = std::thread::scope(|threads| {
            let start = |(comm, stream): (Communicator, Arc<CudaStream>)| {
                threads.spawn(move || Self::of_world(comm, stream, &CommOptions::default()))
            };
            let started: Vec<_> = comms.into_iter().zip(streams).map(start).collect();
            started.into_iter().map(|rank| rank.join().expect("it does not panic")).collect()
        });
        made.into_iter().collect()
    }

    /// The group of all ranks of a world that has no other user.
    pub(super) fn of_world(
        mut world: Communicator,
        stream: Arc<CudaStream>,
        options: &CommOptions,
    ) -> Result<Self> {
        let comm = Self::with_options(&mut world, stream, options)?;
        comm.lock().world = Some(world);
        Ok(comm)
    }

    /// Returns this rank, from 0 to `world_size() - 1`.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the number of ranks.
    pub fn world_size(&self) -> usize {
        self.world
    }

    /// Returns the stream that the work of this rank is on.
    pub fn stream(&self) -> Arc<CudaStream> {
        Arc::clone(&self.stream)
    }

    /// Returns the context of the stream.
    pub fn context(&self) -> &Arc<CudaContext> {
        self.stream.context()
    }

    /// Returns the number of the GPU in this process.
    pub fn ordinal(&self) -> usize {
        self.stream.context().ordinal()
    }

    /// Waits until everything that was started on the stream of the `Comm` is done.
    ///
    /// # Errors
    /// Why a collective did not end: [`Error`]. Every rank gets an error that names the same cause.
    pub fn synchronize(&self) -> Result<()> {
        // Without the lock: other threads may check meanwhile.
        match self.stream.synchronize() {
            Ok(()) => self.check(),
            failed => self.lock().settle(failed),
        }
    }

    /// Waits until all calls of this rank are done, on all streams. Other threads may
    /// [check](Self::check) and [abort](Self::abort_handle) meanwhile.
    ///
    /// # Errors
    /// As [`synchronize`](Self::synchronize).
    pub fn finalize(&self) -> Result<()> {
        self.finalize_within(Duration::MAX)
    }

    /// [`finalize`](Self::finalize) that waits for at most `limit`.
    ///
    /// # Errors
    /// As [`finalize`](Self::finalize); `None` if the calls are not done.
    pub fn finalize_within(&self, limit: Duration) -> Result<()> {
        let until = turns::now() + limit.min(LONGEST);
        // Another thread may be in a call, which is not done then.
        let is_drained = || self.try_lock().is_some_and(|rank| rank.is_drained()).then_some(());
        let _ = poll_until(until, PAUSE, is_drained);
        self.check()
    }

    /// Checks whether a collective that was started has failed, here or on another rank. Does not
    /// block: neither on the stream, nor on another thread that waits for it.
    ///
    /// # Errors
    /// As [`synchronize`](Self::synchronize).
    pub fn check(&self) -> Result<()> {
        let reports = self.abort.words.report().is_some();
        if reports || self.witness.has_failed() { self.lock().check() } else { Ok(()) }
    }

    /// Returns a handle by which any thread can abort this rank's calls, also while another thread
    /// is in one. Waits for no call.
    pub fn abort_handle(&self) -> LocalAbortHandle {
        self.abort.clone()
    }

    /// Sets the algorithm of later calls; `None` leaves the choice to the tuner. All ranks must
    /// name the same one.
    pub fn set_algorithm(&self, algorithm: Option<Algorithm>) {
        let mut rank = self.lock();
        rank.comm.set_algorithm(algorithm);
        rank.forget_programs();
    }

    /// Returns the GPUs of the ranks and their links, as [`new`](Self::new) found them, equal on
    /// all ranks. Rings follow [their order](DeviceLinks::order); predicted costs follow their
    /// bandwidths. Unknown links count as equally near: NVIDIA's management library reports them,
    /// if the crate's feature `cli` is on.
    pub fn links(&self) -> DeviceLinks {
        self.lock().machine.links.clone()
    }

    /// Replaces the links that [`new`](Self::new) found, for later calls. All ranks must set the
    /// same.
    ///
    /// # Errors
    /// [`Error::Invalid`] if they are not the links of as many ranks.
    pub fn set_links(&self, links: &DeviceLinks) -> Result<()> {
        if links.world() != self.world {
            let why =
                format!("these are the links of {} ranks, not of {}", links.world(), self.world);
            return Err(self.invalid("set_links", why));
        }
        let mut rank = self.lock();
        rank.machine.links = links.clone();
        rank.forget_programs();
        Ok(())
    }

    /// Sets whether later calls are deterministic: see
    /// [`Communicator::set_deterministic`](crate::Communicator::set_deterministic). All ranks must
    /// set the same.
    pub fn set_deterministic(&self, deterministic: bool) {
        self.lock().comm.set_deterministic(deterministic);
    }

    /// Sets the timeout of a kernel that waits for another rank. The default is that of the
    /// communicator that the group was made from. A call in progress on another thread keeps its
    /// timeout.
    pub fn set_timeout(&self, timeout: Duration) {
        *self.new_timeout.lock().unwrap_or_else(PoisonError::into_inner) = Some(timeout);
        // If there is no such call, it counts now.
        drop(self.try_lock());
    }

    /// Returns the algorithm of the collective that was started last; `None` before the first one.
    pub fn last_algorithm(&self) -> Option<Algorithm> {
        self.lock().last
    }

    /// Returns the algorithm by which `collective` runs on `count` elements of `kind`. Lengths are
    /// as for [`Communicator::algorithm`](crate::Communicator::algorithm).
    ///
    /// # Errors
    /// [`Error::Unsupported`] if an algorithm was named that does not implement it.
    pub fn algorithm(
        &self,
        collective: Collective,
        count: usize,
        kind: DataType,
    ) -> Result<Algorithm> {
        let rank = self.lock();
        let settings = &rank.comm.engine.get().settings;
        let operands = (kind, CallCount::Even(count));
        let call = CollectiveCall::new(settings, collective, operands, Reduction::NONE, false);
        Ok(rank.comm.engine.get().plan_on_device(call, &rank.machine)?.0.algorithm)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, DeviceRank> {
        self.up_to_date(self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// `None` while another thread is in a call.
    fn try_lock(&self) -> Option<MutexGuard<'_, DeviceRank>> {
        match self.inner.try_lock() {
            Ok(rank) => Some(self.up_to_date(rank)),
            Err(TryLockError::Poisoned(rank)) => Some(self.up_to_date(rank.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn up_to_date<'a>(&self, mut rank: MutexGuard<'a, DeviceRank>) -> MutexGuard<'a, DeviceRank> {
        let new = self.new_timeout.lock().unwrap_or_else(PoisonError::into_inner).take();
        new.into_iter().for_each(|timeout| rank.comm.set_timeout(timeout));
        rank
    }

    pub(super) fn into_rank(self) -> DeviceRank {
        self.inner.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn invalid(&self, operation: &'static str, why: String) -> Error {
        Error::Invalid { rank: self.rank, operation, why }
    }
}
