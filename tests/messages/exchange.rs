//! Groups of sends and receives: whatever their order, sizes and tags, they complete, and every
//! message arrives in the receive that it belongs to.

use crate::common::SeededRng;
use maypole::{Communicator, Local};
use std::collections::HashMap;
use std::time::Duration;

/// One message, equal on all ranks of the test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) tag: u32,
    pub(crate) len: usize,
    number: u64,
}

impl Message {
    /// Its data; any two messages differ.
    pub(crate) fn text(&self) -> Vec<u16> {
        let mut rng = SeededRng::new(self.number);
        (0..self.len).map(|_| rng.next_u64() as u16).collect()
    }
}

/// Messages between random ranks; the same ones on every rank.
pub(crate) fn messages(
    world: usize,
    count: usize,
    longest: usize,
    rng: &mut SeededRng,
) -> Vec<Message> {
    let message = |_| {
        // Every third message is very short or empty.
        let len = match rng.below(3) {
            0 => rng.below(20),
            _ => rng.below(longest),
        };
        Message {
            from: rng.below(world),
            to: rng.below(world),
            tag: rng.below(3) as u32,
            len,
            number: rng.next_u64(),
        }
    };
    (0..count).map(message).collect()
}

/// Shuffles `all`, but keeps the order of elements with equal keys.
fn shuffled<T: Copy, K: Eq + std::hash::Hash>(
    all: &[T],
    key: impl Fn(&T) -> K,
    rng: &mut SeededRng,
) -> Vec<T> {
    let mut places: Vec<usize> = (0..all.len()).collect();
    for last in (1..places.len()).rev() {
        places.swap(last, rng.below(last + 1));
    }
    let mut next: HashMap<K, Vec<T>> = HashMap::new();
    all.iter().rev().for_each(|it| next.entry(key(it)).or_default().push(*it));
    places.iter().map(|place| next.get_mut(&key(&all[*place])).unwrap().pop().unwrap()).collect()
}

/// What `rank` sends and receives of `all`, each in a random order that keeps the order of its tags.
pub(crate) fn posts(rank: usize, all: &[Message], rng: &mut SeededRng) -> [Vec<Message>; 2] {
    let mine = |which: fn(&Message) -> usize| {
        all.iter().filter(|it| which(it) == rank).copied().collect::<Vec<_>>()
    };
    let sends = shuffled(&mine(|it| it.from), |it| (it.to, it.tag), rng);
    [sends, shuffled(&mine(|it| it.to), |it| (it.from, it.tag), rng)]
}

/// Every rank posts its part of the same messages, in an order of its own.
fn random_group(comm: &mut Communicator, count: usize, longest: usize, seed: u64) {
    let rank = comm.rank();
    let world = comm.world();
    let all = messages(world, count, longest, &mut SeededRng::new(seed));
    let mut rng = SeededRng::new(seed ^ rank as u64);
    let [sends, receives] = posts(rank, &all, &mut rng);
    let texts: Vec<_> = sends.iter().map(Message::text).collect();
    let mut came: Vec<_> = receives.iter().map(|it| vec![0u16; it.len]).collect();
    let receives_first = rng.below(2) == 0;
    let arrivals = comm
        .group(|group| {
            let mut into = came.iter_mut().zip(&receives);
            if receives_first {
                into.by_ref().try_for_each(|(into, it)| group.recv(into, it.from, it.tag))?;
            }
            texts.iter().zip(&sends).try_for_each(|(text, it)| group.send(text, it.to, it.tag))?;
            into.try_for_each(|(into, it)| group.recv(into, it.from, it.tag))
        })
        .unwrap();
    for ((came, it), arrival) in came.iter().zip(&receives).zip(arrivals) {
        assert!(*came == it.text(), "rank {rank}, seed {seed}: {it:?}");
        assert_eq!(arrival, (it.from, it.len));
    }
}

/// Every rank sends to its neighbour in a ring, in one direction and then in the other. If sends
/// blocked, all ranks would wait for one another.
fn shift(comm: &mut Communicator, len: usize) {
    let rank = comm.rank();
    let world = comm.world();
    let ring = [(rank + 1) % world, (rank + world - 1) % world];
    for (to, from) in [(ring[0], ring[1]), (ring[1], ring[0])] {
        let mine = Message { from: rank, to, tag: 0, len, number: rank as u64 };
        let mut came = vec![0; len];
        comm.exchange(&mine.text(), to, &mut came, from, 0).unwrap();
        assert!(came == Message { number: from as u64, ..mine }.text());
    }
}

/// Every rank sends to every rank, and receives from any.
fn all_from_any(comm: &mut Communicator, len: usize) {
    let rank = comm.rank();
    let world = comm.world();
    let of = |from: usize, to: usize| Message {
        from,
        to,
        tag: 7,
        len: len + from,
        number: (from * world + to) as u64,
    };
    let mine: Vec<_> = (0..world).map(|to| of(rank, to).text()).collect();
    let mut came = vec![vec![0u16; len + world]; world];
    let arrivals = comm
        .group(|group| {
            came.iter_mut().try_for_each(|into| group.recv_any(into, 7))?;
            mine.iter().enumerate().try_for_each(|(to, text)| group.send(text, to, 7))
        })
        .unwrap();
    let mut seen: Vec<usize> = arrivals.iter().map(|(from, _)| *from).collect();
    for (came, (from, count)) in came.iter().zip(arrivals) {
        assert!(count == len + from && came[..count] == of(from, rank).text());
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..world).collect::<Vec<_>>());
    // Without the barrier, a rank could send its next message to a rank that still receives from
    // any.
    comm.barrier().unwrap();
}

/// More messages by rendezvous than may be announced at a time.
fn very_many(comm: &mut Communicator) {
    let rank = comm.rank();
    let world = comm.world();
    let to = (rank + 1) % world;
    let from = (rank + world - 1) % world;
    let of =
        |number: u64| Message { from: 0, to: 0, tag: 0, len: (number as usize % 3) * 5000, number };
    let texts: Vec<_> = (0..3000).map(|number| of(number).text()).collect();
    let mut came: Vec<_> = texts.iter().map(|text| vec![0; text.len()]).collect();
    comm.group(|group| {
        texts.iter().try_for_each(|text| group.send(text, to, 0))?;
        came.iter_mut().try_for_each(|into| group.recv(into, from, 0))
    })
    .unwrap();
    assert!(came == texts);
}

/// A group that is refused while it is filled sends nothing.
fn a_refused_group_sends_nothing(comm: &mut Communicator) {
    let rank = comm.rank();
    let world = comm.world();
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
    a_refused_group_sends_nothing(comm);
    for (seed, count, longest) in [(1, 10, 3), (2, 60, 9000), (3, 120, 30_000), (4, 12, 1 << 20)] {
        random_group(comm, count, longest, seed);
    }
    [0, 1, 8192, 8193, 1 << 20].into_iter().for_each(|len| shift(comm, len));
    [0, 20_000].into_iter().for_each(|len| all_from_any(comm, len));
    very_many(comm);
    comm.barrier().unwrap();
}

#[test]
fn groups_of_messages_over_streams_of_a_byte() {
    for capacity in [1, 17, 100] {
        Local::new(3).stream_capacity(capacity).timeout(Duration::from_secs(60)).run(|mut comm| {
            (0..6).for_each(|seed| random_group(&mut comm, 20, 3000, seed));
            shift(&mut comm, 20_000);
            all_from_any(&mut comm, 500);
        });
    }
}
