//! Groups of ranks: by colour and key, of groups, at the same time as their parents, over other
//! transports.

use super::sum;
use crate::spawn::{World, as_told, everywhere};
use maypole::{Communicator, Transport};

/// Even ranks and odd ranks, each group in reverse order, so that its rank 0 is the highest rank.
fn by_parity(comm: &mut Communicator) {
    let rank = comm.rank();
    let world = comm.world();
    let mut half = comm.split(Some(rank as u64 % 2), -(rank as i64)).unwrap().unwrap();
    let members: Vec<u64> =
        (0..world as u64).rev().filter(|other| other % 2 == rank as u64 % 2).collect();
    let me = members.iter().position(|it| *it == rank as u64).unwrap();
    assert_eq!((half.rank(), half.world()), (me, members.len()));
    let mut everybody = vec![0; members.len()];
    half.all_gather((&[rank as u64], &mut everybody)).unwrap();
    assert_eq!(everybody, members);
    assert_eq!(sum(comm, 1, 3000), world as u64);
}

/// Equal keys keep the order of the ranks. The extreme keys are allowed.
fn by_key(comm: &mut Communicator) {
    let rank = comm.rank();
    let world = comm.world();
    let mut same = comm.split(Some(u64::MAX), 7).unwrap().unwrap();
    assert_eq!((same.rank(), same.world()), (rank, world));
    let mut last_first =
        comm.split(Some(0), if rank == 0 { i64::MAX } else { i64::MIN }).unwrap().unwrap();
    assert_eq!(last_first.rank(), if rank == 0 { world - 1 } else { rank - 1 });
    let mut data = [rank as u64];
    last_first.broadcast(&mut data, world - 1).unwrap();
    assert_eq!(data, [0]);
    assert_eq!(sum(&mut same, rank as u64, 10), (world * (world - 1) / 2) as u64);
}

/// Halves of halves, down to single ranks. All of these groups exist at the same time.
fn nested(comm: &mut Communicator) {
    let mut groups = Vec::new();
    let mut inner = comm.split(Some(1), 0).unwrap().unwrap();
    while inner.world() > 1 {
        let half = u64::from(inner.rank() >= inner.world() / 2);
        let next = inner.split(Some(half), 0).unwrap().unwrap();
        groups.push(std::mem::replace(&mut inner, next));
    }
    groups.push(inner);
    for group in groups.iter_mut().rev() {
        let world = group.world() as u64;
        assert_eq!(sum(group, 1, 2000), world);
        group.barrier().unwrap();
    }
}

/// Ranks without a colour get no group, and no rank waits for them.
fn without_colour(comm: &mut Communicator) {
    let rank = comm.rank();
    let group = comm.split((rank != 0).then_some(3), 0).unwrap();
    assert_eq!(group.is_none(), rank == 0);
    if let Some(mut group) = group {
        let others = group.world() as u64;
        assert_eq!(sum(&mut group, 1, 100), others);
    }
    assert!(comm.split(None, 0).unwrap().is_none());
    comm.barrier().unwrap();
}

/// The hosts of ranks do not depend on the transport or on the group. Over TCP no two ranks read
/// one board.
fn hosts_stay_the_same(comm: &mut Communicator) {
    let tcp = comm.over(Transport::Tcp).unwrap();
    assert_eq!(tcp.hosts(), comm.hosts());
    assert_eq!(tcp.boards().count(), comm.world());
    let rank = comm.rank();
    let pair = comm.split(Some((rank / 2) as u64), 0).unwrap().unwrap();
    if pair.world() == 2 {
        let first = rank / 2 * 2;
        assert_eq!(pair.hosts().together(0, 1), comm.hosts().together(first, first + 1));
    }
}

/// A group outlives the communicator that it came from.
fn outlives_its_parent(mut comm: Communicator) {
    let mut group = comm.split(Some(0), 0).unwrap().unwrap();
    let world = comm.world() as u64;
    comm.close().unwrap();
    assert_eq!(sum(&mut group, 1, 1000), world);
    group.close().unwrap();
}

fn everything(mut comm: Communicator) {
    by_parity(&mut comm);
    by_key(&mut comm);
    nested(&mut comm);
    without_colour(&mut comm);
    hosts_stay_the_same(&mut comm);
    outlives_its_parent(comm);
}

pub(crate) fn rank_process(role: &str) {
    as_told(role, everything);
}

#[test]
fn groups_of_threads_and_processes() {
    everywhere(everything);
    World::new("alone", 1).start().succeed();
}
