//! Room on a device: for blocks of several groups, and for programs.

use crate::raw::context;
use crate::walks::ready;
use maypole::cuda::Comm;
use maypole::{Communicator, ReduceOp};
use std::sync::Arc;
use std::time::Duration;

crate::roles! {
    run_two_groups in 1: two_groups_of_one_device_run_at_the_same_time_emulated,
        [("FAKE_CUDA_PROCESSORS", "16")], [("FAKE_CUDA_PROCESSORS", "7")];
    // The first module is loaded when the group is made. Loading another one fails.
    exchange_first in 1: the_first_message_loads_no_kernel_emulated, [("FAKE_CUDA_FAIL", "cuModuleLoadData:9:2")];
    exchange_many in 1: messages_of_new_lengths_wait_for_no_kernel_emulated, [("FAKE_CUDA_POOLS", "0")];
    call_many in 1: programs_on_a_device_keep_to_their_budget_emulated;
}

/// Rank 0 starts long calls of two groups, and then rank 1 does. Every block of a call waits for one of
/// the other rank, so all of them need room at the same time.
fn run_two_groups() {
    Communicator::run_local(2, |mut comm| {
        let streams = [0, 1].map(|_| context(0).new_stream().unwrap());
        let mut groups: Vec<_> = streams
            .iter()
            .map(|stream| {
                let gpu = Comm::new(&mut comm, Arc::clone(stream)).unwrap();
                assert_eq!(gpu.host_reason(), None);
                let mut data = stream.clone_htod(&vec![1.0f32; 100_000]).unwrap();
                gpu.all_reduce_in_place(&mut data, &ReduceOp::Sum).unwrap();
                gpu.synchronize().unwrap();
                gpu.set_timeout(Duration::from_secs(4));
                comm.barrier().unwrap();
                (gpu, data)
            })
            .collect();
        let other = 1 - comm.rank();
        if comm.rank() == 1 {
            comm.recv(&mut [0u8], other, 0).unwrap();
        }
        for (gpu, data) in &mut groups {
            gpu.all_reduce_in_place(data, &ReduceOp::Sum).unwrap();
        }
        if comm.rank() == 0 {
            comm.send(&[0u8], other, 0).unwrap();
        }
        for (gpu, data) in &groups {
            gpu.synchronize().unwrap();
            assert_eq!(gpu.stream().clone_dtoh(data).unwrap(), [4.0; 100_000]);
        }
        comm.barrier().unwrap();
    });
}

fn exchange_first() {
    Communicator::run_local(2, |mut comm| {
        let stream = context(0).new_stream().unwrap();
        let gpu = Comm::new(&mut comm, Arc::clone(&stream)).unwrap();
        let mut data = stream.clone_htod(&[comm.rank() as f32; 1000]).unwrap();
        comm.barrier().unwrap();
        match comm.rank() {
            0 => gpu.send(&data, 1).unwrap(),
            _ => gpu.recv(&mut data, 0).unwrap(),
        }
        gpu.synchronize().unwrap();
        assert_eq!(stream.clone_dtoh(&data).unwrap(), [0.0; 1000]);
        comm.barrier().unwrap();
    });
}

/// Rank 1 receives a long message of a new length while the kernel that sends it waits for that.
/// Freeing memory would wait for the kernel.
fn exchange_many() {
    Communicator::run_local(2, |mut comm| {
        let stream = context(0).new_stream().unwrap();
        let (gpu, _data) = ready(&mut comm, &stream);
        let mut data = stream.clone_htod(&vec![comm.rank() as u8; 3_000_000]).unwrap();
        gpu.set_timeout(Duration::from_secs(10));
        stream.synchronize().unwrap();
        comm.barrier().unwrap();
        let mut exchange = |comm: &mut Communicator, len: usize| match comm.rank() {
            0 => {
                gpu.send(&data.slice(..len), 1).unwrap();
                comm.send(&[0u8], 1, 0).unwrap();
            }
            _ => {
                comm.recv(&mut [0u8], 0, 0).unwrap();
                gpu.recv(&mut data.slice_mut(..len), 0).unwrap();
            }
        };
        (1..=600).for_each(|len| exchange(&mut comm, len));
        (0..5).for_each(|more| exchange(&mut comm, 2_900_000 + more));
        gpu.synchronize().unwrap();
        assert!(stream.clone_dtoh(&data).unwrap()[..2_900_000].iter().all(|byte| *byte == 0));
        comm.barrier().unwrap();
    });
}

/// Programs of ever new calls take no more memory of the device than they may.
fn call_many() {
    Communicator::run_local(2, |mut comm| {
        comm.set_program_memory([32 << 10, 1 << 20][comm.rank()]);
        let stream = context(0).new_stream().unwrap();
        let (gpu, _data) = ready(&mut comm, &stream);
        gpu.set_timeout(Duration::from_secs(60));
        let mut data = stream.clone_htod(&[1.0f32; 4000]).unwrap();
        gpu.all_reduce_in_place(&mut data, &ReduceOp::Sum).unwrap();
        gpu.synchronize().unwrap();
        comm.barrier().unwrap();
        let free = || context(0).mem_get_info().unwrap().0;
        let before = free();
        for count in (1..=200).chain(1..=200) {
            gpu.all_reduce_in_place(&mut data.slice_mut(..count), &ReduceOp::Max).unwrap();
        }
        gpu.synchronize().unwrap();
        comm.barrier().unwrap();
        let taken = before.saturating_sub(free());
        assert!(taken < 1_000_000, "{taken} bytes");
        comm.barrier().unwrap();
    });
}
