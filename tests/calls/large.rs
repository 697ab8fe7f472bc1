//! Calls whose buffers are too large for the caches, so that outputs are written past them.

use crate::spawn::{World, say};
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::{Communicator, Local, ReduceOp, StoreCounts};
use maypole_kernels::mix;
use std::time::Duration;

const WORLD: usize = 4;
/// Elements of a vector: a little more than 8 MiB, so that the ranks' buffers take 32 MiB together.
const COUNT: usize = (2 << 20) + 12;
/// Buffers begin this number of elements after the start of an allocation.
const OFFSET: usize = 1;

fn value(rank: usize, at: usize) -> u32 {
    mix(((rank as u64) << 40) + at as u64) as u32
}

fn vector(rank: usize, count: usize) -> Vec<u32> {
    (0..count).map(|at| value(rank, at)).collect()
}

/// Element `at` of the exclusive or of all ranks' vectors.
fn combined(world: usize, at: usize) -> u32 {
    (0..world).fold(0, |sum, rank| sum ^ value(rank, at))
}

/// Makes calls of several collectives on `count` elements, and compares every element, also those before the
/// buffers, which begin `offset` elements after the start of an allocation.
fn call(comm: &mut Communicator, count: usize, offset: usize) {
    let (rank, world) = (comm.rank(), comm.world());
    let mine = vector(rank, offset + count);
    let mut data = mine.clone();
    comm.broadcast(&mut data[offset..], world - 1).unwrap();
    let right = |at: usize| data[at] == value(if at < offset { rank } else { world - 1 }, at);
    assert!((0..data.len()).all(right), "broadcast");
    let block = count / world;
    let mut all = vec![0; offset + block * world];
    comm.all_gather((&mine[offset..offset + block], &mut all[offset..])).unwrap();
    let right = |at: usize| all[offset + at] == value(at / block, offset + at % block);
    assert!(all[..offset].iter().all(|it| *it == 0), "all-gather");
    assert!((0..block * world).all(right), "all-gather");
    let mut sum = mine.clone();
    comm.all_reduce(&mut sum[offset..], ReduceOp::Xor).unwrap();
    assert!((offset..sum.len()).all(|at| sum[at] == combined(world, at)), "all-reduce");
    assert_eq!(sum[..offset], mine[..offset], "all-reduce");
}

#[test]
fn every_element_arrives() {
    Communicator::run_local(WORLD, |mut comm| {
        call(&mut comm, COUNT, OFFSET);
        let mine = vector(comm.rank(), OFFSET + COUNT);
        let block = COUNT / WORLD;
        let mut exchanged = vec![0; OFFSET + COUNT];
        comm.all_to_all((&mine[OFFSET..], &mut exchanged[OFFSET..])).unwrap();
        let from = comm.rank() * block;
        let right =
            |at: usize| exchanged[OFFSET + at] == value(at / block, OFFSET + from + at % block);
        assert!(exchanged[0] == 0 && (0..COUNT).all(right), "all-to-all");
    });
}

/// Makes calls again and again. Returns by which stores.
fn repeat(comm: &mut Communicator) -> StoreCounts {
    for _ in 0..20 {
        call(comm, 96 << 10, 0);
    }
    comm.counters().stores
}

/// Ranks that are processes have a deep board.
#[test]
fn publications_in_a_deep_ring_have_the_same_elements() {
    for process in World::new("stores", 3).set("MAYPOLE_WAY", "deep-ring").start().succeed() {
        assert_eq!(process.said("stores"), ["false true"]);
    }
}

pub(crate) fn rank_process(_: &str) {
    let mut comm = Communicator::from_env().unwrap();
    let counts = repeat(&mut comm);
    say("stores", format!("{} {}", counts.ordinary > 0, counts.deep_ring > 0));
    comm.close().unwrap();
}

#[test]
fn publications_in_every_way_have_the_same_elements() {
    for (way, world) in [("past-caches", 2), ("past-caches", 3), ("ordinary", 3)] {
        let counts = Local::new(world).way(way).run(|mut comm| repeat(&mut comm));
        let past_caches: u64 = counts.iter().map(|it| it.past_caches).sum();
        let ordinary: u64 = counts.iter().map(|it| it.ordinary).sum();
        assert_eq!((past_caches > 100, ordinary > 100), (way != "ordinary", way == "ordinary"));
    }
}

/// Calls that are repeated are made in every way that is possible, by late ranks, too.
#[test]
fn calls_that_explore_have_the_same_elements() {
    crate::skip::takes_turns!(2);
    let counts = Communicator::run_local(2, |mut comm| {
        for _ in 0..7 {
            repeat(&mut comm);
        }
        comm.counters().stores
    });
    let past_caches: u64 = counts.iter().map(|it| it.past_caches).sum();
    let ordinary: u64 = counts.iter().map(|it| it.ordinary).sum();
    assert!(past_caches > 100 && ordinary > 100, "{counts:?}");
}

#[test]
fn every_element_arrives_in_registered_memory() {
    Communicator::run_local(WORLD, |mut comm| {
        let mine = vector(comm.rank(), OFFSET + COUNT);
        let mut data = comm.alloc::<u32>(mine.len()).unwrap();
        data.copy_from_slice(&mine);
        comm.all_reduce(&mut data[OFFSET..], ReduceOp::Xor).unwrap();
        assert_eq!(comm.last_call().unwrap().path.name(), "registered");
        assert!((OFFSET..data.len()).all(|at| data[at] == combined(WORLD, at)), "all-reduce");
        assert_eq!(data[0], mine[0], "the bytes before the buffer stay");
    });
}

/// 64 ranks on eight equal hosts, which make their programs from the schedules of one host. Halving with so many
/// short chunks needs more publications than slots hold, and runs in the order of the proof.
#[test]
fn programs_of_one_host_s_schedules_reach_all_hosts() {
    crate::skip::takes_turns!(2);
    const RANKS: usize = 64;
    let hosts: Vec<usize> = (0..RANKS).map(|rank| rank / 8).collect();
    Local::new(RANKS).hosts(&hosts).timeout(Duration::from_secs(120)).run(|mut comm| {
        let rank = comm.rank();
        let algorithms = [Algorithm::HalvingDoubling, Algorithm::Ring, Algorithm::Hierarchical];
        for (algorithm, block) in algorithms.into_iter().flat_map(|it| [(it, 1), (it, 300)]) {
            comm.set_algorithm(Some(algorithm));
            let mine: Vec<u32> = (0..RANKS * block).map(|at| value(rank, at)).collect();
            let sum = |at: usize| (0..RANKS).fold(0, |sum, rank| sum ^ value(rank, at));
            let mut data = mine.clone();
            comm.all_reduce(&mut data, ReduceOp::Xor).unwrap();
            assert!((0..data.len()).all(|at| data[at] == sum(at)), "{algorithm} all-reduce");
            let mut part = vec![0; block];
            comm.reduce_scatter((&mine, &mut part), ReduceOp::Xor).unwrap();
            let right = |at: usize| part[at] == sum(rank * block + at);
            assert!((0..block).all(right), "{algorithm} reduce-scatter");
            if algorithm.supports(Collective::AllGather) {
                let mut all = vec![0; RANKS * block];
                comm.all_gather((&mine[..block], &mut all)).unwrap();
                let right = |at: usize| all[at] == value(at / block, at % block);
                assert!((0..all.len()).all(right), "{algorithm} all-gather");
            }
        }
    });
}
