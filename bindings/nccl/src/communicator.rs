//! Communicators, and the table of their handles.
//!
//! A handle is a number that is used once, not an address. So a destroyed or invalid handle is
//! detected and never dereferenced. The lock of the table is held for one look-up only.

use crate::abi::{Settings, ncclComm_t};
use crate::core::{self, Comm, CommOptions, Id, LocalAbortHandle};
use crate::error::{Failure, Progress};
use crate::leaving::{Manner, leave};
use crate::operations::Operations;
use crate::real::RealMember;
use crate::variables;
use cudarc::driver::CudaContext;
use std::collections::BTreeMap;
use std::ffi::c_char;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, RwLock};

/// One rank's membership in a group of ranks. A handle maps to it.
pub(crate) struct Communicator {
    /// The number in the trace and in the handle.
    pub(crate) number: u64,
    start: Start,
    /// The counts of groups made of this one by splits and by shrinks. Each has its own name.
    pub(crate) splits: AtomicU32,
    pub(crate) shrinks: AtomicU32,
    pub(crate) operations: Mutex<Operations>,
    stage: Mutex<Stage>,
    /// The tasks of threads that run calls of this communicator.
    tasks: Mutex<Vec<Arc<Task>>>,
    /// The stream of the latest call. The per-thread default stream has a value of its own per thread.
    latest_stream: AtomicUsize,
    /// Whether other ranks of the group are in this process and on this GPU; cached at first use.
    is_shared: OnceLock<bool>,
    /// Whether the failure of its calls has been logged.
    told: AtomicBool,
    /// The first failure of its calls that was returned. Later reads return the same.
    failure: OnceLock<Failure>,
}

/// The parameters of a new communicator.
pub(crate) struct Start {
    pub(crate) rank: usize,
    pub(crate) world: usize,
    pub(crate) context: Arc<CudaContext>,
    pub(crate) settings: Settings,
    /// The name of the group, with its rendezvous address.
    pub(crate) id: Id,
    pub(crate) spot: Spot,
}

/// A GPU on which this process has a rank of a group. It is registered before the handshake of the
/// ranks, so after it all are registered.
pub(crate) struct Spot((Vec<c_char>, usize));

/// The number of ranks of this process on each GPU of a group.
static SPOTS: Mutex<BTreeMap<(Vec<c_char>, usize), usize>> = Mutex::new(BTreeMap::new());

impl Spot {
    pub(crate) fn new(id: &Id, ordinal: usize) -> Self {
        let spot = (id.internal().to_vec(), ordinal);
        *lock(&SPOTS).entry(spot.clone()).or_default() += 1;
        Self(spot)
    }

    fn is_shared(&self) -> bool {
        lock(&SPOTS).get(&self.0).is_some_and(|ranks| *ranks > 1)
    }
}

impl Drop for Spot {
    fn drop(&mut self) {
        let mut spots = lock(&SPOTS);
        match spots.get_mut(&self.0) {
            Some(ranks) if *ranks > 1 => *ranks -= 1,
            _ => drop(spots.remove(&self.0)),
        }
    }
}

impl std::ops::Deref for Communicator {
    type Target = Start;

    fn deref(&self) -> &Start {
        &self.start
    }
}

/// The state of a communicator.
enum Stage {
    /// Its ranks connect.
    Joining,
    Ready(Member),
    /// [`ncclCommRevoke`](crate::ncclCommRevoke) has aborted its calls.
    Revoked(Member),
    /// [`ncclCommFinalize`](crate::ncclCommFinalize) was called.
    Finalized(Member),
    /// Its calls are forwarded to NVIDIA's library.
    Real(RealMember),
    /// It could not be made.
    Failed(Failure),
    /// Its handle is invalid.
    Gone,
}

/// A communicator of connected ranks.
pub(crate) enum Made {
    Maypole(Box<Comm>),
    Real(RealMember),
}

impl Made {
    /// This rank and the world size.
    pub(crate) fn place(&self) -> Result<(usize, usize), Failure> {
        match self {
            Self::Maypole(comm) => Ok((comm.rank(), comm.world_size())),
            Self::Real(real) => real.place(),
        }
    }

    fn stage(self) -> Stage {
        match self {
            Self::Maypole(comm) => Stage::Ready(Member::new(*comm)),
            Self::Real(real) => Stage::Real(real),
        }
    }
}

/// The library that runs the calls.
pub(crate) enum Engine {
    Maypole(Arc<Comm>),
    Real(RealMember),
}

/// The library's communicator. Its abort handle is made before its first call, because making one
/// waits for a call in progress on another thread.
#[derive(Clone)]
struct Member {
    comm: Arc<Comm>,
    abort: LocalAbortHandle,
}

impl Member {
    fn new(comm: Comm) -> Self {
        let abort = comm.abort_handle();
        Self { comm: Arc::new(comm), abort }
    }
}

/// The value of [`Communicator::latest_stream`] before the first call.
const NO_STREAM: usize = usize::MAX;

/// The table of handles, by number.
static LIVE: RwLock<BTreeMap<u64, Arc<Communicator>>> = RwLock::new(BTreeMap::new());

/// The value of handle 0. It is no mapped address, so a dereference of a handle faults.
const FIRST_HANDLE: u64 = 0x4000_0000_0000_0000;
/// The difference of two consecutive handles.
const STEP: u64 = 16;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The number of the handle. `None` if it is not a handle.
fn number_of(handle: ncclComm_t) -> Option<u64> {
    let offset = (handle.addr() as u64).checked_sub(FIRST_HANDLE)?;
    (offset % STEP == 0).then_some(offset / STEP)
}

pub(crate) fn find(handle: ncclComm_t) -> Result<Arc<Communicator>, Failure> {
    if handle.is_null() {
        return Err(Failure::argument("the communicator is NULL"));
    }
    let live = LIVE.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    let found = number_of(handle).and_then(|number| live.get(&number).cloned());
    found.ok_or_else(|| {
        Failure::argument("the communicator was destroyed or aborted, or never was one")
    })
}

/// Removes the communicator of a handle from the table. This invalidates the handle.
pub(crate) fn remove(handle: ncclComm_t) -> Result<Arc<Communicator>, Failure> {
    let communicator = find(handle)?;
    let mut live = LIVE.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    // Another thread may have removed it after the look-up.
    match live.remove(&communicator.number) {
        Some(communicator) => Ok(communicator),
        None => Err(Failure::argument("the communicator was destroyed by another thread")),
    }
}

impl Communicator {
    /// Adds a communicator to the table whose ranks are not connected yet.
    pub(crate) fn joining(start: Start) -> Arc<Self> {
        Self::enter(start, Stage::Joining)
    }

    /// Adds a connected communicator to the table.
    pub(crate) fn ready(start: Start, made: Made) -> Arc<Self> {
        Self::enter(start, made.stage())
    }

    fn enter(start: Start, stage: Stage) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let communicator = Arc::new(Self {
            number: NEXT.fetch_add(1, Relaxed),
            is_shared: OnceLock::new(),
            start,
            splits: AtomicU32::new(0),
            shrinks: AtomicU32::new(0),
            operations: Mutex::default(),
            stage: Mutex::new(stage),
            tasks: Mutex::default(),
            latest_stream: AtomicUsize::new(NO_STREAM),
            told: AtomicBool::new(false),
            failure: OnceLock::new(),
        });
        let mut live = LIVE.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        live.insert(communicator.number, communicator.clone());
        communicator
    }

    pub(crate) fn handle(&self) -> ncclComm_t {
        let value = FIRST_HANDLE + self.number * STEP;
        std::ptr::without_provenance_mut(value as usize)
    }

    /// The name of the group: unique, and equal on all of its ranks.
    pub(crate) fn id(&self) -> &Id {
        &self.start.id
    }

    fn shares_spot(&self) -> bool {
        self.start.spot.is_shared()
    }

    /// The options of the library for a communicator with these settings.
    pub(crate) fn options(settings: &Settings) -> Result<CommOptions, Failure> {
        let mut options = CommOptions::default();
        // `CommOptions` is non-exhaustive, so it has no literal here.
        [options.most_lanes, options.least_lanes] = variables::lanes(settings);
        options.timeout = Some(variables::timeout()?);
        options.join_timeout = Some(variables::join_timeout()?);
        options.host = variables::host_name();
        options.farthest_peers = variables::farthest_peers();
        Ok(options)
    }

    /// The name of the communicator in logs.
    pub(crate) fn name(&self) -> &str {
        self.settings.name.as_deref().unwrap_or("unnamed")
    }

    /// Completes a join. If the handle was aborted meanwhile, `made` is dropped.
    pub(crate) fn joined(&self, made: Result<Made, Failure>) -> Result<(), Failure> {
        let mut stage = lock(&self.stage);
        if !matches!(*stage, Stage::Joining) {
            drop(stage);
            return Err(Failure::remote("the communicator was aborted while it was made"));
        }
        match made {
            Ok(made) => {
                *stage = made.stage();
                Ok(())
            }
            Err(failure) => {
                *stage = Stage::Failed(failure.clone());
                Err(failure)
            }
        }
    }

    /// The library's communicator, for calls.
    pub(crate) fn comm(&self) -> Result<Arc<Comm>, Failure> {
        match self.engine()? {
            Engine::Maypole(comm) => Ok(comm),
            Engine::Real(_) => Err(Failure::internal("a call of NVIDIA's library came here")),
        }
    }

    /// NVIDIA's communicator, if it is one.
    pub(crate) fn real(&self) -> Option<RealMember> {
        match &*lock(&self.stage) {
            Stage::Real(real) => Some(*real),
            _ => None,
        }
    }

    /// The library that runs the calls.
    pub(crate) fn engine(&self) -> Result<Engine, Failure> {
        match &*lock(&self.stage) {
            Stage::Ready(member) => Ok(Engine::Maypole(member.comm.clone())),
            Stage::Real(real) => Ok(Engine::Real(*real)),
            Stage::Joining => Err(Failure::argument(
                "the communicator is still being made: wait until ncclCommGetAsyncError says \
                 ncclSuccess",
            )),
            Stage::Revoked(_) => Err(Failure::usage(
                "the communicator was revoked: make another one by ncclCommShrink, or destroy it",
            )),
            Stage::Finalized(_) => {
                Err(Failure::usage("the communicator was finalized: it can only be destroyed"))
            }
            Stage::Failed(failure) => Err(failure.clone()),
            Stage::Gone => Err(Failure::remote("the communicator was aborted")),
        }
    }

    /// The result of [`ncclCommGetAsyncError`](crate::ncclCommGetAsyncError). Does not block.
    pub(crate) fn state(&self) -> Result<Progress, Failure> {
        let comm = match &*lock(&self.stage) {
            Stage::Joining => return Ok(Progress::Running),
            // Aborted calls of a revoked communicator are no failure.
            Stage::Revoked(_) => return Ok(self.progress()),
            Stage::Failed(failure) => return Err(failure.clone()),
            Stage::Gone => return Err(Failure::remote("the communicator was aborted")),
            Stage::Real(real) => {
                let state = real.state()?;
                return Ok(if state == Progress::Done { self.progress() } else { state });
            }
            Stage::Ready(member) | Stage::Finalized(member) => member.comm.clone(),
        };
        if let Some(failure) = self.failure.get() {
            return Err(failure.clone());
        }
        if let Err(error) = comm.check() {
            return Err(self.failure.get_or_init(|| error.into()).clone());
        }
        let mut tasks = lock(&self.tasks);
        let failed = tasks.iter().find_map(|task| task.failure());
        tasks.retain(|task| !task.is_over() || task.failure().is_some());
        match failed {
            Some(failure) => Err(failure),
            None if tasks.is_empty() => Ok(Progress::Done),
            None => Ok(Progress::Running),
        }
    }

    fn progress(&self) -> Progress {
        match lock(&self.tasks).iter().all(|task| task.is_over()) {
            true => Progress::Done,
            false => Progress::Running,
        }
    }

    /// Registers a thread's task, so that an abort ends it.
    pub(crate) fn follow(&self, task: &Arc<Task>) {
        lock(&self.tasks).push(task.clone());
    }

    /// Removes a task whose caller has taken its result.
    pub(crate) fn forget(&self, task: &Arc<Task>) {
        lock(&self.tasks).retain(|known| !Arc::ptr_eq(known, task));
    }

    /// Aborts all calls of this rank immediately, and those that wait for its threads.
    fn cut(&self, abort: Option<&LocalAbortHandle>, why: &str) {
        if let Some(abort) = abort {
            abort.abort();
        }
        for task in lock(&self.tasks).drain(..) {
            task.end(Err(Failure::remote(why)));
        }
    }

    /// Aborts all calls of this rank and leaves the group. The handle must have been removed from the table.
    pub(crate) fn abort(&self) -> Result<(), Failure> {
        let stage = std::mem::replace(&mut *lock(&self.stage), Stage::Gone);
        if let Stage::Real(real) = stage {
            let aborted = real.abort();
            self.cut(None, "the communicator was aborted");
            return aborted;
        }
        let member = stage.into_member();
        self.cut(member.as_ref().map(|it| &it.abort), "the communicator was aborted");
        // The abort handle holds resources, which are freed with the communicator.
        if let Some(Member { comm, abort }) = member {
            drop(abort);
            leave(comm, Manner::Aborted);
        }
        Ok(())
    }

    /// Leaves the group after this rank's calls. The handle must have been removed from the table.
    pub(crate) fn destroy(&self) -> Result<(), Failure> {
        let stage = std::mem::replace(&mut *lock(&self.stage), Stage::Gone);
        if matches!(stage, Stage::Joining) {
            self.cut(None, "the communicator was destroyed");
            return Err(Failure::argument("the communicator was destroyed while it was made"));
        }
        if let Stage::Real(real) = stage {
            return real.destroy();
        }
        let manner =
            if matches!(stage, Stage::Revoked(_)) { Manner::Aborted } else { Manner::InOrder };
        if let Some(Member { comm, abort }) = stage.into_member() {
            drop(abort);
            leave(comm, manner);
            // After an abort a kernel may still read a factor, so the factors are not freed.
            if manner == Manner::InOrder {
                for address in lock(&self.operations).take_from_gpu() {
                    // SAFETY: allocated for this communicator, whose calls have completed.
                    unsafe { core::free(&self.context, address) }?;
                }
            }
        }
        self.cut(None, "the communicator was destroyed");
        Ok(())
    }

    /// Aborts all calls of this rank; the handle stays valid.
    pub(crate) fn revoke(&self) -> Result<(), Failure> {
        let mut stage = lock(&self.stage);
        if let Stage::Real(real) = &*stage {
            return real.revoke();
        }
        let member = match std::mem::replace(&mut *stage, Stage::Gone) {
            Stage::Ready(member) | Stage::Revoked(member) => member,
            other => {
                *stage = other;
                let text = "only a communicator that is in use can be revoked";
                return Err(Failure::usage(text));
            }
        };
        let abort = member.abort.clone();
        *stage = Stage::Revoked(member);
        drop(stage);
        self.cut(Some(&abort), "the communicator was revoked");
        Ok(())
    }

    /// The library's communicator. From now on it can only be destroyed.
    pub(crate) fn start_finalize(&self) -> Result<Engine, Failure> {
        let mut stage = lock(&self.stage);
        let member = match &*stage {
            Stage::Real(real) => return Ok(Engine::Real(*real)),
            Stage::Ready(member) => member.clone(),
            Stage::Finalized(_) => {
                return Err(Failure::argument("the communicator was finalized already"));
            }
            Stage::Revoked(_) => {
                return Err(Failure::usage("a revoked communicator cannot be finalized"));
            }
            Stage::Joining => {
                return Err(Failure::argument("the communicator is still being made"));
            }
            Stage::Failed(failure) => return Err(failure.clone()),
            Stage::Gone => return Err(Failure::remote("the communicator was aborted")),
        };
        let comm = member.comm.clone();
        *stage = Stage::Finalized(member);
        Ok(Engine::Maypole(comm))
    }

    /// Checks that a new communicator can be made of these ranks. The calls of this one may have failed.
    pub(crate) fn check_ranks_known(&self) -> Result<(), Failure> {
        match &*lock(&self.stage) {
            Stage::Ready(_) | Stage::Revoked(_) | Stage::Real(_) => Ok(()),
            Stage::Finalized(_) => Err(Failure::usage("the communicator was finalized")),
            Stage::Joining => Err(Failure::argument("the communicator is still being made")),
            Stage::Failed(failure) => Err(failure.clone()),
            Stage::Gone => Err(Failure::remote("the communicator was aborted")),
        }
    }

    /// True at the first call: the failure is to be logged.
    pub(crate) fn tells_first(&self) -> bool {
        !self.told.swap(true, Relaxed)
    }

    /// Refuses a stream on which ranks that are threads of this process, on one GPU, would deadlock: work
    /// of one stream runs in order, and the default stream waits for the others.
    pub(crate) fn check_stream(&self, stream: usize) -> Result<(), Failure> {
        // All ranks are connected, so the value does not change.
        if !self.is_shared.get_or_init(|| self.shares_spot()) {
            return Ok(());
        }
        let gpu = self.context.ordinal();
        let why = |what: &str| {
            Failure::usage(format!(
                "rank {} of communicator {} shares GPU {gpu} with a rank of the same process, and \
                 {what}: give each rank a stream of its own, made with cudaStreamNonBlocking",
                self.rank,
                self.name()
            ))
        };
        if stream < 2 {
            return Err(why("their calls would wait for each other on the default stream"));
        }
        // The per-thread default stream differs between threads.
        let own = match stream {
            2 => usize::MAX - 1 - rustix::thread::gettid().as_raw_nonzero().get() as usize,
            stream => stream,
        };
        self.latest_stream.store(own, Relaxed);
        let live = LIVE.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        let waits = |other: &Arc<Self>| {
            other.rank != self.rank
                && other.latest_stream.load(Relaxed) == own
                && other.id().internal() == self.id().internal()
        };
        match live.values().any(waits) {
            false => Ok(()),
            true => Err(why("both use the same stream, on which one call waits for the other")),
        }
    }
}

impl Stage {
    fn into_member(self) -> Option<Member> {
        match self {
            Self::Ready(member) | Self::Revoked(member) | Self::Finalized(member) => Some(member),
            Self::Joining | Self::Real(_) | Self::Failed(_) | Self::Gone => None,
        }
    }
}

/// The task of a thread for a call that may wait for other ranks. The caller waits for its result:
/// that of the thread or that of an abort, whichever is first.
#[derive(Default)]
pub(crate) struct Task {
    end: Mutex<Option<Result<(), Failure>>>,
    over: Condvar,
}

impl Task {
    /// Ends the task with this result, unless it has ended already.
    pub(crate) fn end(&self, result: Result<(), Failure>) {
        self.end_with(|| result);
    }

    /// Ends the task with the result of `last`. If the task has ended already, `last` does not run.
    /// `last` runs before the caller returns, so it may write to the caller's memory.
    pub(crate) fn end_with(&self, last: impl FnOnce() -> Result<(), Failure>) {
        let mut end = lock(&self.end);
        if end.is_none() {
            *end = Some(last());
            self.over.notify_all();
        } else {
            // Dropping the captures of `last` may take time, so the lock is released first.
            drop(end);
            drop(last);
        }
    }

    pub(crate) fn wait(&self) -> Result<(), Failure> {
        let mut end = lock(&self.end);
        loop {
            match &*end {
                Some(result) => return result.clone(),
                None => end = self.over.wait(end).unwrap_or_else(|poisoned| poisoned.into_inner()),
            }
        }
    }

    fn is_over(&self) -> bool {
        lock(&self.end).is_some()
    }

    fn failure(&self) -> Option<Failure> {
        lock(&self.end).as_ref().and_then(|end| end.as_ref().err().cloned())
    }
}
