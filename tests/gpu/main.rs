//! Collectives on a GPU: the bits of the executor. Without a GPU, these tests are skipped.

#[path = "../common/skip.rs"]
mod skip;

mod calls;
mod faults;
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
