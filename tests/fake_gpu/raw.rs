//! Functions of the driver that cudarc does not wrap, and contexts to call them in.

use cudarc::driver::sys::{self, CUdeviceptr, CUipcMemHandle, CUresult};
use cudarc::driver::{CudaContext, CudaStream};
use maypole_kernels::cuda;
use std::sync::Arc;

/// The primary context of this device, current on the calling thread.
pub(crate) fn context(ordinal: usize) -> Arc<CudaContext> {
    let context = cuda::driver().unwrap().context(ordinal).unwrap();
    context.bind_to_thread().unwrap();
    context
}

/// Memory of `cuMemAlloc_v2`, which other processes can open.
pub(crate) fn allocate(bytes: usize) -> Result<CUdeviceptr, CUresult> {
    let mut address = 0;
    // SAFETY: the pointer is valid.
    result(unsafe { sys::cuMemAlloc_v2(&mut address, bytes) }).map(|()| address)
}

/// Frees memory of [`allocate`].
pub(crate) fn free(address: CUdeviceptr) -> Result<(), CUresult> {
    // SAFETY: the driver checks the address; no test uses memory that it has freed.
    result(unsafe { sys::cuMemFree_v2(address) })
}

/// The handle by which another process opens this memory.
pub(crate) fn export(address: CUdeviceptr) -> Result<CUipcMemHandle, CUresult> {
    let mut handle = CUipcMemHandle { reserved: [0; 64] };
    // SAFETY: the pointer is valid, and the driver checks the address.
    result(unsafe { sys::cuIpcGetMemHandle(&mut handle, address) }).map(|()| handle)
}

/// Opens memory of another process.
pub(crate) fn open(handle: CUipcMemHandle) -> Result<CUdeviceptr, CUresult> {
    let mut address = 0;
    let flags = sys::CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
    // SAFETY: the pointer is valid, and the driver checks the handle.
    result(unsafe { sys::cuIpcOpenMemHandle_v2(&mut address, handle, flags) }).map(|()| address)
}

/// Closes memory of [`open`].
pub(crate) fn close(address: CUdeviceptr) -> Result<(), CUresult> {
    // SAFETY: the driver checks the address; no test uses memory that it has closed.
    result(unsafe { sys::cuIpcCloseMemHandle(address) })
}

/// Writes to memory of a device, and waits until it is done.
pub(crate) fn write(address: CUdeviceptr, bytes: &[u8]) {
    // SAFETY: the driver checks that the destination is memory of a device.
    result(unsafe { sys::cuMemcpyHtoD_v2(address, bytes.as_ptr().cast(), bytes.len()) }).unwrap();
}

/// Reads memory of a device.
pub(crate) fn read(address: CUdeviceptr, len: usize) -> Vec<u8> {
    let mut bytes = vec![0u8; len];
    // SAFETY: the driver checks that the source is memory of a device.
    result(unsafe { sys::cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), address, len) }).unwrap();
    bytes
}

/// Adds a wait for `gate` to the stream: later work waits until the gate opens or is dropped.
pub(crate) fn hold(stream: &CudaStream, gate: std::sync::mpsc::Receiver<()>) {
    unsafe extern "C" fn wait(gate: *mut std::ffi::c_void) {
        // SAFETY: the pointer is that of the box below, and the function is called once.
        let gate = unsafe { Box::from_raw(gate.cast::<std::sync::mpsc::Receiver<()>>()) };
        let _ = gate.recv_timeout(std::time::Duration::from_secs(60));
    }
    let gate = Box::into_raw(Box::new(gate)).cast();
    // SAFETY: `wait` takes the pointer that it is given.
    result(unsafe { sys::cuLaunchHostFunc(stream.cu_stream(), Some(wait), gate) }).unwrap();
}

/// An error of the driver as `Err`.
pub(crate) fn result(code: CUresult) -> Result<(), CUresult> {
    match code {
        CUresult::CUDA_SUCCESS => Ok(()),
        error => Err(error),
    }
}
