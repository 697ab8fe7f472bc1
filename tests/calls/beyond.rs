//! Vectors of more elements than 31 and 32 bits count: calls and messages place every byte where it belongs.

use crate::skip;
use maypole::{Communicator, Local, ReduceOp, Transport};
use std::time::Duration;

/// The elements of a vector of `count` at whose numbers 31 or 32 bits overflow, its ends and its middle.
fn places(count: usize) -> Vec<usize> {
    let mut places = vec![0, 1, count / 2, count - 1];
    let borders = [(1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32];
    places.extend(borders.into_iter().filter(|place| *place < count));
    places.sort_unstable();
    places.dedup();
    places
}

fn mark(data: &mut [u8], value: u8) {
    for place in places(data.len()) {
        data[place] = value;
    }
}

/// `data` has `value` where it was marked, and nothing elsewhere.
#[track_caller]
fn check(data: &[u8], value: u8, what: &str) {
    for place in places(data.len()) {
        assert_eq!(data[place], value, "{what} of {}, element {place}", data.len());
    }
    let lines = data.chunks(64).filter(|line| line.iter().fold(0, |all, byte| all | byte) != 0);
    let changed: usize = lines.flatten().filter(|byte| **byte != 0).count();
    assert_eq!(changed, places(data.len()).len(), "elements that {what} changes");
}

/// In place, because there is no memory for more than one vector a rank.
fn calls(comm: &mut Communicator, count: usize) {
    let rank = comm.rank();
    let mut data = vec![0u8; count];
    mark(&mut data, rank as u8 + 1);
    comm.all_reduce(&mut data, ReduceOp::Sum).unwrap();
    check(&data, 3, "all_reduce");
    mark(&mut data, if rank == 1 { 7 } else { 3 });
    comm.broadcast(&mut data, 1).unwrap();
    check(&data, 7, "broadcast");
    mark(&mut data, if rank == 0 { 9 } else { 7 });
    match rank {
        0 => comm.send(&data, 1, 0).unwrap(),
        _ => comm.recv(&mut data, 0, 0).unwrap(),
    }
    check(&data, 9, "a message");
    mark(&mut data, 1);
    comm.scan(&mut data, ReduceOp::Sum).unwrap();
    check(&data, rank as u8 + 1, "scan");
    let whole = &mut data[..count / 2 * 2];
    let block = whole.len() / 2;
    whole.fill(0);
    mark(&mut whole[rank * block..][..block], rank as u8 + 4);
    comm.all_gather(&mut *whole).unwrap();
    check(&whole[..block], 4, "all_gather");
    check(&whole[block..], 5, "all_gather");
    comm.reduce_scatter(&mut *whole, ReduceOp::Sum).unwrap();
    check(&whole[rank * block..][..block], 2 * (rank as u8 + 4), "reduce_scatter");
}

#[test]
fn calls_beyond_two_to_the_31_and_32() {
    if skip::takes_minutes() {
        return;
    }
    Local::new(2).timeout(Duration::from_secs(300)).run(|mut comm| {
        calls(&mut comm, (1 << 32) + 5);
        calls(&mut comm.over(Transport::Tcp).unwrap(), (1 << 31) + 17);
    });
}

/// Blocks of 2^31 and more in a vector with counts, the second of which begins beyond 2^31.
#[test]
fn blocks_begin_beyond_two_to_the_31() {
    if skip::takes_minutes() {
        return;
    }
    Local::new(2).timeout(Duration::from_secs(300)).run(|mut comm| {
        let counts = [(1 << 31) + 3, 5];
        let mut mine = vec![0u8; counts[comm.rank()]];
        mark(&mut mine, comm.rank() as u8 + 1);
        let mut all = vec![0u8; counts[0] + counts[1]];
        comm.all_gather((&mine, &mut all, &counts)).unwrap();
        check(&all[..counts[0]], 1, "all_gather with counts");
        check(&all[counts[0]..], 2, "all_gather with counts");
    });
}
