//! Memory of a GPU that others may reach: not from a pool.

use super::error::Result;
use super::launch::Lent;
use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaContext, CudaStream, result};
use maypole_kernels::cuda::CudaError;
use std::sync::Arc;

/// Zeroed memory of a GPU, freed when dropped.
#[derive(Debug)]
pub(super) struct DeviceMemory {
    context: Arc<CudaContext>,
    address: CUdeviceptr,
    bytes: usize,
}

impl DeviceMemory {
    /// Allocates `bytes` bytes, which are zero when this returns.
    pub(super) fn new(stream: &CudaStream, bytes: usize) -> Result<Self> {
        let context = Arc::clone(stream.context());
        let failed = |error| CudaError::new(format!("allocating {bytes} bytes of a GPU"), error);
        context.bind_to_thread().map_err(failed)?;
        // SAFETY: the context is current; the address is freed once, by `drop`.
        let address = unsafe { result::malloc_sync(bytes.max(1)) }.map_err(failed)?;
        let memory = Self { context, address, bytes };
        // SAFETY: the memory is ours and as long.
        let zeroed = unsafe { result::memset_d8_async(address, 0, bytes, stream.cu_stream()) };
        zeroed.and_then(|()| stream.synchronize()).map_err(failed)?;
        Ok(memory)
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
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: `new` allocated it, and nothing frees it but this. Nobody is left who uses
            // it: the board's owner has waited for its kernels and for those of the other ranks. An
            // error of an earlier kernel may come up here; there is nobody to tell.
            let _ = unsafe { result::free_sync(self.address) };
        }
    }
}
