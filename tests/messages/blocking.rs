//! Messages between two ranks: any size, any tag and any order that is allowed, over every kind of
//! link.

use crate::common::SeededRng;
use maypole::{Communicator, DataType, Error, Local};

/// Lengths in bytes, around the limit between eager and rendezvous.
const LENGTHS: [usize; 9] =
    [0, 1, 7, 4096, 16 << 10, (16 << 10) + 1, 65_521, 1 << 20, (3 << 20) + 5];

/// The bytes of message `number` with `tag` from one rank to another. Any two messages differ.
fn text(len: usize, from: usize, to: usize, tag: u32, number: usize) -> Vec<u8> {
    let seed = [from, to, tag as usize, number, len]
        .iter()
        .fold(7u64, |seed, it| SeededRng::new(seed ^ *it as u64).next_u64());
    let mut rng = SeededRng::new(seed);
    let mut bytes: Vec<u8> =
        (0..len.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

#[track_caller]
fn expect(comm: &mut Communicator, len: usize, from: usize, tag: u32, number: usize) {
    let mut came = vec![0u8; len];
    comm.recv(&mut came, from, tag).unwrap();
    assert!(
        came == text(len, from, comm.rank(), tag, number),
        "{len} bytes from rank {from}, tag {tag}"
    );
}

/// Every rank sends to the next one, rank 0 first, every length.
fn around(comm: &mut Communicator) {
    let rank = comm.rank();
    let world = comm.world();
    let next = (rank + 1) % world;
    let last = (rank + world - 1) % world;
    for (number, len) in LENGTHS.into_iter().enumerate() {
        let mine = text(len, rank, next, 3, number);
        if rank == 0 {
            comm.send(&mine, next, 3).unwrap();
            expect(comm, len, last, 3, number);
        } else {
            expect(comm, len, last, 3, number);
            comm.send(&mine, next, 3).unwrap();
        }
    }
}

/// Sends more eager messages than the credit allows. The sender continues once the receiver has
/// taken some.
fn more_than_there_is_credit_for(comm: &mut Communicator) {
    if comm.rank() == 0 {
        (0..500).for_each(|number| comm.send(&text(1000, 0, 1, 9, number), 1, 9).unwrap());
        comm.send(&[1u8], 1, 10).unwrap();
    } else if comm.rank() == 1 {
        (0..500).for_each(|number| expect(comm, 1000, 0, 9, number));
        comm.recv(&mut [0u8], 0, 10).unwrap();
    }
}

/// A rank sends eager messages to itself. A message to itself that would wait for its receive is
/// refused immediately.
fn to_itself(comm: &mut Communicator) {
    let rank = comm.rank();
    for number in 0..3 {
        comm.send(&text(500, rank, rank, 1, number), rank, 1).unwrap();
    }
    (0..3).for_each(|number| expect(comm, 500, rank, 1, number));
    let error = comm.send(&vec![0u8; 100_000], rank, 1).unwrap_err();
    assert!(error.is_harmless() && error.to_string().contains("waits for its receive"), "{error}");
    let mine = text(3 << 20, rank, rank, 2, 0);
    let mut came = vec![0; 3 << 20];
    comm.exchange(&mine, rank, &mut came, rank, 2).unwrap();
    assert!(mine == came);
}

pub(crate) fn everything(comm: &mut Communicator) {
    wrong_ranks_are_refused(comm);
    to_itself(comm);
    if comm.world() == 1 {
        return;
    }
    around(comm);
    more_than_there_is_credit_for(comm);
    let colour = comm.rank() as u64 % 2;
    let mut group = comm.split(Some(colour), -(comm.rank() as i64)).unwrap().unwrap();
    assert_eq!(group.is_encrypted(), comm.is_encrypted());
    if group.world() > 1 {
        around(&mut group);
    }
    around(comm);
}

fn wrong_ranks_are_refused(comm: &mut Communicator) {
    let rank = comm.rank();
    let world = comm.world();
    let errors = [
        comm.send(&[0u8], world, 0).unwrap_err(),
        comm.recv(&mut [0u8], world, 0).unwrap_err(),
        comm.exchange(&[0u8], 0, &mut [0], world, 0).unwrap_err(),
        comm.group(|group| group.send(&[0u8], world, 0)).unwrap_err(),
    ];
    for error in errors {
        assert!(error.is_harmless(), "{error}");
        let why = format!("rank {world} is not one of the {world} ranks");
        let text = error.to_string();
        assert!(text.starts_with(&format!("rank {rank}: ")), "{text}");
        assert!(text.ends_with(&why), "{text}");
    }
}

#[test]
fn a_group_completes_whatever_its_ranks_send() {
    let mut rng = SeededRng::new(41);
    for world in [1, 2, 5] {
        // The number of messages from each rank to each rank, itself included.
        let messages: Vec<usize> = (0..world * world).map(|_| rng.below(4)).collect();
        let len = |from: usize, to: usize, number: usize| {
            LENGTHS[(from * 5 + to * 3 + number) % LENGTHS.len()]
        };
        Communicator::run_local(world, |mut comm| {
            let rank = comm.rank();
            let number = |from: usize, to: usize| 0..messages[from * world + to];
            let mine: Vec<_> = (0..world)
                .flat_map(|to| {
                    number(rank, to)
                        .map(move |number| (to, text(len(rank, to, number), rank, to, 0, number)))
                })
                .collect();
            let expected: Vec<_> = (0..world)
                .flat_map(|from| {
                    number(from, rank).map(move |number| {
                        (from, text(len(from, rank, number), from, rank, 0, number))
                    })
                })
                .collect();
            let mut came: Vec<_> =
                expected.iter().map(|(from, data)| (*from, vec![0u8; data.len()])).collect();
            comm.group(|group| {
                mine.iter().try_for_each(|(to, data)| group.send(data, *to, 0))?;
                came.iter_mut().try_for_each(|(from, data)| group.recv(data, *from, 0))?;
                Ok(())
            })
            .unwrap();
            assert!(came == expected);
        });
    }
}

/// Two senders whose messages are already there are served in turn.
#[test]
fn a_receive_from_any_rank_takes_turns() {
    const EACH: usize = 10;
    Local::new(3).run(|mut comm| {
        let rank = comm.rank();
        if rank > 0 {
            // Eager messages, so that no send waits for its receive.
            for number in 0..EACH {
                comm.send(&[number as u64], 0, 4).unwrap();
            }
        }
        comm.barrier().unwrap();
        if rank > 0 {
            return;
        }
        let mut number = [0u64];
        let came: Vec<(usize, u64)> =
            (0..2 * EACH).map(|_| (comm.recv_any(&mut number, 4).unwrap().0, number[0])).collect();
        let turns = came.windows(2).all(|two| two[0].0 != two[1].0);
        assert!(turns, "the senders are not served in turn: {came:?}");
        for sender in [1, 2] {
            let numbers = came.iter().filter(|(from, _)| *from == sender).map(|(_, it)| *it);
            assert!(numbers.eq(0..EACH as u64), "{came:?}");
        }
    });
}

/// A call of one thread waits for the message of another one.
#[test]
fn another_thread_starts_messages_while_a_call_waits() {
    for len in [3, 1 << 20] {
        Local::new(2).run(|mut comm| {
            let mut handle = comm.message_handle();
            if comm.rank() == 1 {
                let mut data = vec![0u8; len];
                comm.recv(&mut data, 0, 5).unwrap();
                assert!(data == vec![5u8; len]);
                comm.send(&data, 0, 6).unwrap();
                return comm.barrier().unwrap();
            }
            std::thread::scope(|threads| {
                let waits = threads.spawn(|| comm.barrier().unwrap());
                let sent = handle.start_send(DataType::U8, vec![5u8; len], 1, 5, |_| {});
                sent.wait().unwrap();
                let room = vec![0u8; len];
                let back = handle.start_recv(DataType::U8, room, Some(1), 6, |_| {});
                assert!(back.wait().unwrap() == (vec![5u8; len], (1, len)));
                waits.join().unwrap();
            });
            comm.close().unwrap();
            let late = handle.start_send(DataType::U8, vec![0], 1, 5, |_| {}).wait();
            assert!(matches!(&late, Err(Error::Invalid { .. })), "{late:?}");
        });
    }
}
