//! Collectives on a GPU: the bits of the executor. Without a GPU, these tests are skipped, and one
//! test runs them all over the fake driver of `kernels/cuda/emulated/driver/`.
#![cfg(target_os = "linux")]

#[path = "../common/fake_gpu.rs"]
mod fake_gpu;
#[path = "../common/skip.rs"]
mod skip;

mod calls;
mod emulated;
mod faults;
mod messages;
mod speed;

use cudarc::driver::CudaStream;
use maypole::cuda::driver;
use std::sync::Arc;

/// A stream of GPU 0, unless there is none.
fn stream() -> Option<Arc<CudaStream>> {
    let found = driver().and_then(|driver| driver.context(0));
    match found {
        Ok(context) => Some(context.new_stream().expect("a GPU has streams")),
        Err(why) => {
            skip::skipped(&format!("CUDA unavailable: {why}"));
            None
        }
    }
}
