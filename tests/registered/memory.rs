//! Arenas: exhaustion, lifetime and churn.

use super::local;
use maypole::{Communicator, ReduceOp, Transport};

#[test]
fn an_arena_that_is_full_on_one_rank_slows_the_call_and_is_no_error() {
    let ran = local(3).run(|mut comm| {
        let arena = comm.arena(if comm.rank() == 1 { 4096 } else { 1 << 20 }).unwrap();
        let mut x = arena.alloc::<u32>(20_000);
        assert_eq!(x.is_registered(), comm.rank() != 1);
        x.fill(1);
        for _ in 0..3 {
            comm.all_reduce(&mut x, ReduceOp::Sum).unwrap();
        }
        assert!(x.iter().all(|it| *it == 27));
        let shared = arena.alloc::<u32>(1000);
        let mut sums = arena.alloc::<u32>(1000);
        drop(x);
        comm.all_reduce((&shared, &mut sums), ReduceOp::Sum).unwrap();
        comm.counters().registered
    });
    assert_eq!(ran, [0; 3], "rank 1 has room for one buffer of 1000 elements, and not for two");
}

#[test]
fn buffers_outlive_arenas_communicators_and_one_another() {
    let left = local(2).run(|mut comm| {
        let first = comm.alloc::<u32>(5000).unwrap();
        let mut second = comm.alloc::<u32>(5000).unwrap();
        // This rank drops its memory immediately; the other may still be reading it.
        comm.all_reduce((&first, &mut second), ReduceOp::Sum).unwrap();
        drop(first);
        second.fill(7);
        comm.all_reduce(&mut second, ReduceOp::Sum).unwrap();
        drop(comm);
        second[4999] += 1;
        second.to_vec()
    });
    assert!(left.iter().all(|its| its[..4999].iter().all(|it| *it == 14) && its[4999] == 15));
}

#[test]
fn ten_thousand_buffers_take_no_more_memory_than_one() {
    local(2).run(|mut comm| {
        let arena = comm.arena(1 << 18).unwrap();
        for round in 0..10_000usize {
            let buffer = arena.alloc::<u64>(1 + round % 20_000);
            assert!(buffer.is_registered());
        }
        assert_eq!(arena.left(), (1 << 18, 1 << 18));
        let mapped = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
        comm.barrier().unwrap();
        let before = mapped();
        for round in 0..300 {
            let mut buffer = comm.alloc::<u64>(1000).unwrap();
            buffer.fill(round);
            comm.all_reduce(&mut buffer, ReduceOp::Max).unwrap();
            assert_eq!(buffer[999], round);
        }
        comm.barrier().unwrap();
        // Other tests of this process map memory, too.
        assert!(mapped() < before + 150, "{before} mappings, and then {}", mapped());
    });
}

#[test]
fn ranks_that_share_no_board_have_arenas_without_memory() {
    Communicator::run_local(2, |comm| {
        let mut comm = { comm }.over(Transport::Tcp).unwrap();
        let arena = comm.arena(1 << 20).unwrap();
        let mut x = arena.alloc::<f32>(100_000);
        assert!(!x.is_registered() && arena.bytes() == 0);
        x.fill(1.0);
        comm.all_reduce(&mut x, ReduceOp::Sum).unwrap();
        assert_eq!(x[99_999], 2.0);
    });
    let mut alone = Communicator::local(1).remove(0);
    let mut x = alone.alloc::<f32>(10).unwrap();
    alone.all_reduce(&mut x, ReduceOp::Sum).unwrap();
}

#[test]
fn a_length_that_no_rank_can_have_is_private_memory_on_all() {
    let private = local(2).run(|mut comm| {
        let arena = comm.arena(usize::MAX / 2).unwrap();
        arena.bytes() == 0 && !arena.alloc::<u8>(10).is_registered()
    });
    assert_eq!(private, [true; 2]);
}

#[test]
fn groups_have_registered_memory_of_their_own() {
    let ran = local(4).run(|mut comm| {
        let mut half = comm.split(Some(comm.rank() as u64 / 2), 0).unwrap().unwrap();
        let mut x = half.alloc::<u32>(10_000).unwrap();
        x.fill(1 + comm.rank() as u32);
        half.all_reduce(&mut x, ReduceOp::Sum).unwrap();
        // To the other group this is memory like any other.
        comm.all_reduce(&mut x, ReduceOp::Sum).unwrap();
        assert_eq!(x[9999], 20);
        (half.counters().registered, comm.counters().registered)
    });
    assert_eq!(ran, [(1, 0); 4]);
}
