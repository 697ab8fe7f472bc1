//! Memory of the host that a group shares, registered with the driver.

use super::Result;
use super::order::BesideCapture;
use crate::shm::Segment;
use cudarc::driver::sys::{
    CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_PORTABLE, CUdeviceptr, CUresult,
    cuMemHostGetDevicePointer_v2, cuMemHostRegister_v2, cuMemHostUnregister,
};
use cudarc::driver::{CudaContext, DriverError};
use maypole_kernels::cuda::CudaError;
use std::ffi::c_void;
use std::sync::Arc;

/// Memory of the host that processes share, as a GPU reaches it.
#[derive(Debug)]
pub(super) struct RegisteredSegment {
    context: Arc<CudaContext>,
    pub(super) segment: Arc<Segment>,
    pub(super) address: CUdeviceptr,
}

impl RegisteredSegment {
    pub(super) fn new(context: &Arc<CudaContext>, segment: Segment) -> Result<Self> {
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
        let (context, segment) = (Arc::clone(context), Arc::new(segment));
        let registered = Self { context, segment, address };
        mapped?;
        Ok(registered)
    }

    /// True if no GPU reaches the memory any more.
    fn unregister(&self) -> bool {
        if !self.segment.is_mapped() || self.context.bind_to_thread().is_err() {
            return false;
        }
        let _beside = BesideCapture::begin();
        let start = self.segment.start().as_ptr().cast::<c_void>();
        // SAFETY: `new` has registered it, and no kernel of this rank runs any more.
        unsafe { cuMemHostUnregister(start) == CUresult::CUDA_SUCCESS }
    }
}

impl Drop for RegisteredSegment {
    fn drop(&mut self) {
        // A GPU may still write to pages that are registered: these stay mapped.
        if !self.unregister() {
            std::mem::forget(Arc::clone(&self.segment));
        }
    }
}
