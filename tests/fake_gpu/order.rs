//! Calls in other orders than their ranks agreed on, or after a failure: no rank accepts wrong
//! bytes.

use crate::check;
use crate::raw::{context, hold};
use crate::walks::ready;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaSlice, CudaStream};
use maypole::cuda::Comm;
use maypole::{Communicator, Error, ReduceOp};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

crate::roles! {
    pass_barrier in 1: a_barrier_waits_for_the_streams_of_all_ranks_emulated;
    call_behind_failure in 1: calls_behind_one_that_failed_publish_nothing_emulated;
    cross_calls in 1: calls_in_other_orders_are_not_summed_emulated;
    launch_beside_calls;
    fail_long_before in 1: the_call_that_failed_is_named_not_the_last_one_emulated;
}

/// A group of two ranks that has reduced and broadcast two numbers, and the numbers of a rank.
fn pair(comm: &mut Communicator) -> (Comm, Arc<CudaStream>, CudaSlice<f32>) {
    let stream = context(0).new_stream().unwrap();
    let (gpu, _) = ready(comm, &stream);
    let mut numbers = stream.clone_htod(&[0.0f32; 2]).unwrap();
    gpu.all_reduce_in_place(&mut numbers, &ReduceOp::Sum).unwrap();
    gpu.broadcast_in_place(&mut numbers, 0).unwrap();
    gpu.synchronize().unwrap();
    let numbers = stream.clone_htod(&[[1.0f32, 10.0][comm.rank()]; 2]).unwrap();
    stream.synchronize().unwrap();
    comm.barrier().unwrap();
    (gpu, stream, numbers)
}

fn numbers(slice: &CudaSlice<f32>) -> Vec<f32> {
    slice.stream().clone_dtoh(slice).unwrap()
}

/// Rank 1's stream does other work first.
fn pass_barrier() {
    let passed = Communicator::run_local(2, |mut comm| {
        let stream = context(0).new_stream().unwrap();
        let (gpu, _) = ready(&mut comm, &stream);
        gpu.barrier().unwrap();
        gpu.synchronize().unwrap();
        comm.barrier().unwrap();
        let (open, gate) = mpsc::channel();
        if comm.rank() == 1 {
            hold(&stream, gate);
        }
        gpu.barrier().unwrap();
        let passed = comm.rank() == 0 && gpu.synchronize().is_ok();
        let _ = comm.barrier();
        drop(open);
        let _ = gpu.synchronize();
        passed
    });
    assert_eq!(passed, [false, false]);
}

/// Rank 0 aborts a call, after which another one is queued. Then rank 1 makes the first one.
fn call_behind_failure() {
    let met = Barrier::new(2);
    let sums = Communicator::run_local(2, |mut comm| {
        let (gpu, stream, mut first) = pair(&mut comm);
        let mut second = stream.clone_htod(&[1000.0f32; 2]).unwrap();
        stream.synchronize().unwrap();
        met.wait();
        let (open, gate) = mpsc::channel();
        if comm.rank() == 1 {
            hold(&stream, gate);
            gpu.set_timeout(Duration::from_secs(60));
        }
        gpu.all_reduce_in_place(&mut first, &ReduceOp::Sum).unwrap();
        if comm.rank() == 0 {
            gpu.all_reduce_in_place(&mut second, &ReduceOp::Sum).unwrap();
            stream.synchronize().unwrap();
        }
        met.wait();
        drop(open);
        stream.synchronize().unwrap();
        assert!(comm.rank() == 1 || gpu.synchronize().is_err());
        numbers(&first)
    });
    assert!([[11.0; 2], [10.0; 2]].contains(&[sums[1][0], sums[1][1]]), "{sums:?}");
}

/// Rank 0 broadcasts and reduces, rank 1 reduces and broadcasts. Rank 0's broadcast ends
/// immediately.
fn cross_calls() {
    let met = Barrier::new(2);
    Communicator::run_local(2, |mut comm| {
        let (gpu, stream, mut sum) = pair(&mut comm);
        let mut told = stream.clone_htod(&[700.0f32; 2]).unwrap();
        if comm.rank() == 0 {
            gpu.broadcast_in_place(&mut told, 0).unwrap();
            stream.synchronize().unwrap();
            gpu.all_reduce_in_place(&mut sum, &ReduceOp::Sum).unwrap();
            // If it is late, rank 1 detects the mismatch in another way.
            std::thread::sleep(Duration::from_millis(100));
            met.wait();
        } else {
            met.wait();
            gpu.all_reduce_in_place(&mut sum, &ReduceOp::Sum).unwrap();
        }
        let error = gpu.synchronize().unwrap_err();
        let named = matches!(error, Error::Mismatch { .. } | Error::Aborted { .. });
        assert!(named, "{error}");
        assert_eq!(numbers(&sum), [[1.0f32, 10.0][comm.rank()]; 2]);
    });
}

/// The work of `work` on `stream`, as work of `other` in a graph.
fn capture_beside(
    stream: &Arc<CudaStream>,
    other: &Arc<CudaStream>,
    work: impl FnOnce(),
) -> CudaGraph {
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    other.begin_capture(mode).unwrap();
    stream.join(other).unwrap();
    work();
    other.join(stream).unwrap();
    let graph = other.end_capture(CUgraphInstantiate_flags(0)).unwrap();
    graph.expect("something was captured")
}

/// A graph and calls run at the same time, which no stream orders.
fn launch_beside_calls() {
    Communicator::run_local(2, |mut comm| {
        let stream = context(0).new_stream().unwrap();
        // SAFETY: the streams are joined, or synchronized, where one needs what another one did.
        unsafe { stream.context().disable_event_tracking() };
        let other = context(0).new_stream().unwrap();
        let (gpu, _) = ready(&mut comm, &stream);
        let one = stream.clone_htod(&[1.0f32; 1000]).unwrap();
        let ten = stream.clone_htod(&[10.0f32; 1000]).unwrap();
        let mut twos = stream.alloc_zeros::<f32>(1000).unwrap();
        let mut twenties = stream.alloc_zeros::<f32>(1000).unwrap();
        gpu.all_reduce(&one, &mut twos, &ReduceOp::Sum).unwrap();
        gpu.synchronize().unwrap();
        let graph = capture_beside(&stream, &other, || {
            gpu.all_reduce(&one, &mut twos, &ReduceOp::Sum).unwrap();
        });
        comm.barrier().unwrap();
        for round in 0..100 {
            stream.memset_zeros(&mut twos).unwrap();
            stream.synchronize().unwrap();
            graph.launch().unwrap();
            let called = gpu.all_reduce(&ten, &mut twenties, &ReduceOp::Sum);
            let done = called.and_then(|()| gpu.synchronize());
            other.synchronize().unwrap();
            if let Err(error) = done.and_then(|()| gpu.synchronize()) {
                return drop(error);
            }
            for (slice, right) in [(&twos, 2.0), (&twenties, 20.0)] {
                assert_eq!(numbers(slice), [right; 1000], "round {round}");
            }
        }
    });
}

#[test]
fn a_graph_beside_calls_is_right_or_an_error_emulated() {
    for delay in ["0", "100"] {
        check("launch_beside_calls", &[("FAKE_CUDA_DELAY", delay)]);
    }
}

/// Rank 0 calls something that rank 1 does not, and then other things.
fn fail_long_before() {
    Communicator::run_local(2, |mut comm| {
        let (gpu, stream, mut numbers) = pair(&mut comm);
        if comm.rank() == 0 {
            gpu.all_reduce_in_place(&mut numbers, &ReduceOp::Sum).unwrap();
            for _ in 0..20 {
                gpu.broadcast_in_place(&mut numbers, 0).unwrap();
            }
            stream.synchronize().unwrap();
            let error = gpu.synchronize().unwrap_err().to_string();
            assert!(error.contains("of all_reduce(2 x f32, sum)"), "{error}");
        }
        let _ = comm.barrier();
    });
}
