//! Memory that groups no longer use: kept for the next group, and freed when nothing waits on the GPU.
//!
//! Freeing memory, closing that of another process and loading a module may wait until no kernel runs on
//! the GPU, and delay the launches of other threads meanwhile. A kernel of a group waits for other
//! ranks, which may wait for this rank. So none of that is done while a call of any group of this
//! process may run on the GPU ([`ContextWork`]).

use super::order::{BesideCapture, ContextWork};
use crate::lock;
use cudarc::driver::{CudaContext, DriverError, result, sys};
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

/// Where memory lies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SpareKind {
    /// On the GPU.
    Device,
    /// On the host, mapped for GPUs.
    Host,
}

/// Other processes that have memory open, though they do not use it any more: it must not be freed.
pub(super) trait Openers: std::fmt::Debug + Send + Sync {
    /// True if all have closed it, or have ended.
    fn have_closed(&self) -> bool;
}

/// Memory that nothing uses, or what its user notes of it. Dropping it keeps it allocated.
#[derive(Clone, Debug)]
pub(super) struct SpareMemory {
    pub(super) context: Arc<CudaContext>,
    pub(super) kind: SpareKind,
    pub(super) address: u64,
    /// As it was allocated.
    pub(super) bytes: usize,
    pub(super) openers: Vec<Arc<dyn Openers>>,
}

/// Memory that groups of this process no longer use.
static SPARES: Mutex<Vec<SpareMemory>> = Mutex::new(Vec::new());

impl SpareMemory {
    /// Memory of `bytes` bytes or, if that is spare, of up to twice as many. Its content is anything.
    ///
    /// # Errors
    /// If the driver has none.
    pub(super) fn new(
        context: &Arc<CudaContext>,
        kind: SpareKind,
        bytes: usize,
    ) -> Result<Self, DriverError> {
        if let Some(spare) = Self::take(context, kind, bytes) {
            return Ok(spare);
        }
        let made = Self::allocate(context, kind, bytes);
        match &made {
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                // Spare memory may be too short for this.
                let before = lock(&SPARES).len();
                free_on_idle_gpus();
                if lock(&SPARES).len() < before {
                    Self::allocate(context, kind, bytes)
                } else {
                    made
                }
            }
            _ => made,
        }
    }

    fn take(context: &Arc<CudaContext>, kind: SpareKind, bytes: usize) -> Option<Self> {
        let mut spares = lock(&SPARES);
        let fits = |spare: &Self| {
            spare.kind == kind
                && spare.context.cu_ctx() == context.cu_ctx()
                && (bytes..=2 * bytes).contains(&spare.bytes)
        };
        let fitting = spares.iter().enumerate().filter(|(_, spare)| fits(spare));
        let (at, _) = fitting.min_by_key(|(_, spare)| spare.bytes)?;
        Some(spares.swap_remove(at))
    }

    fn allocate(
        context: &Arc<CudaContext>,
        kind: SpareKind,
        bytes: usize,
    ) -> Result<Self, DriverError> {
        let _beside = BesideCapture::begin();
        context.bind_to_thread()?;
        let address = match kind {
            // SAFETY: the context is current; the memory is freed once, by `free`.
            SpareKind::Device => unsafe { result::malloc_sync(bytes) }?,
            SpareKind::Host => {
                let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
                // SAFETY: as above.
                let start: *mut c_void = unsafe { result::malloc_host(bytes, flags) }?;
                start.expose_provenance() as u64
            }
        };
        Ok(Self { context: Arc::clone(context), kind, address, bytes, openers: Vec::new() })
    }

    /// Keeps memory that no work uses any more, here or in another process.
    pub(super) fn give(self) {
        lock(&SPARES).push(self);
    }

    fn free(self) {
        let _beside = BesideCapture::begin();
        if self.context.bind_to_thread().is_err() {
            return;
        }
        // SAFETY: `allocate` has made it, nothing uses it, and it is in no list any more. An error of an
        // earlier kernel may come up here; its calls have reported it.
        let _ = unsafe {
            match self.kind {
                SpareKind::Device => result::free_sync(self.address),
                SpareKind::Host => {
                    result::free_host(std::ptr::with_exposed_provenance_mut(self.address as usize))
                }
            }
        };
    }
}

/// Frees deferred resources of GPUs on which no call of a group may run. Does not block. True if
/// something is still kept.
pub(super) fn free_on_idle_gpus() -> bool {
    let mut contexts: Vec<_> =
        lock(&SPARES).iter().map(|spare| Arc::clone(&spare.context)).collect();
    contexts.dedup_by_key(|context| context.cu_ctx());
    for context in contexts {
        ContextWork::of(&context).while_idle(|| free_all(&context));
    }
    !lock(&SPARES).is_empty()
}

fn free_all(context: &Arc<CudaContext>) {
    let is_ready = |spare: &mut SpareMemory| {
        spare.context.cu_ctx() == context.cu_ctx()
            && spare.openers.iter().all(|openers| openers.have_closed())
    };
    let free: Vec<_> = lock(&SPARES).extract_if(.., is_ready).collect();
    free.into_iter().for_each(SpareMemory::free);
}
