//! Messages between ranks, and groups that are made in other ways.

use crate::{alone, ranks, run, stream};
use maypole::cuda::{Comm, Id};
use maypole::{Error, ReduceOp};

/// The numbers that `from` sends as its message `nth`.
fn numbers(from: usize, nth: usize, len: usize) -> Vec<u32> {
    (0..len as u32).map(|at| at.wrapping_mul(2_654_435_761) ^ (from * 100 + nth) as u32).collect()
}

/// Every rank passes numbers to the next one, in one group, so that long messages do not wait for
/// one another.
#[test]
fn a_circle_of_messages_arrives() {
    for world in [2, 3, 5] {
        ranks(world, 1, |comm, gpu| {
            let me = gpu.rank();
            let (next, before) = ((me + 1) % world, (me + world - 1) % world);
            for (nth, len) in [1, 1000, 3_000_001].into_iter().enumerate() {
                let mine = gpu.stream().clone_htod(&numbers(me, nth, len)).unwrap();
                let mut theirs = gpu.stream().alloc_zeros::<u32>(len).unwrap();
                let (from, into) = (mine.as_view(), theirs.as_view_mut());
                comm.barrier().unwrap();
                let mut group = gpu.group();
                group.send(from, next as i32).unwrap();
                group.recv(into, before as i32).unwrap();
                group.end().unwrap();
                gpu.synchronize().unwrap();
                let got = gpu.stream().clone_dtoh(&theirs).unwrap();
                assert!(got == numbers(before, nth, len), "rank {me} of {world}, {len} numbers");
            }
        });
    }
}

/// All ranks send to all others in one group, each pair twice, in two orders.
#[test]
fn messages_of_all_to_all_arrive_in_order() {
    ranks(4, 1, |comm, gpu| {
        let (me, len) = (gpu.rank(), 70_000);
        let others: Vec<usize> = (0..4).filter(|peer| *peer != me).collect();
        let sent = |peer: usize, nth| numbers(me * 10 + peer, nth, len);
        let stream = gpu.stream();
        let from: Vec<_> = (0..2)
            .flat_map(|nth| others.iter().map(move |peer| (*peer, nth)))
            .map(|(peer, nth)| (peer, stream.clone_htod(&sent(peer, nth)).unwrap()))
            .collect();
        let mut into: Vec<_> = (0..2)
            .flat_map(|nth| others.iter().rev().map(move |peer| (*peer, nth)))
            .map(|(peer, nth)| (peer, nth, stream.alloc_zeros::<u32>(len).unwrap()))
            .collect();
        let views: Vec<_> = into.iter_mut().map(|it| (it.0, it.2.as_view_mut())).collect();
        comm.barrier().unwrap();
        let mut group = gpu.group();
        for (peer, data) in &from {
            group.send(data.as_view(), *peer as i32).unwrap();
        }
        for (peer, view) in views {
            group.recv(view, peer as i32).unwrap();
        }
        group.end().unwrap();
        gpu.synchronize().unwrap();
        for (peer, nth, data) in &into {
            let got = stream.clone_dtoh(data).unwrap();
            assert!(got == numbers(peer * 10 + me, *nth, len), "rank {me} from {peer}, {nth}");
        }
    });
}

#[test]
fn a_message_alone_arrives_and_collectives_go_on() {
    ranks(2, 1, |comm, gpu| {
        let mut data = gpu.stream().clone_htod(&numbers(gpu.rank(), 0, 5000)).unwrap();
        comm.barrier().unwrap();
        for _ in 0..20 {
            match gpu.rank() {
                0 => gpu.send(&data, 1).unwrap(),
                _ => gpu.recv(&mut data, 0).unwrap(),
            }
            gpu.all_reduce_in_place(&mut data, &ReduceOp::Max).unwrap();
        }
        gpu.synchronize().unwrap();
        assert!(gpu.stream().clone_dtoh(&data).unwrap() == numbers(0, 0, 5000));
        assert!(gpu.send(&data, gpu.rank() as i32).unwrap_err().is_harmless());
        assert!(gpu.send(&data, 2).unwrap_err().is_harmless());
    });
}

#[test]
fn a_message_of_another_length_is_an_error() {
    let Some(_alone) = alone() else { return };
    run(2, |mut comm| {
        let stream = stream(comm.rank()).unwrap();
        let gpu = Comm::new(&mut comm, stream).unwrap();
        let mut data = gpu.stream().alloc_zeros::<u32>(100_000 + gpu.rank()).unwrap();
        match gpu.rank() {
            0 => gpu.send(&data, 1).unwrap(),
            _ => gpu.recv(&mut data, 0).unwrap(),
        }
        // The sender may be done before the receiver looks.
        let done = gpu.synchronize();
        let error = match (gpu.rank(), done) {
            (0, Ok(())) => return drop(comm.barrier()),
            (_, done) => done.unwrap_err(),
        };
        let names_it = matches!(error, Error::Mismatch { .. } | Error::Aborted { .. });
        let calls = ["send(400000 bytes of u32 to", "recv(400004 bytes of u32 from"];
        let has_call = calls.iter().any(|call| error.to_string().contains(call));
        assert!(names_it && has_call, "{error}");
        drop(comm.barrier());
    });
}

/// As a program does that used NCCL through cudarc.
#[test]
fn ranks_meet_by_an_id() {
    let Some(_alone) = alone() else { return };
    let id = Id::new().unwrap();
    std::thread::scope(|threads| {
        for rank in 0..2 {
            threads.spawn(move || {
                let comm = Comm::from_rank(stream(rank).unwrap(), rank, 2, id).unwrap();
                let mut x = comm.stream().clone_htod(&vec![1.0f32 + rank as f32; 300]).unwrap();
                comm.all_reduce_in_place(&mut x, &ReduceOp::Sum).unwrap();
                comm.synchronize().unwrap();
                assert_eq!(comm.stream().clone_dtoh(&x).unwrap(), [3.0; 300]);
            });
        }
    });
    let streams = (0..3).map(|rank| stream(rank).unwrap()).collect();
    let comms = Comm::from_devices(streams).unwrap();
    std::thread::scope(|threads| {
        for comm in comms {
            threads.spawn(move || {
                let mut x = comm.stream().clone_htod(&[comm.rank() as u64; 9]).unwrap();
                comm.all_reduce_in_place(&mut x, &ReduceOp::Sum).unwrap();
                comm.synchronize().unwrap();
                assert_eq!(comm.stream().clone_dtoh(&x).unwrap(), [3; 9]);
            });
        }
    });
}
