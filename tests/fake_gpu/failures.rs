//! Failures that only the GPU, or another rank, detects first, and calls that are refused.

use crate::raw::{context, hold};
use crate::walks::ready;
use cudarc::driver::CudaSlice;
use maypole::cuda::Comm;
use maypole::{Communicator, Error, ReduceOp};
use std::sync::mpsc;
use std::time::Duration;

crate::roles! {
    give_up_unseen in 1: a_kernel_that_gives_up_fails_the_job_without_a_call_of_its_rank_emulated;
    check_beside in 1: a_thread_that_checks_does_not_wait_for_the_stream_emulated;
    drop_a_group in 1: a_dropped_group_that_cannot_start_fails_the_job_emulated;
    end_in_the_middle in 1: a_group_that_stops_in_the_middle_fails_the_job_emulated;
    lend_elsewhere in 1: a_buffer_of_another_gpu_is_refused_emulated;
}

/// Rank 0 starts a call that rank 1 does not make. No rank calls the library afterwards.
fn give_up_unseen() {
    Communicator::run_local(2, |mut comm| {
        let stream = context(0).new_stream().unwrap();
        let (gpu, mut data) = ready(&mut comm, &stream);
        comm.set_timeout(Duration::from_secs(30));
        let other = 1 - comm.rank();
        if comm.rank() == 0 {
            gpu.all_reduce_in_place(&mut data, &ReduceOp::Sum).unwrap();
            stream.synchronize().unwrap();
        }
        let error = comm.recv(&mut [0u8], other, 0).unwrap_err();
        let told = error.to_string();
        assert!(told.contains("for rank 1 in step 0 of all_reduce"), "{told}");
        // Rank 1 waits for rank 0 as well, which still waits for its stream, outside the library, or
        // has begun its own `recv`, or waits in it for rank 1: then neither of them is to blame alone.
        match error.culprit() {
            None => assert!(told.contains("ranks wait for one another"), "{told}"),
            culprit => {
                assert_eq!(culprit, Some(0), "{told}");
                let begun = told.contains("rank 0 is in a message");
                assert!(begun || told.contains("rank 0 is outside the library"), "{told}");
            }
        }
        // Also where the kernels of a rank have ended.
        for told in [gpu.check(), gpu.synchronize()] {
            let error = told.unwrap_err();
            assert!(error.to_string().contains("all_reduce"), "{error}");
        }
    });
}

fn check_beside() {
    Communicator::run_local(2, |mut comm| {
        let stream = context(0).new_stream().unwrap();
        let (gpu, _data) = ready(&mut comm, &stream);
        if comm.rank() == 1 {
            return comm.barrier().unwrap();
        }
        let (open, gate) = mpsc::channel();
        hold(&stream, gate);
        let gpu = &gpu;
        let (done, checked) = mpsc::channel();
        std::thread::scope(|threads| {
            threads.spawn(|| gpu.synchronize().unwrap());
            std::thread::sleep(Duration::from_millis(200));
            threads.spawn(move || {
                gpu.check().unwrap();
                gpu.set_timeout(Duration::from_secs(9));
                done.send(gpu.links().world()).unwrap();
            });
            let found = checked.recv_timeout(Duration::from_secs(20));
            drop(open);
            assert_eq!(found, Ok(2), "the other thread waits for the stream");
        });
        comm.barrier().unwrap();
    });
}

/// Every rank runs `calls` on a buffer, which stops at a message of a rank to itself without a
/// receive. Then the job has failed, and reports it.
fn stop_in(calls: impl Fn(&Comm, &mut CudaSlice<f32>, &CudaSlice<f32>) + Sync) {
    Communicator::run_local(2, |mut comm| {
        let stream = context(0).new_stream().unwrap();
        let (gpu, mut known) = ready(&mut comm, &stream);
        let sent = stream.clone_htod(&[1.0f32; 50]).unwrap();
        comm.barrier().unwrap();
        calls(&gpu, &mut known, &sent);
        for told in [gpu.check(), gpu.synchronize()] {
            let error = told.unwrap_err();
            assert!(error.to_string().contains("without a matching call"), "{error}");
        }
    });
}

fn drop_a_group() {
    stop_in(|gpu, _, sent| {
        let mut group = gpu.group();
        group.send(sent.as_view(), gpu.rank() as i32).unwrap();
    });
}

fn end_in_the_middle() {
    stop_in(|gpu, known, sent| {
        let mut group = gpu.group();
        group.all_reduce_in_place(known.as_view_mut(), &ReduceOp::Sum).unwrap();
        group.send(sent.as_view(), gpu.rank() as i32).unwrap();
        group.end().unwrap_err();
    });
}

fn lend_elsewhere() {
    Communicator::run_local(2, |mut comm| {
        let stream = context(0).new_stream().unwrap();
        let (gpu, mut data) = ready(&mut comm, &stream);
        let other = context(1).new_stream().unwrap();
        let mut there = other.clone_htod(&[1.0f32; 100]).unwrap();
        let sum = ReduceOp::Sum;
        let peer = 1 - comm.rank() as i32;
        let refused = [
            gpu.all_reduce_in_place(&mut there, &sum),
            gpu.all_reduce(&there, &mut data, &sum),
            gpu.all_reduce(&data, &mut there, &sum),
            gpu.broadcast_in_place(&mut there, 0),
            gpu.send(&there, peer),
            gpu.recv(&mut there, peer),
            gpu.group().send(there.as_view(), peer),
        ];
        let grouped = gpu.group().all_reduce_in_place(there.as_view_mut(), &sum);
        let refused = refused.into_iter().chain([grouped]);
        for error in refused.map(Result::unwrap_err) {
            assert!(matches!(error, Error::Invalid { .. }), "{error}");
            assert!(error.to_string().contains("GPU 1"), "{error}");
        }
        gpu.all_reduce_in_place(&mut data, &sum).unwrap();
        gpu.synchronize().unwrap();
        comm.barrier().unwrap();
    });
}
