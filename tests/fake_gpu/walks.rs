//! The kernel that walks programs, on several streams, devices and processes at the same time.

use crate::raw::context;
use crate::spawn::{as_each_rank, say};
use crate::{check, world};
use cudarc::driver::{CudaSlice, CudaStream};
use maypole::cuda::Comm;
use maypole::{Communicator, ReduceOp};
use std::sync::Arc;
use std::time::Duration;

crate::roles! {
    among_threads in 1: every_number_of_threads_has_the_same_bits_emulated,
        [("FAKE_CUDA_THREADS", "2")], [("FAKE_CUDA_THREADS", "3")], [("FAKE_CUDA_THREADS", "64")];
    among_processes;
    need_room;
}

/// Sums of several lengths, compared with those of the executor.
pub(crate) fn sum(comm: &mut Communicator, devices: usize) {
    let stream = context(comm.rank() % devices).new_stream().unwrap();
    let gpu = Comm::new(comm, stream.clone()).unwrap();
    for count in [1, 100, 5000, 300_001] {
        let mut expected: Vec<f32> =
            (0..count).map(|at| 1.0 / (at + 1 + comm.rank()) as f32).collect();
        let mut data = stream.clone_htod(&expected).unwrap();
        gpu.set_deterministic(true);
        gpu.all_reduce_in_place(&mut data, &ReduceOp::Sum).unwrap();
        gpu.synchronize().unwrap();
        comm.set_deterministic(true);
        comm.all_reduce(&mut expected, ReduceOp::Sum).unwrap();
        assert!(stream.clone_dtoh(&data).unwrap() == expected, "{count} numbers");
    }
    say("done", comm.rank());
}

fn among_threads() {
    let devices = maypole::cuda::driver().unwrap().devices();
    Communicator::run_local(4, |mut comm| sum(&mut comm, devices));
}

#[test]
fn kernels_of_several_streams_wait_for_one_another_emulated() {
    for devices in ["1", "2", "4"] {
        let variables = [("FAKE_CUDA_DEVICES", devices), ("FAKE_CUDA_SEED", devices)];
        let Some(ended) = check("among_threads", &variables) else { return };
        assert_eq!(ended.said("done").len(), 4);
    }
}

fn among_processes() {
    as_each_rank(|mut comm| sum(&mut comm, 2));
}

#[test]
fn kernels_of_several_processes_wait_for_one_another_emulated() {
    let several = [&[0, 1][..], &[0, 0, 1, 1], &[0, 0, 0, 1], &[0, 1, 2, 3]];
    for hosts in [&[0; 2][..], &[0; 4]].into_iter().chain(several) {
        let Some(world) = world("among_processes", hosts.len()) else { return };
        for ended in world.hosts(hosts).start().succeed() {
            assert_eq!(ended.said("done").len(), 1);
        }
    }
}

/// A group that has made one call, and that waits two seconds for another rank.
pub(crate) fn ready(comm: &mut Communicator, stream: &Arc<CudaStream>) -> (Comm, CudaSlice<f32>) {
    let gpu = Comm::new(comm, Arc::clone(stream)).unwrap();
    let mut data = stream.clone_htod(&[1.0f32; 100]).unwrap();
    gpu.all_reduce_in_place(&mut data, &ReduceOp::Sum).unwrap();
    gpu.synchronize().unwrap();
    comm.barrier().unwrap();
    gpu.set_timeout(Duration::from_secs(2));
    (gpu, data)
}

/// Blocks of kernels that wait for one another need room at the same time.
fn need_room() {
    let has_room = Communicator::run_local(2, |mut comm| {
        let stream = context(0).new_stream().unwrap();
        if let Err(error) = Comm::new(&mut comm, Arc::clone(&stream)) {
            assert!(error.to_string().contains("multiprocessors"), "{error}");
            return false;
        }
        let (gpu, mut data) = ready(&mut comm, &stream);
        gpu.all_reduce_in_place(&mut data, &ReduceOp::Sum).unwrap();
        gpu.synchronize().unwrap();
        assert_eq!(stream.clone_dtoh(&data).unwrap(), [4.0; 100]);
        // Lines of two, three and four blocks.
        for count in [1100, 2100, 4000] {
            let mut lines = stream.clone_htod(&vec![1.0f32; count]).unwrap();
            gpu.all_reduce_in_place(&mut lines, &ReduceOp::Sum).unwrap();
            gpu.synchronize().unwrap();
            assert_eq!(stream.clone_dtoh(&lines).unwrap(), vec![2.0; count]);
        }
        comm.barrier().unwrap();
        true
    });
    assert_eq!(has_room[0], has_room[1]);
    say("has room", has_room[0]);
}

#[test]
fn ranks_that_do_not_fit_on_a_device_are_refused_emulated() {
    for (processors, has_room) in [("1", "false"), ("2", "true")] {
        let Some(ended) = check("need_room", &[("FAKE_CUDA_PROCESSORS", processors)]) else {
            return;
        };
        assert_eq!(ended.said("has room"), [has_room], "{processors} processors");
    }
}
