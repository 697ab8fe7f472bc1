//! Memory of a GPU that others may reach: not from a pool.

use super::Result;
use super::launch::Lent;
use super::order::BesideCapture;
use super::spares::{Openers, SpareKind, SpareMemory};
use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaStream, result};
use maypole_kernels::cuda::CudaError;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError};

/// Memory is allocated in multiples of this, so that the next group can use it.
const GRANULE: usize = 64 << 10;

/// Memory of a rank that others may have open; `None` if it is in memory of the host, which needs no care.
/// Dropping it leaves it allocated until the process ends: the driver's manual forbids to free memory that
/// another process has open.
pub(super) type LentMemory = ManuallyDrop<Option<Arc<DeviceMemory>>>;

/// Zeroed memory of a GPU. Dropping it keeps it for the next group; it is freed when nothing waits
/// on the GPU.
#[derive(Debug)]
pub(super) struct DeviceMemory {
    /// As allocated.
    spare: SpareMemory,
    bytes: usize,
    /// Processes that may have it open, of this group and of those before it.
    openers: Mutex<Vec<Arc<dyn Openers>>>,
}

impl DeviceMemory {
    /// Allocates `bytes` bytes, which are zero when this returns. Waits for the stream.
    pub(super) fn new(stream: &CudaStream, bytes: usize) -> Result<Self> {
        let context = stream.context();
        let failed = |error| CudaError::new(format!("allocating {bytes} bytes of a GPU"), error);
        let _beside = BesideCapture::begin();
        context.bind_to_thread().map_err(failed)?;
        let wanted = bytes.max(1).next_multiple_of(GRANULE);
        let mut spare = SpareMemory::new(context, SpareKind::Device, wanted).map_err(failed)?;
        let openers = Mutex::new(std::mem::take(&mut spare.openers));
        let memory = Self { spare, bytes, openers };
        // SAFETY: the memory is ours and as long.
        let zeroed =
            unsafe { result::memset_d8_async(memory.address(), 0, bytes, stream.cu_stream()) };
        zeroed.and_then(|()| stream.synchronize()).map_err(failed)?;
        Ok(memory)
    }

    /// Records that other processes may have the memory open when this is dropped.
    pub(super) fn add_openers(&self, openers: Arc<dyn Openers>) {
        self.openers.lock().unwrap_or_else(PoisonError::into_inner).push(openers);
    }

    pub(super) fn address(&self) -> CUdeviceptr {
        self.spare.address
    }

    /// All of its bytes.
    pub(super) fn lend(&self) -> Lent<'_> {
        Lent::of_owner(self.address(), self.bytes as u64)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // No work uses it any more: the owner has waited for its kernels and for those of other ranks.
        let openers = self.openers.get_mut().unwrap_or_else(PoisonError::into_inner);
        let openers = openers.extract_if(.., |openers| !openers.have_closed()).collect();
        SpareMemory { openers, ..self.spare.clone() }.give();
    }
}
