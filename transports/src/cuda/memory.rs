//! Memory of a GPU that others may reach: not from a pool.

use super::error::Result;
use super::launch::Lent;
use super::order::BesideCapture;
use super::spares::{Openers, SpareKind, SpareMemory};
use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaContext, CudaStream, result};
use maypole_kernels::cuda::CudaError;
use std::sync::{Arc, Mutex, PoisonError};

/// Memory is allocated in multiples of this, so that the next group can use it.
const GRANULE: usize = 64 << 10;

/// Zeroed memory of a GPU. Dropping it keeps it for the next group; it is freed when nothing waits
/// on the GPU.
#[derive(Debug)]
pub(super) struct DeviceMemory {
    context: Arc<CudaContext>,
    address: CUdeviceptr,
    bytes: usize,
    /// As allocated.
    capacity: usize,
    /// Processes that may have it open, of this group and of those before it.
    openers: Mutex<Vec<Arc<dyn Openers>>>,
}

impl DeviceMemory {
    /// Allocates `bytes` bytes, which are zero when this returns. Waits for the stream.
    pub(super) fn new(stream: &CudaStream, bytes: usize) -> Result<Self> {
        let context = Arc::clone(stream.context());
        let failed = |error| CudaError::new(format!("allocating {bytes} bytes of a GPU"), error);
        let _beside = BesideCapture::begin();
        context.bind_to_thread().map_err(failed)?;
        let wanted = bytes.max(1).next_multiple_of(GRANULE);
        let spare = SpareMemory::new(&context, SpareKind::Device, wanted).map_err(failed)?;
        let SpareMemory { address, bytes: capacity, openers, .. } = spare;
        let memory = Self { context, address, bytes, capacity, openers: Mutex::new(openers) };
        // SAFETY: the memory is ours and as long.
        let zeroed = unsafe { result::memset_d8_async(address, 0, bytes, stream.cu_stream()) };
        zeroed.and_then(|()| stream.synchronize()).map_err(failed)?;
        Ok(memory)
    }

    /// Records that other processes may have the memory open when this is dropped.
    pub(super) fn add_openers(&self, openers: Arc<dyn Openers>) {
        self.openers.lock().unwrap_or_else(PoisonError::into_inner).push(openers);
    }

    pub(super) fn address(&self) -> CUdeviceptr {
        self.address
    }

    /// All of its bytes.
    pub(super) fn lend(&self) -> Lent<'_> {
        Lent::of_owner(self.address, self.bytes as u64)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let (context, kind) = (Arc::clone(&self.context), SpareKind::Device);
        // No work uses it any more: the owner has waited for its kernels and for those of other ranks.
        let openers = self.openers.get_mut().unwrap_or_else(PoisonError::into_inner);
        let openers = openers.extract_if(.., |openers| !openers.have_closed()).collect();
        let (address, bytes) = (self.address, self.capacity);
        SpareMemory { context, kind, address, bytes, openers }.give();
    }
}
