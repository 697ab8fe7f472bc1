//! A function of the driver that cudarc does not wrap, and contexts.

use cudarc::driver::sys;
use cudarc::driver::{CudaContext, CudaStream};
use maypole_kernels::cuda;
use std::sync::Arc;

/// The primary context of this device, current on the calling thread.
pub(crate) fn context(ordinal: usize) -> Arc<CudaContext> {
    let context = cuda::driver().unwrap().context(ordinal).unwrap();
    context.bind_to_thread().unwrap();
    context
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
    unsafe { sys::cuLaunchHostFunc(stream.cu_stream(), Some(wait), gate) }.result().unwrap();
}
