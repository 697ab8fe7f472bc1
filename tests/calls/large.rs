//! Calls whose buffers are too large for the caches, so that outputs are written past them.

use maypole::{Communicator, ReduceOp};
use maypole_kernels::mix;

const WORLD: usize = 4;
/// Elements of a vector: a little more than 8 MiB, so that the ranks' buffers take 32 MiB together.
const COUNT: usize = (2 << 20) + 12;
/// Buffers begin this number of elements after the start of an allocation.
const OFFSET: usize = 1;

fn value(rank: usize, at: usize) -> u32 {
    mix(((rank as u64) << 40) + at as u64) as u32
}

fn vector(rank: usize, count: usize) -> Vec<u32> {
    (0..OFFSET + count).map(|at| value(rank, at)).collect()
}

/// Element `at` of the exclusive or of all ranks' vectors.
fn combined(at: usize) -> u32 {
    (0..WORLD).fold(0, |sum, rank| sum ^ value(rank, at))
}

#[test]
fn every_element_arrives() {
    Communicator::run_local(WORLD, |mut comm| {
        let mine = vector(comm.rank(), COUNT);

        let mut data = mine.clone();
        comm.broadcast(&mut data[OFFSET..], 1).unwrap();
        let right = |at: usize| data[at] == value(if at < OFFSET { comm.rank() } else { 1 }, at);
        assert!((0..data.len()).all(right), "broadcast");

        let block = COUNT / WORLD;
        let mut all = vec![0; OFFSET + COUNT];
        comm.all_gather((&mine[OFFSET..OFFSET + block], &mut all[OFFSET..])).unwrap();
        let right = |at: usize| all[OFFSET + at] == value(at / block, OFFSET + at % block);
        assert!(all[0] == 0 && (0..COUNT).all(right), "all-gather");

        let mut exchanged = vec![0; OFFSET + COUNT];
        comm.all_to_all((&mine[OFFSET..], &mut exchanged[OFFSET..])).unwrap();
        let from = comm.rank() * block;
        let right =
            |at: usize| exchanged[OFFSET + at] == value(at / block, OFFSET + from + at % block);
        assert!(exchanged[0] == 0 && (0..COUNT).all(right), "all-to-all");

        let mut sum = mine.clone();
        comm.all_reduce(&mut sum[OFFSET..], ReduceOp::Xor).unwrap();
        assert!((OFFSET..sum.len()).all(|at| sum[at] == combined(at)), "all-reduce");
    });
}

#[test]
fn every_element_arrives_in_registered_memory() {
    Communicator::run_local(WORLD, |mut comm| {
        let mine = vector(comm.rank(), COUNT);
        let mut data = comm.alloc::<u32>(mine.len()).unwrap();
        data.copy_from_slice(&mine);
        comm.all_reduce(&mut data[OFFSET..], ReduceOp::Xor).unwrap();
        assert_eq!(comm.last_call().unwrap().path.name(), "registered");
        assert!((OFFSET..data.len()).all(|at| data[at] == combined(at)), "all-reduce");
        assert_eq!(data[0], mine[0], "the bytes before the buffer stay");
    });
}
