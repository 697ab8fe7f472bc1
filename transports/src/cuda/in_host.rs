//! Boards whose mailboxes are in memory of the host, for GPUs that do not reach one another.
//!
//! One segment has the mailboxes of all ranks. Each rank maps it and registers it with the driver, so its
//! GPU reads and writes the same pages as all others. A rank that leaves takes only its own mapping away,
//! so no rank keeps memory for another one.

use super::arena::Reached;
use super::board::DeviceBoard;
use super::error::Result;
use super::layout::{MailboxLayout, Shapes};
use super::left_boards::{self, Kept};
use super::lent_memory::LentMemory;
use super::locals::{Locals, Places};
use super::order::{BesideCapture, WorkOrder, stream_aside};
use super::words::ReportWords;
use crate::shm::Segment;
use cudarc::driver::sys::{
    CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_PORTABLE, CUdeviceptr, CUresult,
    cuMemHostGetDevicePointer_v2, cuMemHostRegister_v2, cuMemHostUnregister,
};
use cudarc::driver::{CudaContext, CudaStream, DriverError};
use maypole_kernels::cuda::CudaError;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// The mailboxes of each rank begin at a multiple of this: of any system's pages.
const GRANULE: usize = 64 << 10;

/// Memory of the host that processes share, as a GPU reaches it.
#[derive(Debug)]
pub(super) struct RegisteredSegment {
    context: Arc<CudaContext>,
    segment: ManuallyDrop<Segment>,
    address: CUdeviceptr,
}

impl RegisteredSegment {
    fn new(context: &Arc<CudaContext>, segment: Segment) -> Result<Self> {
        let failed = |error: DriverError| {
            CudaError::new(format!("registering {} bytes of the host", segment.len()), error)
        };
        let _beside = BesideCapture::begin();
        context.bind_to_thread().map_err(failed)?;
        let start = segment.start().as_ptr().cast::<c_void>();
        let flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: the memory is a mapping of ours, which stays until it is no longer registered.
        unsafe { cuMemHostRegister_v2(start, segment.len(), flags) }.result().map_err(failed)?;
        let mut address = 0;
        // SAFETY: the memory was registered as mapped, and the pointer is valid.
        let mapped = unsafe { cuMemHostGetDevicePointer_v2(&mut address, start, 0) };
        let mapped = mapped.result().map_err(failed);
        let segment = ManuallyDrop::new(segment);
        let registered = Self { context: Arc::clone(context), segment, address };
        mapped?;
        Ok(registered)
    }

    pub(super) fn address(&self) -> CUdeviceptr {
        self.address
    }
}

impl Drop for RegisteredSegment {
    fn drop(&mut self) {
        if !self.segment.is_mapped() || self.context.bind_to_thread().is_err() {
            return;
        }
        let _beside = BesideCapture::begin();
        let start = self.segment.start().as_ptr().cast::<c_void>();
        // SAFETY: `new` has registered it, and no kernel of this rank runs any more.
        let freed = unsafe { cuMemHostUnregister(start) };
        // A GPU may still write to pages that are registered: these stay mapped.
        if freed == CUresult::CUDA_SUCCESS {
            // SAFETY: nothing uses the segment after this.
            unsafe { ManuallyDrop::drop(&mut self.segment) };
        }
    }
}

impl DeviceBoard {
    /// Bytes of the segment of a group of `ranks` ranks with mailboxes in memory of the host.
    pub fn bytes_in_host(shapes: &Shapes, ranks: usize) -> usize {
        ranks * MailboxLayout::new(shapes, ranks).bytes.next_multiple_of(GRANULE)
    }

    /// Writes zeros to the mailboxes of rank `me` of `ranks` in a fresh segment of the group, so that the
    /// system puts them near this thread's core. The rank does so before it tells any other that it has
    /// the segment.
    ///
    /// # Panics
    /// In a forked child.
    pub fn place_in_host(segment: &Segment, (me, ranks): (usize, usize)) {
        let stride = segment.len() / ranks;
        // SAFETY: the part is within the mapping, and no rank and no GPU uses it before all ranks have the
        // segment.
        unsafe { segment.start().add(me * stride).write_bytes(0, stride) };
    }

    /// True if the mailboxes are in memory of the host.
    pub fn is_in_host(&self) -> bool {
        matches!(self.others.first(), Some(Reached::InHost(..)))
    }

    /// The board of rank `me` of `ranks`, on the GPU of `stream`. The mailboxes of all ranks are in
    /// `segment`, which all of them share, and which is fresh.
    ///
    /// # Errors
    /// [`DeviceError::Driver`](super::DeviceError::Driver) if the driver does not register the
    /// segment, or has no memory.
    ///
    /// # Panics
    /// As [`PendingBoard::new`](super::PendingBoard::new), and if the segment is not
    /// [so long](Self::bytes_in_host).
    pub fn in_host(
        stream: &Arc<CudaStream>,
        shapes: &Shapes,
        (me, ranks): (usize, usize),
        segment: Segment,
    ) -> Result<Self> {
        assert_eq!(segment.len(), Self::bytes_in_host(shapes, ranks), "it has all mailboxes");
        left_boards::end_left_boards();
        let layout = MailboxLayout::new(shapes, ranks);
        let stride = (segment.len() / ranks) as u64;
        let (aside, order) = (stream_aside(stream)?, WorkOrder::new(stream)?);
        let words = Arc::new(ReportWords::new(stream.context())?);
        let memory = Arc::new(RegisteredSegment::new(stream.context(), segment)?);
        let of = |rank| Reached::InHost(Arc::clone(&memory), stride * rank);
        let others: Vec<_> = (0..ranks as u64).map(of).collect();
        let places = Places { stream: &aside, shapes, layout: &layout, words: &words };
        let (shapes, table) = (shapes.clone(), None);
        match Locals::new(&places, me, &others, false) {
            Ok(locals) => {
                let memory = LentMemory::default();
                Ok(Self { order, memory, table, aside, others, words, shapes, locals })
            }
            Err(error) => {
                let used = (Box::new(words) as Kept, Box::new(()) as Kept);
                left_boards::leave((order, others), used, LentMemory::default(), table);
                Err(error)
            }
        }
    }
}
