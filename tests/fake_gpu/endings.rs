//! Ranks that leave a group on GPUs: before the others, at the same time, and with graphs.

use crate::raw::context;
use crate::spawn::{as_each_rank, ranks, say};
use crate::walks::ready;
use crate::{PLACES, check, skip, succeed, world};
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use maypole::cuda::Comm;
use maypole::{Communicator, ReduceOp};
use std::sync::Arc;

crate::roles! {
    drop_early in 2: a_rank_drops_its_groups_early_and_in_any_order_emulated,
        [PLACES[0]],
        [PLACES[1]];
    make_and_drop;
    make_and_close;
    be_unable_to_open;
    replay_after_drop;
}

/// Rank 1 keeps its part of the groups until rank 0, which has dropped its own, signals it, and drops them in the
/// other order.
fn drop_early() {
    as_each_rank(|mut comm| {
        let stream = context(0).new_stream().unwrap();
        let groups = [(); 2].map(|()| ready(&mut comm, &stream));
        if comm.rank() == 0 {
            groups.into_iter().for_each(drop);
            comm.send(&[1u8], 1, 0).unwrap();
        } else {
            comm.recv(&mut [0u8], 0, 0).unwrap();
            groups[0].0.check().unwrap();
            groups.into_iter().rev().for_each(drop);
        }
        comm.barrier().unwrap();
    });
}

/// The mailboxes of two groups at most fit into the memory of the device.
fn make_and_drop() {
    as_each_rank(|mut comm| {
        let stream = context(0).new_stream().unwrap();
        for _ in 0..12 {
            drop(ready(&mut comm, &stream));
        }
    });
}

fn make_and_close() {
    as_each_rank(|mut comm| {
        let stream = context(0).new_stream().unwrap();
        let free = || context(0).mem_get_info().unwrap().0;
        let before = free();
        for _ in 0..12 {
            let (gpu, data) = ready(&mut comm, &stream);
            drop(data);
            gpu.close().unwrap();
            stream.synchronize().unwrap();
            assert_eq!(free(), before);
        }
    });
}

#[test]
fn memory_of_groups_that_all_have_left_is_freed_emulated() {
    crate::skip::takes_turns!(4);
    let cases = ["1", "2"].into_iter().flat_map(|devices| PLACES.map(|place| (devices, place)));
    for (devices, place) in skip::every_nth(3, cases) {
        let variables = [("FAKE_CUDA_MEMORY", "120000000"), ("FAKE_CUDA_DEVICES", devices), place];
        succeed("make_and_drop", 2, &variables);
        succeed("make_and_close", 2, &variables);
    }
}

/// The driver of rank 1 does not open the memory of rank 0.
fn be_unable_to_open() {
    as_each_rank(|mut comm| {
        let stream = context(0).new_stream().unwrap();
        for _ in 0..5 {
            let gpu = Comm::new(&mut comm, Arc::clone(&stream)).unwrap();
            assert!(gpu.host_mailboxes().is_some());
        }
        say("done", comm.rank());
    });
}

#[test]
fn memory_that_a_rank_cannot_open_is_freed_when_the_others_have_closed_theirs_emulated() {
    let Some(world) = world("be_unable_to_open", 2) else { return };
    let world = world.set_of(1, "FAKE_CUDA_FAIL", "cuIpcOpenMemHandle_v2:0:205");
    for ended in world.set("FAKE_CUDA_MEMORY", "120000000").start().succeed() {
        assert!(!ended.lines.iter().any(|line| line.contains("freed while")));
    }
}

fn replay(mut comm: Communicator) {
    let stream = context(0).new_stream().unwrap();
    // SAFETY: all work is on one stream.
    unsafe { stream.context().disable_event_tracking() };
    let gpu = Comm::new(&mut comm, Arc::clone(&stream)).unwrap();
    let one = stream.clone_htod(&[1.0f32; 1000]).unwrap();
    let mut sum = stream.alloc_zeros::<f32>(1000).unwrap();
    gpu.all_reduce(&one, &mut sum, &ReduceOp::Sum).unwrap();
    gpu.synchronize().unwrap();
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    stream.begin_capture(mode).unwrap();
    gpu.all_reduce(&one, &mut sum, &ReduceOp::Sum).unwrap();
    let graph = stream.end_capture(CUgraphInstantiate_flags(0)).unwrap().unwrap();
    graph.launch().unwrap();
    comm.barrier().unwrap();
    drop(gpu);
    comm.barrier().unwrap();
    let mut other = stream.clone_htod(&[7.0f32; 1000]).unwrap();
    stream.memcpy_dtod(&other, &mut sum).unwrap();
    let start = std::time::Instant::now();
    if comm.rank() == 0 {
        graph.launch().unwrap();
        stream.synchronize().unwrap();
    }
    comm.barrier().unwrap();
    assert!(start.elapsed() < std::time::Duration::from_secs(60), "it waits for nobody");
    // Nothing is summed any more, and the job continues.
    assert_eq!(stream.clone_dtoh(&sum).unwrap(), [7.0; 1000]);
    let (gpu, mut data) = ready(&mut comm, &stream);
    gpu.all_reduce_in_place(&mut data, &ReduceOp::Sum).unwrap();
    gpu.synchronize().unwrap();
    stream.memcpy_htod(&[2.0f32; 1000], &mut other).unwrap();
    comm.barrier().unwrap();
}

fn replay_after_drop() {
    match ranks()[..] {
        [0] if std::env::var("TEST_THREADS").is_ok() => drop(Communicator::run_local(2, replay)),
        _ => as_each_rank(replay),
    }
}

#[test]
fn a_graph_that_is_replayed_after_its_group_was_dropped_does_nothing_emulated() {
    if check("replay_after_drop", &[("TEST_THREADS", "1")]).is_some() {
        for place in PLACES {
            succeed("replay_after_drop", 2, &[place]);
        }
    }
}
