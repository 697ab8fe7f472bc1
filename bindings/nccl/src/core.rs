//! The imported parts of CUDA and of the library.

use crate::error::Failure;
use cudarc::driver::{CudaContext, CudaStream, DriverError, result, sys};
use maypole::cuda::{Driver, KeptContext, untracked_context};
use maypole_kernels::cuda::CudaError;
use maypole_transports::cuda::BesideCapture;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

pub(crate) use maypole::cuda::{
    Comm, CommOptions, Id, Lent, LocalAbortHandle, RawCall, RawMessage, RawOp, StartableCall,
};

/// True once the driver has been loaded. Before that, no function of the driver may be called.
static FOUND: AtomicBool = AtomicBool::new(false);

/// The driver of the GPUs. The first call that needs it loads it.
fn driver() -> Result<Driver, Failure> {
    let driver = maypole::cuda::driver().map_err(|why| Failure::cuda(why.to_string()))?;
    FOUND.store(true, Relaxed);
    Ok(driver)
}

fn failed(what: &'static str) -> impl Fn(DriverError) -> Failure + Copy {
    move |error| Failure::cuda(CudaError::new(what, error).to_string())
}

/// Runs `body` with the driver, and then restores the caller's current CUDA context.
pub(crate) fn preserving<T>(body: impl FnOnce(Driver) -> Result<T, Failure>) -> Result<T, Failure> {
    let driver = driver()?;
    let _kept = KeptContext::note();
    body(driver)
}

/// Runs `body` in a thread of this library, with the GPU of `context` as the current one.
pub(crate) fn on_gpu_of<T>(
    context: &Arc<CudaContext>,
    body: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    context.bind_to_thread().map_err(failed("making the GPU of the communicator current"))?;
    body()
}

/// The GPU of the caller's context; the first one if there is no context.
pub(crate) fn current_device() -> Result<usize, Failure> {
    let why = failed("reading the current device");
    if result::ctx::get_current().map_err(why)?.is_none() {
        return Ok(0);
    }
    let mut device = 0;
    // SAFETY: writes one number; a context is current.
    unsafe { sys::cuCtxGetDevice(&raw mut device) }.result().map_err(why)?;
    usize::try_from(device).map_err(|_| Failure::cuda("the current device has no number"))
}

/// The primary context of a GPU. It is retained for the life of the process, because the caller's memory
/// and streams need it.
pub(crate) fn context(ordinal: usize) -> Result<Arc<CudaContext>, Failure> {
    static CONTEXTS: Mutex<BTreeMap<usize, Arc<CudaContext>>> = Mutex::new(BTreeMap::new());
    let mut contexts = CONTEXTS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(context) = contexts.get(&ordinal) {
        return Ok(context.clone());
    }
    let context = untracked_context(ordinal).map_err(|why| Failure::cuda(why.to_string()))?;
    contexts.insert(ordinal, context.clone());
    Ok(context)
}

/// The caller's stream.
///
/// # Safety
/// `stream` must be a stream of `context`, or 0, 1 or 2, for the lifetime of the returned stream.
pub(crate) unsafe fn borrowed_stream(context: &Arc<CudaContext>, stream: usize) -> Arc<CudaStream> {
    // SAFETY: the caller guarantees it.
    unsafe { context.wrap_borrowed_stream(raw(stream)) }
}

/// Whether the stream is captured in a graph. False if CUDA returns an error.
pub(crate) fn is_capturing(stream: usize) -> bool {
    capture_status(stream).is_ok_and(|captures| captures)
}

fn capture_status(stream: usize) -> Result<bool, Failure> {
    if !FOUND.load(Relaxed) {
        return Ok(false);
    }
    // SAFETY: a stream of the caller's.
    let status = unsafe { result::stream::is_capturing(raw(stream)) };
    let none = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    Ok(status.map_err(failed("asking whether the stream is captured"))? != none)
}

fn raw(stream: usize) -> sys::CUstream {
    std::ptr::with_exposed_provenance_mut(stream)
}

/// The streams of one group of calls. All work of the group is on the first stream, ordered by events:
/// after the earlier work of all streams, and before their later work.
pub(crate) struct JoinedStreams<'a> {
    context: &'a Arc<CudaContext>,
    first: usize,
    others: &'a [usize],
}

impl<'a> JoinedStreams<'a> {
    /// # Safety
    /// `streams` must be streams of `context`, and not be empty.
    pub(crate) unsafe fn begin(
        context: &'a Arc<CudaContext>,
        streams: &'a [usize],
    ) -> Result<Self, Failure> {
        let (first, others) = streams.split_first().expect("a group of calls has a stream");
        let joined = Self { context, first: *first, others };
        if !others.is_empty() {
            let captured = capture_status(*first)?;
            for other in others {
                if capture_status(*other)? != captured {
                    let text = "a group uses a stream that is captured in a graph and another that \
                                is not: capture all of its streams, or none";
                    return Err(Failure::usage(text));
                }
            }
            for other in others {
                joined.order(*other, *first)?;
            }
        }
        Ok(joined)
    }

    /// Makes the later work of all streams wait for the first stream.
    pub(crate) fn end(self) -> Result<(), Failure> {
        self.others.iter().try_for_each(|other| self.order(self.first, *other))
    }

    /// The later work of `after` waits for the earlier work of `before`.
    fn order(&self, before: usize, after: usize) -> Result<(), Failure> {
        let why = failed("ordering the streams of a group");
        self.context.bind_to_thread().map_err(why)?;
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
        let event = result::event::create(flags).map_err(why)?;
        let wait = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: the event is new, and the caller of `begin` guarantees that the streams are of the
        // current context. CUDA frees a destroyed event when it has completed.
        unsafe {
            let recorded = result::event::record(event, raw(before));
            let waits = recorded.and_then(|()| result::stream::wait_event(raw(after), event, wait));
            let destroyed = result::event::destroy(event);
            waits.and(destroyed).map_err(why)
        }
    }
}

/// Copies memory of the GPU, in the order of the stream.
///
/// # Safety
/// `to` and `from` must be buffers of `bytes` bytes, which do not overlap, in the memory of the GPU of
/// `context`, until the copy has completed. `stream` must be a stream of `context`.
pub(crate) unsafe fn copy(
    context: &Arc<CudaContext>,
    stream: usize,
    to: u64,
    from: u64,
    bytes: usize,
) -> Result<(), Failure> {
    let why = failed("copying");
    context.bind_to_thread().map_err(why)?;
    // SAFETY: the caller guarantees it.
    unsafe { result::memcpy_dtod_async(to, from, bytes, raw(stream)) }.map_err(why)
}

/// Allocates memory of the GPU of `context`, also while a stream is captured.
pub(crate) fn allocate(context: &Arc<CudaContext>, bytes: usize) -> Result<u64, Failure> {
    let why = |error: DriverError| {
        let what = format!("allocating {bytes} bytes of GPU {}", context.ordinal());
        Failure::cuda(CudaError::new(what, error).to_string())
    };
    let _beside = BesideCapture::begin();
    context.bind_to_thread().map_err(why)?;
    // SAFETY: a context is current. The caller receives uninitialized memory by its address only.
    unsafe { result::malloc_sync(bytes) }.map_err(why)
}

/// Copies a word to new memory of the GPU of `context`, also while a stream is captured.
pub(crate) fn upload(context: &Arc<CudaContext>, word: u64) -> Result<u64, Failure> {
    let _beside = BesideCapture::begin();
    let address = allocate(context, size_of::<u64>())?;
    // SAFETY: the memory was just allocated with the size of a word.
    let copied = unsafe { result::memcpy_htod_sync(address, &[word]) };
    copied.map_err(failed("copying a factor to the GPU")).map(|()| address)
}

/// Frees memory of [`allocate`].
///
/// # Safety
/// `address` must have been allocated, and not freed; nothing may use the memory.
pub(crate) unsafe fn free(context: &Arc<CudaContext>, address: u64) -> Result<(), Failure> {
    let why = failed("freeing memory");
    let _beside = BesideCapture::begin();
    context.bind_to_thread().map_err(why)?;
    // SAFETY: the caller guarantees it.
    unsafe { result::free_sync(address) }.map_err(why)
}
