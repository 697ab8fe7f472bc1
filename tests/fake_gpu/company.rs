//! Groups concurrent with others: left while a call of another group waits, with calls that cannot start,
//! and with mailboxes in memory of the host. The driver waits for all work of a device when memory is freed, and no launch begins
//! meanwhile (`FAKE_CUDA_FREE_HOLDS`); with `FAKE_CUDA_LOAD_WAITS` so it does when a module is
//! loaded.

use crate::raw::context;
use crate::spawn::{as_each_rank, say};
use crate::walks::ready;
use crate::{PLACES, succeed, world};
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use maypole::cuda::{Comm, CommOptions};
use maypole::schedule::collective::Collective;
use maypole::{Communicator, Error, ReduceOp};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

crate::roles! {
    leave_beside in 2: a_group_is_left_beside_a_call_that_waits_emulated,
        [WAITING[0], WAITING[1], WAITING[2], PLACES[0]],
        [WAITING[0], WAITING[1], WAITING[2], PLACES[1]];
    make_beside in 2: memory_of_groups_is_used_again_while_a_call_waits_emulated,
        [WAITING[0], WAITING[1], WAITING[2], MEMORY, PLACES[0]],
        [WAITING[0], WAITING[1], WAITING[2], MEMORY, PLACES[1]];
    refuse_in_group in 1: a_group_with_a_refused_call_starts_nothing_emulated,
        [WAITING[2]];
    panic_in_group in 1: a_panic_in_a_group_starts_nothing_and_is_told_emulated,
        [WAITING[2]];
    make_beside_thread in 1: a_group_is_made_beside_the_call_of_a_thread_that_shares_the_gpu_emulated,
        [WAITING[2], PLACES[0]],
        [WAITING[2], PLACES[1]];
    load_for_few in 1: a_module_is_loaded_beside_a_call_that_waits_for_its_thread_emulated,
        [PLACES[0]],
        [PLACES[1]];
    tell_place;
}

const MEMORY: (&str, &str) = ("FAKE_CUDA_MEMORY", "200000000");
const WAITING: [(&str, &str); 3] =
    [("FAKE_CUDA_FREE_HOLDS", "1"), ("FAKE_CUDA_LOAD_WAITS", "1"), ("FAKE_CUDA_DEVICES", "2")];

/// Rank 0 leaves group B while its call of group A waits for rank 1, which waits for a message that rank 0
/// sends afterwards.
fn leave_beside() {
    as_each_rank(|mut comm| {
        let (stream, other) = (context(0).new_stream().unwrap(), context(0).new_stream().unwrap());
        let (a, mut data) = ready(&mut comm, &stream);
        let (b, kept) = ready(&mut comm, &other);
        // On the stream of the other group.
        let (c, _kept) = ready(&mut comm, &stream);
        a.set_timeout(Duration::from_secs(20));
        let start = Instant::now();
        if comm.rank() == 0 {
            a.all_reduce_in_place(&mut data, &ReduceOp::Sum).unwrap();
            drop(b);
            drop(c);
            let took = start.elapsed();
            assert!(took < Duration::from_secs(5), "leaving took {took:?}");
            comm.send(&[1u8], 1, 0).unwrap();
        } else {
            comm.recv(&mut [0u8], 0, 0).unwrap();
            a.all_reduce_in_place(&mut data, &ReduceOp::Sum).unwrap();
        }
        a.synchronize().unwrap();
        drop(kept);
        comm.barrier().unwrap();
    });
}

/// Ranks 0 and 2 are threads that share a GPU, whose call waits while a group is made on streams of
/// their own. Nothing of that may wait for all work of the GPU.
fn make_beside_thread() {
    Communicator::run_local(3, |mut comm| {
        let [of_a, new] = [(); 2].map(|()| context(comm.rank() % 2));
        let (a, mut data) = ready(&mut comm, &of_a.new_stream().unwrap());
        a.set_timeout(Duration::from_secs(60));
        if comm.rank() == 0 {
            a.all_reduce_in_place(&mut data, &ReduceOp::Sum).unwrap();
        }
        let _made = Comm::new(&mut comm, new.per_thread_stream()).unwrap();
        if comm.rank() > 0 {
            a.all_reduce_in_place(&mut data, &ReduceOp::Sum).unwrap();
        }
        a.synchronize().unwrap();
    });
}

/// Ranks 0 and 2 load a module for a call of a group of their own, while a call of rank 1, a thread that shares
/// their GPU, waits for both: no load waits for the end of that.
fn load_for_few() {
    Communicator::run_local(3, |mut comm| {
        let (all, mut data) = ready(&mut comm, &context(0).new_stream().unwrap());
        all.set_timeout(Duration::from_secs(60));
        let color = (comm.rank() != 1).then_some(0);
        let few = all.split(color, 0, &CommOptions::default()).unwrap();
        if few.is_none() {
            all.all_reduce_in_place(&mut data, &ReduceOp::Sum).unwrap();
        }
        comm.barrier().unwrap();
        let start = Instant::now();
        if let Some(few) = few {
            let mut one = few.stream().clone_htod(&[1.0f32]).unwrap();
            few.all_reduce_in_place(&mut one, &ReduceOp::Min).unwrap();
            all.all_reduce_in_place(&mut data, &ReduceOp::Sum).unwrap();
            few.synchronize().unwrap();
        }
        all.synchronize().unwrap();
        assert!(start.elapsed() < Duration::from_secs(5), "a module waited");
    });
}

/// Groups are made and left many times while a call waits. Their memory is used again, though
/// nothing can be freed: the device has room for few of them.
fn make_beside() {
    as_each_rank(|mut comm| {
        let (stream, other) = (context(0).new_stream().unwrap(), context(0).new_stream().unwrap());
        let (a, mut data) = ready(&mut comm, &stream);
        a.set_timeout(Duration::from_secs(60));
        if comm.rank() == 0 {
            a.all_reduce_in_place(&mut data, &ReduceOp::Sum).unwrap();
        }
        for _ in 0..8 {
            drop(ready(&mut comm, &other));
            comm.barrier().unwrap();
        }
        if comm.rank() == 1 {
            a.all_reduce_in_place(&mut data, &ReduceOp::Sum).unwrap();
        }
        a.synchronize().unwrap();
        comm.barrier().unwrap();
        drop((a, data));
        comm.barrier().unwrap();
        // Now it is free, though no group is made or left.
        let free = || context(0).mem_get_info().unwrap().0;
        let all = context(0).mem_get_info().unwrap().1;
        let until = Instant::now() + Duration::from_secs(10);
        while free() < all {
            assert!(Instant::now() < until, "{} bytes are not free", all - free());
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

/// A group of calls to which one cannot be added starts none of them, dropped or ended.
fn refuse_in_group() {
    let sums = Communicator::run_local(2, |mut comm| {
        let stream = context(comm.rank()).new_stream().unwrap();
        let gpu = Comm::new(&mut comm, Arc::clone(&stream)).unwrap();
        let one = stream.clone_htod(&[1.0f32; 64]).unwrap();
        let mut sum = stream.clone_htod(&[7.0f32; 64]).unwrap();
        for ends in [false, true] {
            let mut group = gpu.group();
            group.all_reduce(one.as_view(), sum.as_view_mut(), &ReduceOp::Sum).unwrap();
            let refused = group.send(one.as_view(), 9).unwrap_err();
            assert!(matches!(refused, Error::Invalid { .. }), "{refused}");
            match ends {
                true => assert!(group.end().is_err()),
                false => drop(group),
            }
            gpu.synchronize().unwrap();
            assert_eq!(stream.clone_dtoh(&sum).unwrap(), [7.0; 64]);
        }
        gpu.check().unwrap();
        comm.barrier().unwrap();
        0
    });
    assert_eq!(sums, [0, 0]);
}

/// A thread panics between calls of a group: none of them starts, and the communicator has failed on all ranks.
fn panic_in_group() {
    let failed = Communicator::run_local(2, |mut comm| {
        let stream = context(comm.rank()).new_stream().unwrap();
        let gpu = Comm::new(&mut comm, Arc::clone(&stream)).unwrap();
        let one = stream.clone_htod(&[1.0f32; 64]).unwrap();
        let mut sum = stream.clone_htod(&[7.0f32; 64]).unwrap();
        stream.synchronize().unwrap();
        if comm.rank() == 0 {
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                let mut group = gpu.group();
                group.all_reduce(one.as_view(), sum.as_view_mut(), &ReduceOp::Sum).unwrap();
                std::panic::resume_unwind(Box::new("between two calls"));
            }));
            assert!(panicked.is_err());
            assert_eq!(stream.clone_dtoh(&sum).unwrap(), [7.0; 64]);
        }
        let until = Instant::now() + Duration::from_secs(10);
        while gpu.check().is_ok() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        let error = gpu.check().unwrap_err().to_string();
        assert!(error.contains("panicked before the end of the group"), "{error}");
        1
    });
    assert_eq!(failed, [1, 1]);
}

/// Says where the mailboxes are, and why. Sums, also in a graph if there are mailboxes.
fn tell_place() {
    as_each_rank(|mut comm| {
        let stream = context(comm.rank()).new_stream().unwrap();
        // SAFETY: all work is on one stream.
        unsafe { stream.context().disable_event_tracking() };
        let gpu = match Comm::new(&mut comm, Arc::clone(&stream)) {
            Ok(gpu) => gpu,
            Err(error) => {
                say("place", "");
                return say("reason", error.to_string().split_once(": ").unwrap().1);
            }
        };
        let place = gpu.host_mailboxes();
        let told = gpu.explain(Collective::AllReduce, 4096).to_string();
        assert!(place.iter().all(|why| told.contains(why)), "{told}");
        let mut data = stream.clone_htod(&[1.0f32; 100]).unwrap();
        stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
        gpu.all_reduce_in_place(&mut data, &ReduceOp::Sum).unwrap();
        let graph = stream.end_capture(CUgraphInstantiate_flags(0)).unwrap().unwrap();
        graph.launch().unwrap();
        graph.launch().unwrap();
        gpu.synchronize().unwrap();
        assert_eq!(stream.clone_dtoh(&data).unwrap(), [4.0; 100]);
        say("place", place.unwrap_or_default());
        say("reason", "");
        comm.barrier().unwrap();
    });
}

/// What two ranks on two GPUs say, equal on both: why mailboxes are in memory of the host, and why there are
/// none.
fn place(variables: &[(&str, &str)]) -> Option<[String; 2]> {
    let variables = [&[WAITING[2]], variables].concat();
    let ended = succeed("tell_place", 2, &variables)?;
    let [one, other] =
        [0, 1].map(|rank| ["place", "reason"].map(|tag| ended[rank].said(tag)[0].to_owned()));
    assert_eq!(one, other);
    Some(one)
}

#[test]
fn writes_that_do_not_arrive_are_found_before_the_first_call_emulated() {
    for pairs in ["all", "1-0"] {
        let Some([place, reason]) = place(&[("FAKE_CUDA_MIRROR", pairs)]) else { return };
        assert!(place.contains("(ACS)") && reason.is_empty(), "{place}, {reason}");
    }
    // Other pairs do not matter.
    let variables = [("FAKE_CUDA_MIRROR", "2-3"), ("FAKE_CUDA_DEVICES", "4")];
    assert_eq!(place(&variables), Some([const { String::new() }; 2]));
}

#[test]
fn gpus_that_do_not_reach_one_another_meet_in_memory_of_the_host_emulated() {
    let apart = ("FAKE_CUDA_NO_PEERS", "all");
    let Some(said) = place(&[apart]) else { return };
    assert!(said[0].contains("cannot reach the memory") && said[1].is_empty(), "{said:?}");
    assert_eq!(place(&[PLACES[1]]).unwrap(), ["MAYPOLE_CUDA_MAILBOXES=host", ""]);
    let said = place(&[apart, PLACES[0]]).unwrap();
    assert!(said[0].is_empty() && said[1].contains("cannot reach the memory"), "{said:?}");
}

/// The driver of rank 1 does not register memory of the host, or a variable is wrong there.
#[test]
fn a_rank_without_memory_of_the_host_and_a_wrong_value_are_told_on_all_emulated() {
    let start = |(name, value): (&str, &str)| {
        let world = world("tell_place", 2)?.set("FAKE_CUDA_DEVICES", 2);
        Some(world.set(PLACES[1].0, PLACES[1].1).set_of(1, name, value).start().succeed())
    };
    let Some(ended) = start(("FAKE_CUDA_FAIL", "cuMemHostRegister_v2:0:712")) else { return };
    for one in ended {
        let why = one.said("reason")[0];
        assert!(
            why.contains("MAYPOLE_CUDA_MAILBOXES=host; and") && why.contains("ALREADY"),
            "{why}"
        );
    }
    for one in start(("MAYPOLE_CUDA_MAILBOXES", "gpu")).unwrap() {
        assert!(one.said("reason")[0].contains("none of auto, peer and host"), "{:?}", one.lines);
    }
}
