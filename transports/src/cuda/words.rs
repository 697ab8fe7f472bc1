//! Words of the host that a kernel reads and writes while it runs.

use super::Result;
use super::order::BesideCapture;
use super::spares::{SpareKind, SpareMemory};
use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUdeviceptr, cuMemHostGetDevicePointer_v2};
use maypole_kernels::cuda::CudaError;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// `ABORTED` of `program.h`: the host requested it.
pub(super) const ABORTED: u64 = 1;

/// Why the first aborted kernel of a rank aborted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Report {
    /// The [number](super::DeviceCall::number) of its call.
    pub number: u32,
    /// The reason.
    pub reason: Reason,
}

/// The reason of an aborted kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reason {
    /// The host requested it.
    Aborted,
    /// It waited for this rank for too long.
    TimedOut(usize),
    /// This rank makes another call.
    Mismatch(usize),
    /// Another call of the rank had not ended.
    Overlap,
    /// It waited for this rank, which has left the group.
    Left(usize),
}

/// The words, in memory of the host that its GPUs reach.
#[derive(Debug)]
pub struct ReportWords {
    memory: SpareMemory,
    start: NonNull<Words>,
    address: CUdeviceptr,
}

#[derive(Debug, Default)]
#[repr(C)]
struct Words {
    report: AtomicU64,
    abort: AtomicU32,
    gone: AtomicU64,
}

// SAFETY: the words are atomic, and the memory belongs to no thread.
unsafe impl Send for ReportWords {}
// SAFETY: as above.
unsafe impl Sync for ReportWords {}

impl ReportWords {
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<Self> {
        let failed = |error| CudaError::new("allocating memory of the host for a GPU", error);
        let _beside = BesideCapture::begin();
        context.bind_to_thread().map_err(failed)?;
        let memory = SpareMemory::new(context, SpareKind::Host, size_of::<Words>());
        let memory = memory.map_err(failed)?;
        let start = std::ptr::with_exposed_provenance_mut::<Words>(memory.address as usize);
        let start = NonNull::new(start).expect("the driver returns an address");
        // SAFETY: the memory is ours, aligned to a page, and long enough.
        unsafe { start.write(Words::default()) };
        let mut words = Self { memory, start, address: 0 };
        // SAFETY: the pointer is that of memory which the driver has allocated as mapped.
        let mapped = unsafe {
            cuMemHostGetDevicePointer_v2(&mut words.address, start.as_ptr().cast::<c_void>(), 0)
        };
        mapped.result().map_err(failed)?;
        Ok(words)
    }

    fn words(&self) -> &Words {
        // SAFETY: the memory lives as long as `self`, and the words are atomic.
        unsafe { self.start.as_ref() }
    }

    /// Aborts all kernels of the rank, running and future.
    pub fn abort(&self) {
        self.words().abort.store(1, Ordering::SeqCst);
    }

    /// Sets the ranks that have left the group, by bits from the lowest on. A kernel aborts if its
    /// wait for one of them times out.
    pub fn set_gone(&self, ranks: u64) {
        self.words().gone.store(ranks, Ordering::SeqCst);
    }

    /// The reason of the rank's first aborted kernel; `None` if none aborted.
    pub fn report(&self) -> Option<Report> {
        let word = self.words().report.load(Ordering::SeqCst);
        let rank = usize::from((word >> 16) as u16);
        let reason = match word as u16 {
            0 => return None,
            2 => Reason::TimedOut(rank),
            3 => Reason::Mismatch(rank),
            4 => Reason::Overlap,
            5 => Reason::Left(rank),
            _ => Reason::Aborted,
        };
        Some(Report { number: (word >> 32) as u32, reason })
    }

    /// The addresses of the words that abort kernels, have the reason, and name ranks that have left.
    pub(super) fn addresses(&self) -> [CUdeviceptr; 3] {
        use std::mem::offset_of;
        [offset_of!(Words, abort), offset_of!(Words, report), offset_of!(Words, gone)]
            .map(|offset| self.address + offset as u64)
    }
}

impl Drop for ReportWords {
    fn drop(&mut self) {
        // No kernel runs any more that has its address: the board that owns it has waited.
        self.memory.clone().give();
    }
}
