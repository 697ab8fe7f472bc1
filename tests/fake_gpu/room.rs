//! Room on a device: for blocks of several groups, and for programs.

use crate::check;
use crate::raw::context;
use crate::walks::ready;
use maypole::cuda::Comm;
use maypole::{Communicator, ReduceOp};
use std::sync::Arc;
use std::time::Duration;

crate::roles! {
    run_two_groups in 1: two_groups_of_one_device_run_at_the_same_time_emulated,
        [("FAKE_CUDA_PROCESSORS", "16")],
        [("FAKE_CUDA_PROCESSORS", "7")];
    exchange_first in 1: the_first_message_loads_no_kernel_emulated,
        [("FAKE_CUDA_FAIL", "cuModuleLoadData:9:2")];
    exchange_many in 1: messages_of_new_lengths_wait_for_no_kernel_emulated,
        [("FAKE_CUDA_POOLS", "0")];
    call_many in 1: programs_on_a_device_keep_to_their_budget_emulated;
    exchange_groups;
    share_few;
}

/// Rank 0 starts long calls of two groups, and then rank 1 does. Every block of a call waits for one of
/// the other rank, so all of them need room at the same time.
fn run_two_groups() {
    Communicator::run_local(2, |mut comm| {
        let streams = [0, 1].map(|_| context(0).new_stream().unwrap());
        let mut groups = streams.map(|stream| {
            let (gpu, _) = ready(&mut comm, &stream);
            gpu.set_timeout(Duration::from_secs(4));
            (gpu, stream.clone_htod(&vec![1.0f32; 100_000]).unwrap())
        });
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
            assert_eq!(gpu.stream().clone_dtoh(data).unwrap(), [2.0; 100_000]);
        }
        comm.barrier().unwrap();
    });
}

/// The first module is loaded when the group is made. Loading another one fails.
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

/// The blocks of the launches of `kernel` between two lines of a process that the test has asked for.
fn blocks(lines: &[String], kernel: &str, part: usize) -> Vec<u32> {
    let mut parts = lines.split(|line| line.starts_with("@part"));
    let part = parts.nth(part).expect("the process has printed so many lines");
    let of =
        |line: &String| line.strip_prefix("launch ")?.strip_prefix(kernel)?.trim().parse().ok();
    part.iter().filter_map(of).collect()
}

/// A sum by slots, then groups of messages to the other rank and to itself: short, long and two a pair.
fn exchange_groups() {
    const LONG: usize = 512 << 10;
    Communicator::run_local(2, |mut comm| {
        let stream = context(0).new_stream().unwrap();
        let (gpu, _data) = ready(&mut comm, &stream);
        let (me, other) = (gpu.rank(), 1 - gpu.rank() as i32);
        let part = |comm: &mut Communicator| {
            gpu.synchronize().unwrap();
            comm.barrier().unwrap();
            eprintln!("@part");
            comm.barrier().unwrap();
        };
        let bytes = |of: usize, len: usize| -> Vec<u8> {
            (0..len).map(|at| (at * 31 + of * 7 + at / 1000) as u8).collect()
        };
        let mine = stream.clone_htod(&bytes(me, LONG)).unwrap();
        let mut sum = stream.clone_htod(&vec![1.0f32; LONG / 2]).unwrap();
        part(&mut comm);
        gpu.set_algorithm(Some(maypole::algorithms::Algorithm::Ring));
        gpu.all_reduce_in_place(&mut sum, &ReduceOp::Sum).unwrap();
        part(&mut comm);
        for lens in [[40, 40, 40], [LONG, LONG - 5, 1 << 16], [100_003, 17, LONG]] {
            let mut theirs = lens.map(|len| stream.alloc_zeros::<u8>(len).unwrap());
            let [a, b, c] = &mut theirs;
            let mut group = gpu.group();
            group.recv(a.as_view_mut(), other).unwrap();
            for (len, to) in lens.into_iter().zip([other, other, me as i32]) {
                group.send(mine.slice(..len), to).unwrap();
            }
            group.recv(b.as_view_mut(), other).unwrap();
            group.recv(c.as_view_mut(), me as i32).unwrap();
            group.end().unwrap();
            part(&mut comm);
            for ((len, got), from) in lens.into_iter().zip(&theirs).zip([1 - me, 1 - me, me]) {
                assert!(stream.clone_dtoh(got).unwrap() == bytes(from, len), "{len} bytes");
            }
        }
    });
}

/// A group of messages is one launch, of few blocks if it is short, and else of as many as a sum of so many
/// bytes has.
#[test]
fn a_group_of_messages_is_one_launch_emulated() {
    let variables = [("FAKE_CUDA_PROCESSORS", "132"), ("FAKE_CUDA_LAUNCH_TRACE", "1")];
    let Some(ended) = check("exchange_groups", &variables) else { return };
    // Each of the two ranks prints a line.
    let blocks = |kernel, part: usize| blocks(&ended.lines, kernel, 2 * part);
    assert_eq!(blocks("walk_f32_sum", 1), [48, 48], "{:?}", ended.lines);
    assert_eq!([2, 3, 4].map(|part| blocks("walk_u8_max", part)), [[5; 2], [48; 2], [48; 2]]);
}

/// Eight ranks exchange messages that take all of their blocks.
fn share_few() {
    Communicator::run_local(8, |mut comm| {
        let stream = context(0).new_stream().unwrap();
        let (gpu, _data) = ready(&mut comm, &stream);
        gpu.set_timeout(Duration::from_secs(60));
        let (me, count) = (gpu.rank(), 50_000);
        let mine = stream.clone_htod(&vec![me as u32; count]).unwrap();
        let mut theirs: Vec<_> =
            (0..8).map(|_| stream.alloc_zeros::<u32>(count).unwrap()).collect();
        let views: Vec<_> = theirs.iter_mut().map(|it| it.as_view_mut()).collect();
        let mut group = gpu.group();
        for (peer, view) in views.into_iter().enumerate() {
            group.send(mine.as_view(), peer as i32).unwrap();
            group.recv(view, peer as i32).unwrap();
        }
        group.end().unwrap();
        gpu.synchronize().unwrap();
        for (peer, got) in theirs.iter().enumerate() {
            assert!(stream.clone_dtoh(got).unwrap() == vec![peer as u32; count]);
        }
        comm.barrier().unwrap();
    });
}

/// All blocks of all ranks run at the same time, so there are never more than the driver has room for: here two on each of
/// four multiprocessors.
#[test]
fn ranks_share_the_blocks_that_the_driver_has_room_for_emulated() {
    let [few, trace] = [("FAKE_CUDA_PROCESSORS", "4"), ("FAKE_CUDA_LAUNCH_TRACE", "1")];
    let few = [few, ("FAKE_CUDA_REGISTERS", "131072"), trace];
    let Some(ended) = check("share_few", &few) else { return };
    assert_eq!(blocks(&ended.lines, "walk_u8_max", 0), [1; 8], "a group of each rank");
}
