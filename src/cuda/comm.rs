//! One rank's membership in a group on GPUs, and how it is made.

use super::plan;
use super::rank::DeviceRank;
use super::watch::Watch;
use crate::algorithms::Algorithm;
use crate::comm::Communicator;
use crate::comm::element::DataType;
use crate::comm::engine::calls::call::{CollectiveCall, Reduction};
use crate::comm::engine::calls::counts::CallCount;
use crate::comm::error::{Error, Result};
use crate::schedule::collective::Collective;
use cudarc::driver::sys::CUdevice_attribute;
use cudarc::driver::{CudaContext, CudaStream};
use maypole_transports::cuda::{DeviceError, Offer, PendingBoard};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One rank's membership in a group of ranks whose buffers are in the memory of GPUs.
///
/// All ranks call the same collectives in the same order, each on its own stream. A call returns when
/// its work is on the stream; [`synchronize`](Self::synchronize) waits until it is done, and says what
/// went wrong. After an error every later call fails.
///
/// The first call with new arguments makes a program and copies it to the GPU; the calls after it start
/// a kernel and do nothing else, so they can be captured in a graph.
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
    stream: Arc<CudaStream>,
    inner: Mutex<DeviceRank>,
    /// Ends after the kernels of `inner`.
    _watch: Watch,
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, world, .. } = self;
        write!(f, "Comm {{ rank: {rank}, world: {world}, gpu: {} }}", self.ordinal())
    }
}

/// What a rank tells the others about itself, before mailboxes are made.
struct Introduction {
    uuid: [u8; 16],
    processors: u32,
}

impl Introduction {
    fn to_bytes(&self) -> Vec<u8> {
        [&self.uuid[..], &self.processors.to_le_bytes()].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (uuid, processors) = bytes.split_first_chunk::<16>()?;
        let processors = u32::from_le_bytes(processors.try_into().ok()?);
        Some(Self { uuid: *uuid, processors })
    }

    fn of(context: &CudaContext) -> std::result::Result<Self, String> {
        let said = |error| format!("the driver reports {error:?}");
        let count = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        let processors = context.attribute(count).map_err(said)?.max(1) as u32;
        let uuid = context.uuid().map_err(said)?;
        Ok(Self { uuid: uuid.bytes.map(|byte| byte as u8), processors })
    }
}

impl Comm {
    /// Makes a group of the ranks of `comm` on the GPU of `stream`. Collective: all ranks call it, each
    /// with its own stream. Ranks may share a GPU. `comm` can be used as before.
    ///
    /// # Errors
    /// [`Error::Device`] if a GPU has no memory for the mailboxes, or does not reach those of another
    /// rank; else as every call.
    pub fn new(comm: &mut Communicator, stream: Arc<CudaStream>) -> Result<Self> {
        let mut comm = comm.duplicate()?;
        let failed = |comm: &mut Communicator, why: String| {
            comm.engine.get_mut().fail_on_device("cuda::Comm::new()".to_owned(), why)
        };
        let mine = Introduction::of(stream.context()).map_err(|why| failed(&mut comm, why))?;
        let all = comm.agree_on("cuda::Comm::new()", mine.to_bytes())?;
        let all: Option<Vec<_>> = all.iter().map(|told| Introduction::from_bytes(told)).collect();
        let all = all.ok_or_else(|| failed(&mut comm, "a rank sent no GPU".to_owned()))?;
        let crowd = |one: &Introduction| all.iter().filter(|other| other.uuid == one.uuid).count();
        let crowd = all.iter().map(crowd).max().unwrap_or(1) as u32;
        let processors = all.iter().map(|one| one.processors).min().unwrap_or(1);
        let shapes = plan::shapes(crowd, processors);
        let board = PendingBoard::new(&stream, &shapes, comm.world());
        let board = board.map_err(|error| failed(&mut comm, error.to_string()))?;
        let offers = comm.agree_on("cuda::Comm::new() mailboxes", board.offer().to_bytes())?;
        let offers: Option<Vec<_>> = offers.iter().map(|offer| Offer::from_bytes(offer)).collect();
        let offers = offers.ok_or_else(|| failed(&mut comm, "a rank sent no offer".to_owned()))?;
        let board = board.connect(comm.rank(), &offers);
        let board = board.map_err(|error: DeviceError| failed(&mut comm, error.to_string()))?;
        // No rank starts a kernel before all ranks reach its mailbox.
        comm.agree("cuda::Comm::new() connected")?;
        let alarm = comm.engine.get().health().control().alarm();
        let watch = Watch::start(alarm, Arc::clone(board.words()));
        let watch = watch.map_err(|error| failed(&mut comm, error.to_string()))?;
        let (rank, world) = (comm.rank(), comm.world());
        let inner = Mutex::new(DeviceRank::new(comm, board, Arc::clone(&stream)));
        Ok(Self { rank, world, stream, inner, _watch: watch })
    }

    /// Makes the group of several GPUs, or several ranks of one, of this process: rank `r` is on
    /// `streams[r]`. Each `Comm` goes to a thread of its own, or one thread uses them all between
    /// [`group_start`](super::group_start) and [`group_end`](super::group_end).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Panics
    /// If there are no streams.
    pub fn from_devices(streams: Vec<Arc<CudaStream>>) -> Result<Vec<Self>> {
        let comms = Communicator::local(streams.len());
        let made: Vec<Result<Self>> = std::thread::scope(|threads| {
            let start = |(mut comm, stream): (Communicator, Arc<CudaStream>)| {
                threads.spawn(move || Self::new(&mut comm, stream))
            };
            let started: Vec<_> = comms.into_iter().zip(streams).map(start).collect();
            started.into_iter().map(|rank| rank.join().expect("it does not panic")).collect()
        });
        made.into_iter().collect()
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

    /// Waits until everything that was started on the stream is done.
    ///
    /// # Errors
    /// Why a collective did not end: [`Error`]. Every rank gets an error that names the same cause.
    pub fn synchronize(&self) -> Result<()> {
        self.lock().synchronize()
    }

    /// Looks whether a collective that was started has failed, and does not wait.
    ///
    /// # Errors
    /// As [`synchronize`](Self::synchronize).
    pub fn check(&self) -> Result<()> {
        self.lock().check()
    }

    /// Names the algorithm of the calls that follow; `None` leaves the choice to the tuner. All ranks
    /// must name the same one.
    pub fn set_algorithm(&self, algorithm: Option<Algorithm>) {
        let mut rank = self.lock();
        rank.comm.set_algorithm(algorithm);
        rank.forget_programs();
    }

    /// Says whether the calls that follow are deterministic: see
    /// [`Communicator::set_deterministic`](crate::Communicator::set_deterministic). All ranks must set
    /// the same.
    pub fn set_deterministic(&self, deterministic: bool) {
        self.lock().comm.set_deterministic(deterministic);
    }

    /// Sets how long a kernel may wait for another rank. The default is that of the communicator that
    /// the group was made from.
    pub fn set_timeout(&self, timeout: Duration) {
        self.lock().comm.set_timeout(timeout);
    }

    /// Returns the algorithm of the collective that was started last; `None` before the first one.
    pub fn last_algorithm(&self) -> Option<Algorithm> {
        self.lock().last
    }

    /// Returns the algorithm by which `collective` runs on `count` elements of `kind`. Lengths are as
    /// for [`Communicator::algorithm`](crate::Communicator::algorithm).
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
        let settings = rank.comm.engine.get().settings();
        rank.algorithm(CollectiveCall {
            collective,
            kind,
            op: Reduction::NONE,
            count: CallCount::Even(count),
            deterministic: settings.is_deterministic_for(collective),
            in_place: false,
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, DeviceRank> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn invalid(&self, operation: &'static str, why: String) -> Error {
        Error::Invalid { rank: self.rank, operation, why }
    }
}
