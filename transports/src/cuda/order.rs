//! One order for the work of a rank, on all streams and in graphs.
//!
//! Calls of one rank use the same mailboxes, so they run one after the other, in the order in which the
//! host makes them. On one stream they do so by themselves. Between streams an event carries the order:
//! later work waits for it, and records it anew. A graph waits for it when it runs and records it
//! at its end, so graphs and calls run in the order in which the host starts them, too.

use super::Result;
use super::started::{GroupRank, StartedCalls};
use cudarc::driver::sys::{
    CUevent_flags, CUevent_record_flags, CUevent_wait_flags, CUresult, CUstreamCaptureMode,
    CUstreamCaptureStatus, cuEventRecordWithFlags, cuThreadExchangeStreamCaptureMode,
};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, result};
use maypole_kernels::cuda::{CudaError, capture_of};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::{Duration, Instant};

/// A stream that a call is made on, and the graph that it captures.
#[derive(Clone, Copy, Debug)]
pub struct CallStream<'a> {
    pub(super) stream: &'a Arc<CudaStream>,
    pub(super) graph: Option<u64>,
}

impl<'a> CallStream<'a> {
    /// Queries whether `stream` captures a graph.
    ///
    /// # Errors
    /// [`CudaError`] if the capture has failed already, or if
    /// the driver's query fails.
    pub fn new(stream: &'a Arc<CudaStream>) -> Result<Self> {
        let failed = |error| CudaError::new("asking whether a stream captures a graph", error);
        stream.context().bind_to_thread().map_err(failed)?;
        // SAFETY: the context is current, and the stream is alive, as its owner vouches for.
        let (status, number) = unsafe { capture_of(stream.cu_stream()) }.map_err(failed)?;
        let graph = match status {
            CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE => None,
            CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE => Some(number),
            CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED => {
                let error = DriverError(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
                return Err(failed(error));
            }
        };
        Ok(Self { stream, graph })
    }

    /// The stream.
    pub fn stream(&self) -> &'a Arc<CudaStream> {
        self.stream
    }

    /// True if the stream is being captured.
    pub fn is_captured(&self) -> bool {
        self.graph.is_some()
    }
}

/// The end of a rank's work.
#[derive(Debug)]
struct LastWork {
    /// After the last work of the rank, also that of a graph that has run.
    event: CudaEvent,
    /// A graph has some of the work: it may be launched at any time.
    is_in_graph: AtomicBool,
    started: StartedCalls,
}

impl LastWork {
    fn is_done(&self) -> bool {
        let _beside = BesideCapture::begin();
        // A thread that ends a communicator may have no context yet.
        let context = self.event.context().bind_to_thread();
        !matches!(context.and_then(|()| self.event.try_is_complete()), Ok(false))
    }
}

/// The work of all groups of this process on a GPU.
#[derive(Debug)]
pub struct ContextWork {
    context: usize,
    /// Read while work of a group is started. No thread blocks to write it: that would delay
    /// launches that other ranks wait for.
    starting: RwLock<()>,
    orders: Mutex<Vec<Weak<LastWork>>>,
}

impl ContextWork {
    /// That of a context.
    pub fn of(context: &CudaContext) -> Arc<Self> {
        static ALL: Mutex<Vec<Arc<ContextWork>>> = Mutex::new(Vec::new());
        let context = context.cu_ctx() as usize;
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.iter().find(|work| work.context == context) {
            return Arc::clone(known);
        }
        let (starting, orders) = (RwLock::default(), Mutex::default());
        let made = Arc::new(Self { context, starting, orders });
        all.push(Arc::clone(&made));
        made
    }

    /// Does `work`, which may wait for the kernels of the GPU, if no kernel of a group can be
    /// running; returns `None` otherwise. No kernel of a group starts meanwhile. Does not block
    /// otherwise.
    pub fn while_idle<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        self.while_done(|order| order.is_done() && !order.is_in_graph.load(Ordering::Relaxed), work)
    }

    fn while_done<T>(
        &self,
        is_done: impl Fn(&LastWork) -> bool,
        work: impl FnOnce() -> T,
    ) -> Option<T> {
        let _starting = self.starting.try_write().ok()?;
        self.orders().iter().all(|order| is_done(order)).then(work)
    }

    fn orders(&self) -> Vec<Arc<LastWork>> {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        orders.retain(|order| order.strong_count() > 0);
        orders.iter().filter_map(Weak::upgrade).collect()
    }

    /// True if a kernel that runs waits for a call that this thread has yet to start.
    fn waits_for_this_thread(&self) -> bool {
        let orders = self.orders();
        let ours: Vec<_> = orders.iter().filter(|it| it.started.are_of_this_thread()).collect();
        let waits = |it: &Arc<LastWork>| {
            ours.iter().any(|our| it.started.await_start_of(&our.started)) && !it.is_done()
        };
        orders.iter().any(waits)
    }

    /// Does `work`, which may wait for the kernels of the GPU, when none of a group runs or `is_quick` is
    /// true, because it need not wait any more, but after `limit` at the latest, and at once if a kernel
    /// that runs waits for a later call of this thread. A graph does not count: it may run at any time.
    pub fn when_idle<T>(
        &self,
        limit: Duration,
        is_quick: impl Fn() -> bool,
        work: impl FnOnce() -> T,
    ) -> T {
        let until = Instant::now() + limit;
        let mut work = Some(work);
        let mut attempt =
            || self.while_done(LastWork::is_done, || work.take().expect("it is done once")());
        loop {
            if let Some(done) = attempt() {
                return done;
            }
            if is_quick() || self.waits_for_this_thread() || Instant::now() >= until {
                break;
            }
            std::thread::sleep(IDLE_PAUSE);
        }
        work.take().expect("it was not done")()
    }

    /// While the guard lives, work of groups may be started.
    pub(super) fn started(&self) -> RwLockReadGuard<'_, ()> {
        self.starting.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pause between two checks whether a GPU is idle.
const IDLE_PAUSE: Duration = Duration::from_micros(200);

/// The order of the work of one rank.
#[derive(Debug)]
pub(super) struct WorkOrder {
    /// The rank's own stream, which lives as long as this.
    pub(super) home: Arc<CudaStream>,
    last: Arc<LastWork>,
    context: Arc<ContextWork>,
    /// After the last work in the graph that is captured.
    in_graph: CudaEvent,
    /// The graph that was captured last.
    graph: Option<u64>,
    /// The last work that no graph has is on `home`.
    is_home: bool,
}

impl WorkOrder {
    pub(super) fn new(home: &Arc<CudaStream>, of: GroupRank) -> Result<Self> {
        let _beside = BesideCapture::begin();
        let event = || {
            let made = home.context().new_event(Some(CUevent_flags::CU_EVENT_DISABLE_TIMING));
            made.map_err(CudaError::of("making an event"))
        };
        let (event, in_graph) = (event()?, event()?);
        let (is_in_graph, started) = (AtomicBool::new(false), StartedCalls::new(of));
        let last = Arc::new(LastWork { event, is_in_graph, started });
        let context = ContextWork::of(home.context());
        let mut orders = context.orders.lock().unwrap_or_else(PoisonError::into_inner);
        orders.push(Arc::downgrade(&last));
        drop(orders);
        Ok(Self { home: Arc::clone(home), last, context, in_graph, graph: None, is_home: true })
    }

    /// The context of the rank's GPU.
    pub(super) fn context(&self) -> &Arc<CudaContext> {
        self.home.context()
    }

    /// The work of all groups on the GPU.
    pub(super) fn work(&self) -> Arc<ContextWork> {
        Arc::clone(&self.context)
    }

    /// From now on, graphs with work of the rank do nothing.
    pub(super) fn forget_graphs(&self) {
        self.last.is_in_graph.store(false, Ordering::Relaxed);
    }

    /// The rank starts a call: as [`StartedCalls::add`].
    pub(super) fn count(&self, message: Option<(usize, bool)>) {
        self.last.started.add(message);
    }

    fn is_on_home(&self, on: &CallStream<'_>) -> bool {
        on.stream.cu_stream() == self.home.cu_stream()
    }

    /// Later work on this stream waits for all earlier work of the rank.
    pub(super) fn enter(&mut self, on: &CallStream<'_>) -> Result<()> {
        use CUevent_wait_flags::{CU_EVENT_WAIT_DEFAULT, CU_EVENT_WAIT_EXTERNAL};
        let (event, flags) = match on.graph {
            None if self.is_home && self.graph.is_none() && self.is_on_home(on) => return Ok(()),
            None => (&self.last.event, CU_EVENT_WAIT_DEFAULT),
            Some(_) if on.graph == self.graph => (&self.in_graph, CU_EVENT_WAIT_DEFAULT),
            Some(_) => (&self.last.event, CU_EVENT_WAIT_EXTERNAL),
        };
        // SAFETY: both live, and belong to one context.
        let waits =
            unsafe { result::stream::wait_event(on.stream.cu_stream(), event.cu_event(), flags) };
        waits.map_err(CudaError::of("waiting for an event"))
    }

    /// Later work of the rank waits for the work on this stream.
    pub(super) fn leave(&mut self, on: &CallStream<'_>) -> Result<()> {
        let failed = |error| CudaError::new("recording an event", error);
        if on.graph.is_none() {
            self.is_home = self.is_on_home(on);
            return self.last.event.record(on.stream).map_err(failed);
        }
        self.last.is_in_graph.store(true, Ordering::Relaxed);
        let external = CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL as u32;
        // SAFETY: both live, and belong to one context.
        unsafe {
            cuEventRecordWithFlags(self.last.event.cu_event(), on.stream.cu_stream(), external)
        }
        .result()
        .map_err(failed)?;
        self.graph = on.graph;
        self.in_graph.record(on.stream).map_err(failed)
    }

    /// Waits until all work of the rank is done.
    pub(super) fn drain(&self) -> Result<()> {
        let _beside = BesideCapture::begin();
        self.last.event.synchronize().map_err(CudaError::of("waiting for the work of a GPU"))
    }

    /// True if all work of the rank is done, or has failed.
    pub(super) fn is_drained(&self) -> bool {
        self.last.is_done()
    }
}

/// A guard that lets the thread allocate and copy outside the stream while a stream captures a
/// graph. Without it the driver would end the capture.
#[derive(Debug)]
pub struct BesideCapture {
    before: Option<CUstreamCaptureMode>,
}

impl BesideCapture {
    /// Begins on this thread. If the driver refuses, nothing changes.
    pub fn begin() -> Self {
        let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the pointer is valid; the call changes a setting of this thread.
        let changed = unsafe { cuThreadExchangeStreamCaptureMode(&mut mode) };
        Self { before: (changed == CUresult::CUDA_SUCCESS).then_some(mode) }
    }
}

impl Drop for BesideCapture {
    fn drop(&mut self) {
        if let Some(mut mode) = self.before {
            // SAFETY: as above.
            let _ = unsafe { cuThreadExchangeStreamCaptureMode(&mut mode) };
        }
    }
}

/// The context that was current on this thread is so again when this is dropped.
#[derive(Debug)]
pub struct KeptContext(cudarc::driver::sys::CUcontext);

impl KeptContext {
    /// Records the current context of this thread. `None` without a working driver.
    pub fn note() -> Option<Self> {
        maypole_kernels::cuda::driver().ok()?;
        let current = result::ctx::get_current().ok()?;
        Some(Self(current.unwrap_or(std::ptr::null_mut())))
    }
}

impl Drop for KeptContext {
    fn drop(&mut self) {
        // SAFETY: the context was current on this thread, or none was.
        let _ = unsafe { result::ctx::set_current(self.0) };
    }
}

/// A context of the driver for threads that start work on it for a foreign program.
///
/// # Errors
/// [`maypole_kernels::cuda::Unavailable`]: as [`Driver::context`](maypole_kernels::cuda::Driver::context).
pub fn untracked_context(
    ordinal: usize,
) -> Result<Arc<CudaContext>, maypole_kernels::cuda::Unavailable> {
    let context = maypole_kernels::cuda::driver()?.context(ordinal)?;
    // SAFETY: buffers of this context are ordered by `WorkOrder`, not by events of their own.
    unsafe { context.disable_event_tracking() };
    Ok(context)
}

/// A stream of this process on the GPU of `stream`, for allocations and copies while a graph is
/// captured: nothing on it ever waits for a kernel. There is one for each context, because streams
/// share few hardware queues of the GPU, and waiting work blocks later work of its queue.
///
/// # Errors
/// [`CudaError`] if the driver makes no stream.
pub fn stream_aside(stream: &Arc<CudaStream>) -> Result<Arc<CudaStream>> {
    static STREAMS: Mutex<Vec<Weak<CudaStream>>> = Mutex::new(Vec::new());
    let _beside = BesideCapture::begin();
    let mut streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    let context = stream.context();
    let known = streams.iter().filter_map(Weak::upgrade);
    if let Some(known) = known.into_iter().find(|it| it.context().cu_ctx() == context.cu_ctx()) {
        return Ok(known);
    }
    let made = context.new_stream().map_err(CudaError::of("making a stream"))?;
    streams.retain(|it| it.strong_count() > 0);
    streams.push(Arc::downgrade(&made));
    Ok(made)
}
