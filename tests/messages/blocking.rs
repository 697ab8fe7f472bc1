//! Limits of messages between two ranks, over every kind of link. `tests/calls` exchanges random ones of any size,
//! tag and order.

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

/// More messages by rendezvous than may be announced at a time.
fn very_many(comm: &mut Communicator) {
    let (rank, world) = (comm.rank(), comm.world());
    let (to, from) = ((rank + 1) % world, (rank + world - 1) % world);
    let all = |from: usize| -> Vec<_> {
        (0..3000).map(|number| vec![(number * 7 + from) as u8; number % 3 * 10_000]).collect()
    };
    let (texts, expected) = (all(rank), all(from));
    let mut came: Vec<_> = expected.iter().map(|text| vec![0; text.len()]).collect();
    comm.group(|group| {
        texts.iter().try_for_each(|text| group.send(text, to, 0))?;
        came.iter_mut().try_for_each(|into| group.recv(into, from, 0))
    })
    .unwrap();
    assert!(came == expected);
}

/// A group that is refused while it is filled sends nothing.
fn a_refused_group_sends_nothing(comm: &mut Communicator) {
    let (rank, world) = (comm.rank(), comm.world());
    let refused = comm.group(|group| {
        (0..world).try_for_each(|to| group.send(&[1u8], to, 0))?;
        group.send(&[1u8], world, 0)
    });
    assert!(refused.unwrap_err().is_harmless());
    assert_eq!(comm.group(|_| Ok(())).unwrap(), []);
    let mut came = [0u8];
    comm.exchange(&[2u8], (rank + 1) % world, &mut came, (rank + world - 1) % world, 0).unwrap();
    assert_eq!(came, [2]);
}

pub(crate) fn everything(comm: &mut Communicator) {
    wrong_ranks_are_refused(comm);
    a_refused_group_sends_nothing(comm);
    to_itself(comm);
    very_many(comm);
    if comm.world() > 1 {
        more_than_there_is_credit_for(comm);
    }
    let colour = comm.rank() as u64 % 2;
    let mut group = comm.split(Some(colour), -(comm.rank() as i64)).unwrap().unwrap();
    assert_eq!(group.is_encrypted(), comm.is_encrypted());
    to_itself(&mut group);
    comm.barrier().unwrap();
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

/// Random programs of `tests/calls` compare the bytes of groups.
#[test]
fn a_group_completes_whatever_its_ranks_send() {
    let mut rng = SeededRng::new(41);
    for world in [1, 2, 5] {
        // The number of messages from each rank to each rank, itself included.
        let messages: Vec<usize> = (0..world * world).map(|_| rng.below(4)).collect();
        let len = |from: usize, to: usize| LENGTHS[(from * 5 + to * 3) % LENGTHS.len()];
        Communicator::run_local(world, |mut comm| {
            let me = comm.rank();
            let with = |peer: usize| [(me, peer), (peer, me)];
            let pairs = |nth: usize| (0..world).map(move |peer| (peer, with(peer)[nth]));
            let of = |(peer, (from, to)): (usize, (usize, usize))| {
                vec![(peer, vec![from as u8; len(from, to)]); messages[from * world + to]]
            };
            let [mine, mut came] = [0, 1].map(|nth| pairs(nth).flat_map(of).collect::<Vec<_>>());
            let expected = came.clone();
            came.iter_mut().for_each(|(_, data)| data.fill(0xff));
            comm.group(|group| {
                mine.iter().try_for_each(|(to, data)| group.send(data, *to, 0))?;
                came.iter_mut().try_for_each(|(from, data)| group.recv(data, *from, 0))?;
                Ok(())
            })
            .unwrap();
            assert_eq!(came, expected);
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
