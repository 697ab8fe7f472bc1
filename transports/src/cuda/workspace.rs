//! Working memory of a GPU that grows with the calls.

use super::Result;
use super::launch::Lent;
use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
use maypole_kernels::cuda::CudaError;
use std::sync::Arc;

/// Memory of a GPU for work in one order, as large as the most demanding call so far.
#[derive(Debug)]
pub struct DeviceScratch {
    stream: Arc<CudaStream>,
    memory: Option<(CudaSlice<u8>, CUdeviceptr)>,
}

impl DeviceScratch {
    /// No memory yet, for work on `stream`.
    pub fn new(stream: &Arc<CudaStream>) -> Self {
        Self { stream: Arc::clone(stream), memory: None }
    }

    /// True if there are `bytes` bytes.
    pub fn has(&self, bytes: usize) -> bool {
        self.memory.as_ref().map_or(0, |(memory, _)| memory.len()) >= bytes
    }

    /// Grows the memory to at least `bytes` bytes.
    ///
    /// # Errors
    /// [`CudaError`] if there is no memory.
    pub fn grow(&mut self, bytes: usize) -> Result<()> {
        if self.has(bytes) {
            return Ok(());
        }
        let grown = self.stream.alloc_zeros::<u8>(bytes.next_power_of_two());
        let grown = grown.map_err(CudaError::of(format!("allocating {bytes} bytes")))?;
        // All users are ordered after the allocation, so it needs no event.
        let address = grown.device_ptr(&self.stream).0;
        self.memory = Some((grown, address));
        Ok(())
    }

    /// Takes the memory out.
    pub fn take(&mut self) -> Self {
        Self { stream: Arc::clone(&self.stream), memory: self.memory.take() }
    }

    /// The memory.
    pub fn lend(&self) -> Lent<'_> {
        let lent = |(memory, address): &(CudaSlice<u8>, CUdeviceptr)| {
            Lent::of_owner(*address, memory.len() as u64)
        };
        self.memory.as_ref().map_or(Lent::EMPTY, lent)
    }
}
