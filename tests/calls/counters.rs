//! Counters agree with theory, to the byte.

use maypole::algorithms::Algorithm;
use maypole::{Communicator, Counters, Local, ReduceOp};

/// Bytes of the head of a message.
const HEAD: u64 = 16;

fn during(comm: &mut Communicator, calls: impl FnOnce(&mut Communicator)) -> Counters {
    let before = comm.counters();
    calls(comm);
    let mut during = comm.counters();
    for (name, calls) in &before.calls {
        *during.calls.entry(name).or_default() -= calls;
    }
    during.calls.retain(|_, calls| *calls > 0);
    let moved = [&mut during.board, &mut during.stream, &mut during.messages];
    for (moved, before) in moved.into_iter().zip([before.board, before.stream, before.messages]) {
        moved.messages -= before.messages;
        moved.payload -= before.payload;
        moved.written -= before.written;
    }
    during
}

/// A board; streams; a board for each of two hosts and streams between them.
fn mixtures(world: usize) -> [Local; 3] {
    let hosts: Vec<usize> = (0..world).collect();
    let halves: Vec<usize> = (0..world).map(|rank| rank / world.div_ceil(2)).collect();
    [Local::new(world), Local::new(world).hosts(&hosts), Local::new(world).hosts(&halves)]
}

/// Each rank sends 2 (p-1)/p n bytes, all to its right-hand neighbour, for short vectors and for
/// vectors of many windows.
#[test]
fn a_ring_sends_what_theory_says_over_every_transport() {
    for world in 2..=5u64 {
        for local in mixtures(world as usize) {
            local.run(|mut comm| {
                let rank = comm.rank();
                let boards = comm.boards().clone();
                let right = (rank + 1) % comm.world();
                comm.set_algorithm(Some(Algorithm::Ring));
                for elements in [1, 100, 60_000] {
                    let bytes = elements * world * 4;
                    let mut data = vec![1.0f32; (elements * world) as usize];
                    let counted = during(&mut comm, |comm| {
                        (0..3).for_each(|_| comm.all_reduce(&mut data, ReduceOp::Max).unwrap());
                    });
                    let expected = 3 * 2 * (world - 1) * bytes / world;
                    assert_eq!(counted.payload(), expected);
                    assert_eq!(counted.calls, [("all_reduce", 3)].into());
                    let shared = boards.together(rank, right);
                    let (moved, other) = if shared {
                        (counted.board, counted.stream)
                    } else {
                        (counted.stream, counted.board)
                    };
                    assert_eq!((moved.payload, other), (expected, Default::default()));
                    // In a ring every message has one receiver.
                    assert_eq!(moved.written, moved.payload + HEAD * moved.messages);
                    assert!(moved.messages >= 3 * 2 * (world - 1));
                }
            });
        }
    }
}

/// Chunks may differ by one element, but all ranks together still send 2 (p-1) n bytes.
#[test]
fn a_ring_of_uneven_chunks_sends_as_much_in_all() {
    for (world, elements) in [(3u64, 1000u64), (4, 30_001), (5, 3)] {
        let sent = Local::new(world as usize).run(|mut comm| {
            comm.set_algorithm(Some(Algorithm::Ring));
            let mut data = vec![1u64; elements as usize];
            during(&mut comm, |comm| comm.all_reduce(&mut data, ReduceOp::Sum).unwrap()).payload()
        });
        assert_eq!(sent.iter().sum::<u64>(), 2 * (world - 1) * elements * 8);
    }
}

/// A publication that all ranks read is written once, and is payload for each reader.
#[test]
fn what_several_ranks_read_is_written_once() {
    let world = 4u64;
    let bytes = 1000u64;
    Local::new(world as usize).run(|mut comm| {
        comm.set_algorithm(Some(Algorithm::OneShot));
        let counted =
            during(&mut comm, |comm| comm.all_reduce(&mut vec![1u8; 1000], ReduceOp::Sum).unwrap());
        assert_eq!((counted.board.messages, counted.board.payload), (1, (world - 1) * bytes));
        assert_eq!(counted.board.written, bytes + HEAD);
        assert_eq!(counted.written(), bytes + HEAD);
    });
}

/// For every collective, whichever algorithm runs: ranks send at least the bytes that must arrive.
#[test]
fn other_collectives_send_what_must_arrive() {
    let world = 4u64;
    let n = 500u64;
    for local in mixtures(world as usize) {
        let all = local.run(|mut comm| {
            let mut whole = vec![0u8; (n * world) as usize];
            let block = vec![1u8; n as usize];
            let gather = during(&mut comm, |comm| comm.all_gather((&block, &mut whole)).unwrap());
            let scatter = during(&mut comm, |comm| {
                comm.scatter((&whole.clone(), &mut block.clone()), 2).unwrap()
            });
            let broadcast =
                during(&mut comm, |comm| comm.broadcast(&mut block.clone(), 0).unwrap());
            let barrier = during(&mut comm, |comm| comm.barrier().unwrap());
            assert_eq!((barrier.payload(), &barrier.calls), (0, &[("barrier", 1)].into()));
            assert!(
                barrier.written() == HEAD * (barrier.board.messages + barrier.stream.messages)
                    && barrier.written() > 0
            );
            [gather.payload(), scatter.payload(), broadcast.payload()]
        });
        let sum = |which: usize| all.iter().map(|sent| sent[which]).sum::<u64>();
        // All-gather: each rank receives all other blocks. Then three ranks receive one block each,
        // or the vector.
        assert_eq!((sum(0), sum(2)), (world * (world - 1) * n, (world - 1) * n));
        assert!(sum(1) >= (world - 1) * n, "{all:?}");
    }
}

#[test]
fn messages_are_counted_apart() {
    for local in mixtures(2) {
        local.run(|mut comm| {
            let peer = 1 - comm.rank();
            let counted = during(&mut comm, |comm| {
                let mut came = [0u8; 100];
                comm.exchange(&[7; 100], peer, &mut came, peer, 3).unwrap();
                comm.exchange(&vec![1u8; 100_000], peer, &mut vec![0; 100_000], peer, 3).unwrap();
            });
            let messages = counted.messages;
            // The long message is announced, and then sent.
            assert_eq!(
                (messages.messages, messages.payload, messages.written),
                (2, 100_100, 100_100 + 3 * HEAD)
            );
            assert_eq!(counted.payload(), 100_100);
            assert!(counted.calls.is_empty());
        });
    }
}

/// Requests, failed calls, groups, and calls whose programs were dropped.
#[test]
fn what_counts_and_what_does_not() {
    Local::new(2).run(|mut comm| {
        let mut group = comm.duplicate().unwrap();
        comm.set_algorithm(Some(Algorithm::Ring));
        let requests = during(&mut comm, |comm| {
            let request = comm.start_all_reduce(vec![1u8; 64], ReduceOp::Sum);
            assert_eq!(comm.counters().calls["all_reduce"], 1, "counters wait for requests");
            request.wait().unwrap();
            assert!(comm.broadcast(&mut [0u8], 2).is_err());
        });
        assert_eq!((requests.payload(), requests.calls), (64, [("all_reduce", 1)].into()));
        assert_eq!(group.counters().payload(), 0);
        group.set_algorithm(Some(Algorithm::Ring));
        // More different counts than programs are kept at a time.
        let rounds = 700;
        group.set_program_memory(20_000);
        let many = during(&mut group, |group| {
            for round in 0..rounds {
                let counts = [round + 1, 2];
                let mine = vec![1u8; counts[group.rank()]];
                group.all_gather((&mine, &mut vec![0; round + 3], &counts)).unwrap();
            }
        });
        let sent = if comm.rank() == 0 { (1..=rounds as u64).sum() } else { 2 * rounds as u64 };
        assert_eq!((many.payload(), many.calls["all_gather"]), (sent, rounds as u64));
        assert!(group.programs().evicted > 100, "{:?}", group.programs());
    });
}
