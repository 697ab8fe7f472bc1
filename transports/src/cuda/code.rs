//! Programs in the memory of a GPU.

use super::error::DeviceError;
use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
use maypole_kernels::cuda::CudaError;
use maypole_kernels::packed::{self, BufferNeeds, PackedProgram};
use std::sync::Arc;

/// A program in the memory of a GPU, checked: it touches no more than its needs.
#[derive(Debug)]
pub struct DeviceCode {
    /// Keeps the memory.
    _bytes: CudaSlice<u8>,
    pub(super) address: CUdeviceptr,
    pub(super) needs: BufferNeeds,
    pub(super) header: PackedProgram,
}

impl DeviceCode {
    /// Copies a program to the GPU of `stream`.
    ///
    /// # Errors
    /// [`DeviceError::Program`] if a kernel that walks it could touch other memory than its
    /// buffers; [`DeviceError::Driver`] if there is no memory.
    pub fn load(stream: &Arc<CudaStream>, bytes: &[u8]) -> Result<Self, DeviceError> {
        let needs = packed::check(bytes).map_err(DeviceError::Program)?;
        let header = PackedProgram::of(bytes).map_err(DeviceError::Program)?;
        let bytes = stream
            .clone_htod(bytes)
            .map_err(|error| CudaError::new("copying a program to a GPU", error))?;
        // Every launch is on the same stream, behind the copy, so there is no event to wait for.
        let address = bytes.device_ptr(stream).0;
        Ok(Self { _bytes: bytes, address, needs, header })
    }
}
