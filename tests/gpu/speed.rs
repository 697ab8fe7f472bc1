//! The cost of collectives on one GPU, compared with a copy on the same GPU in the same run. Run by
//! `tests/gpu.sh`: `--ignored --nocapture`.

use crate::{alone, stream};
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaStream};
use maypole::algorithms::Algorithm;
use maypole::cuda::Comm;
use maypole::{Communicator, ReduceOp};
use std::sync::Arc;
use std::time::Instant;

/// Captures what `work` starts on `stream`.
pub(crate) fn capture(stream: &Arc<CudaStream>, work: impl FnOnce()) -> CudaGraph {
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    stream.begin_capture(mode).unwrap();
    work();
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    stream.end_capture(flags).unwrap().expect("something was captured")
}

/// A stream whose buffers have no events, so that work can be captured.
pub(crate) fn quiet_stream(rank: usize) -> Arc<CudaStream> {
    let stream = stream(rank).unwrap();
    // SAFETY: each buffer is used on one stream alone.
    unsafe { stream.context().disable_event_tracking() };
    stream
}

/// Microseconds of an all-reduce of `bytes` bytes among ranks that are threads, without the host: a
/// graph of many calls is replayed.
fn all_reduce(world: usize, bytes: usize, algorithm: Option<Algorithm>) -> (f64, &'static str) {
    const REPLAYS: u32 = 5;
    let calls = if bytes > 4 << 20 { 10 } else { 100 };
    let times = Communicator::run_local(world, |mut comm| {
        let stream = quiet_stream(comm.rank());
        let gpu = Comm::new(&mut comm, Arc::clone(&stream)).unwrap();
        gpu.set_algorithm(algorithm);
        let input = stream.alloc_zeros::<f32>(bytes / 4).unwrap();
        let mut output = stream.alloc_zeros::<f32>(bytes / 4).unwrap();
        gpu.all_reduce(&input, &mut output, &ReduceOp::Sum).unwrap();
        gpu.synchronize().unwrap();
        comm.barrier().unwrap();
        let graph = capture(&stream, || {
            for _ in 0..calls {
                gpu.all_reduce(&input, &mut output, &ReduceOp::Sum).unwrap();
            }
        });
        graph.upload().unwrap();
        // Making a graph may wait until no kernel runs, also for those that wait for this rank.
        comm.barrier().unwrap();
        graph.launch().unwrap();
        gpu.synchronize().unwrap();
        comm.barrier().unwrap();
        let start = Instant::now();
        for _ in 0..REPLAYS {
            graph.launch().unwrap();
        }
        gpu.synchronize().unwrap();
        let micros = start.elapsed().as_secs_f64() * 1e6;
        comm.barrier().unwrap();
        (micros / f64::from(REPLAYS * calls), gpu.last_algorithm().unwrap().name())
    });
    let slowest = times.iter().map(|(micros, _)| *micros).fold(0.0, f64::max);
    (slowest, times[0].1)
}

/// Microseconds of a copy of `bytes` bytes on the GPU, from graphs as well.
fn copy(bytes: usize) -> f64 {
    let stream = quiet_stream(0);
    let from = stream.alloc_zeros::<u8>(bytes).unwrap();
    let mut into = stream.alloc_zeros::<u8>(bytes).unwrap();
    let graph = capture(&stream, || {
        for _ in 0..20 {
            stream.memcpy_dtod(&from, &mut into).unwrap();
        }
    });
    graph.launch().unwrap();
    stream.synchronize().unwrap();
    let start = Instant::now();
    for _ in 0..5 {
        graph.launch().unwrap();
    }
    stream.synchronize().unwrap();
    start.elapsed().as_secs_f64() * 1e6 / 100.0
}

#[test]
#[ignore = "a measurement, which needs a GPU of its own"]
fn all_reduce_against_a_copy() {
    let Some(_alone) = alone() else { return };
    println!("{:>10} {:>10}  time of an all-reduce by ranks of one GPU", "bytes", "copy");
    for bytes in [8, 16 << 10, 256 << 10, 2 << 20, 16 << 20, 128 << 20] {
        println!("{bytes:>10} {:>7.1} us", copy(bytes));
        for world in [2, 4, 8] {
            print!("{world:>10} ranks:");
            let own = [Algorithm::OneShot, Algorithm::TwoShot, Algorithm::Ring].map(Some);
            for algorithm in own.into_iter().chain([None]) {
                let (micros, name) = all_reduce(world, bytes, algorithm);
                print!("  {name} {micros:.1} us");
            }
            println!();
        }
    }
}
