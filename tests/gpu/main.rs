//! Collectives on a GPU: the bits of the executor. Without a GPU, these tests are skipped, and one
//! test runs them all over the fake driver of `tests/fake_gpu/driver/`.
#![cfg(target_os = "linux")]

#[path = "../common/fake_gpu.rs"]
mod fake_gpu;
#[path = "../common/gpu_calls.rs"]
mod gpu_calls;
#[path = "../common/skip.rs"]
mod skip;
#[path = "../common/spawn.rs"]
mod spawn;

mod adapters;
mod calls;
mod deaths;
mod emulated;
mod faults;
mod from_nccl;
mod links;
mod messages;
mod stress;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaStream};
use maypole::cuda::{Comm, driver};
use maypole::{Communicator, Local};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

spawn::rank_processes!(adapters, deaths);

/// The GPUs for one test: ranks that wait for one another all have to fit on them. `None` if there is
/// no GPU.
fn alone() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    stream(0)?;
    Some(ALONE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// How many GPUs the ranks of a test take in turn; one if it is not set. For `tests/gpu.sh`.
const DEVICES: &str = "TEST_DEVICES";

/// A stream for a rank, on its GPU, unless there is none.
fn stream(rank: usize) -> Option<Arc<CudaStream>> {
    let devices = std::env::var(DEVICES).map_or(1, |count| count.parse().expect("a number"));
    let found = driver().and_then(|driver| driver.context(rank % devices));
    match found {
        Ok(context) => Some(context.new_stream().expect("a GPU has streams")),
        Err(why) => {
            skip::skipped(format!("CUDA unavailable: {why}"));
            None
        }
    }
}

/// Captures what `work` starts on `stream`.
fn capture(stream: &Arc<CudaStream>, work: impl FnOnce()) -> CudaGraph {
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    stream.begin_capture(mode).unwrap();
    work();
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    stream.end_capture(flags).unwrap().expect("something was captured")
}

/// A stream whose buffers have no events, so that work can be captured.
fn quiet_stream(rank: usize) -> Arc<CudaStream> {
    let stream = stream(rank).unwrap();
    // SAFETY: each buffer is used on one stream alone.
    unsafe { stream.context().disable_event_tracking() };
    stream
}

/// By rank, in turn: the digit of its host. For the tests of several hosts.
const HOSTS: &str = "TEST_HOSTS";

/// Runs `rank` on `world` ranks, which are threads and pretend to be on the hosts that [`HOSTS`] says.
fn run<T: Send>(world: usize, rank: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    Local::new(world).hosts(&hosts(world)).run(rank)
}

/// The hosts of `world` ranks.
fn hosts(world: usize) -> Vec<usize> {
    let digits = std::env::var(HOSTS).unwrap_or("0".to_owned());
    digits.bytes().cycle().take(world).map(|digit| usize::from(digit - b'0')).collect()
}

/// Runs `rank` on `world` ranks, of which rank r is on GPU `r % gpus`, if there are as many GPUs.
fn ranks(world: usize, gpus: usize, rank: impl Fn(&mut Communicator, &Comm) + Sync) {
    let Some(_alone) = alone() else { return };
    let driver = driver().unwrap();
    if driver.devices() < gpus {
        skip::skipped(format!("needs {gpus} GPUs"));
        return;
    }
    run(world, |mut comm| {
        let stream = match gpus {
            1 => stream(comm.rank()).unwrap(),
            _ => driver.context(comm.rank() % gpus).unwrap().new_stream().unwrap(),
        };
        let gpu = Comm::new(&mut comm, stream).unwrap();
        rank(&mut comm, &gpu);
        comm.barrier().unwrap();
    });
}
