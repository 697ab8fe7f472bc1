#[path = "direct_tests.rs"]
mod direct;
#[path = "mutant_tests.rs"]
mod mutants;
#[path = "thread_tests.rs"]
mod threads;

use self::direct::{SlotPlace, gpu};
use super::super::gpu_slots::SlotLayout;
use super::super::launch::Protocol;
use super::super::layout::{MailboxLayout, Shape, Shapes};
use super::message::{WordHead, WordKind};
use super::places::{CopyRange, Direction, MailboxCopy};
use super::{AnyStream, Courier, CourierStream, DeviceBoard, Segment};
use crate::mem;
use crate::stream::Stream;
use maypole_kernels::ViewMut;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Pieces of 240 bytes: streams hold fewer, and half of the publications are written directly.
const SHAPE: Shape =
    Shape { protocol: Protocol::Simple, lanes: 2, slots: 2, bytes: 480, lane_bytes: 16, least: 1 };
const LONGEST: usize = 240;
/// The mark of all calls, in the lowest bits of `arrived`.
const MARK: u64 = 77;
/// Rooms of groups; the next one is that of messages.
const GROUPS: usize = 2;

fn shapes(slots_on_gpus: bool) -> Shapes {
    Shapes {
        groups: vec![SHAPE, Shape { lanes: 3, slots: 4, bytes: 720, ..SHAPE }],
        messages: SHAPE,
        slots_on_gpus,
    }
}

/// Byte `at` of a publication.
fn byte(writer: usize, room: usize, position: u64, at: usize) -> u8 {
    maypole_kernels::mix((writer * 1000 + room * 100 + at) as u64 ^ (position + 1) << 20) as u8
}

/// What a writer's kernels have counted in a lane of a room. In a room of messages it has one reader.
#[derive(Default)]
struct Lane {
    published: u64,
    /// By slot.
    audiences: Vec<Vec<usize>>,
}

/// The room, the lane, the position and the bytes of a publication.
type Unread = (usize, usize, u64, usize);

/// All ranks of a group, as kernels would use their mailboxes.
struct World {
    hosts: Vec<usize>,
    copies: Vec<Arc<MailboxCopy>>,
    /// The memory of the GPU of each rank, if slots are there.
    arenas: Vec<Arc<Segment>>,
    couriers: Vec<Courier>,
    shapes: Shapes,
    layout: MailboxLayout,
    /// By writer, room and lane. Rooms of messages are numbered by reader behind those of groups.
    lanes: Vec<Vec<Vec<Lane>>>,
    /// Publications that were not read, by writer and reader: room, lane, position and bytes.
    unread: Vec<Vec<VecDeque<Unread>>>,
}

impl World {
    fn new(hosts: &[usize], capacity: usize) -> Self {
        Self::over(hosts, 1, || {
            let (here, there) = mem::pair(capacity);
            (AnyStream::Mem(here), AnyStream::Mem(there))
        })
    }

    fn over(hosts: &[usize], rails: usize, pair: impl Fn() -> (AnyStream, AnyStream)) -> Self {
        Self::of(hosts, rails, SlotPlace::Host, pair)
    }

    /// The ranks on these hosts, over the streams that `pair` makes, so many between two ranks.
    fn of(
        hosts: &[usize],
        rails: usize,
        slots: SlotPlace,
        pair: impl Fn() -> (AnyStream, AnyStream),
    ) -> Self {
        let (shapes, ranks) = (shapes(slots != SlotPlace::Host), hosts.len());
        let count = hosts.iter().max().unwrap() + 1;
        let bytes = DeviceBoard::bytes_in_host(&shapes, ranks);
        let segments: Vec<_> =
            (0..count).map(|_| Arc::new(Segment::create(bytes).unwrap())).collect();
        let on_gpus = shapes.slots_on_gpus.then(|| SlotLayout::new(&shapes, hosts));
        let of_gpus = on_gpus.as_ref().map(|layout| {
            let of = |rank| gpu(layout.bytes(rank), slots == SlotPlace::LateGpus);
            (0..ranks).map(of).unzip::<_, _, Vec<_>, Vec<_>>()
        });
        let (arenas, buffers) = of_gpus.unwrap_or_default();
        let mut streams: Vec<Vec<CourierStream>> = (0..ranks).map(|_| Vec::new()).collect();
        for a in 0..ranks {
            for b in (0..a).filter(|b| hosts[a] != hosts[*b]) {
                for (mut here, mut there) in (0..rails).map(|_| pair()) {
                    let register = |stream: &mut AnyStream, rank: usize| {
                        let direct = stream.direct()?;
                        Some(match buffers.get(rank) {
                            Some(buffer) => direct.register_device(buffer).unwrap(),
                            None => direct.register(&segments[hosts[rank]]).unwrap(),
                        })
                    };
                    let (mine, theirs) = (register(&mut here, a), register(&mut there, b));
                    streams[a].push(CourierStream { peer: b, stream: here, writes_to: theirs });
                    streams[b].push(CourierStream { peer: a, stream: there, writes_to: mine });
                }
            }
        }
        let copy =
            |host: usize| MailboxCopy::new(Arc::clone(&segments[host]), ranks, on_gpus.clone());
        let courier = |(me, streams)| Courier::new(copy(hosts[me]), &shapes, me, streams);
        let couriers = streams.into_iter().enumerate().map(courier).collect();
        let lanes = |_| {
            let room = |shape: &Shape| {
                let audiences = || vec![Vec::new(); shape.slots as usize];
                (0..shape.lanes).map(|_| Lane { published: 0, audiences: audiences() }).collect()
            };
            let messages = std::iter::repeat_n(&shapes.messages, ranks);
            shapes.groups.iter().chain(messages).map(room).collect()
        };
        Self {
            copies: hosts.iter().map(|host| Arc::new(copy(*host))).collect(),
            arenas,
            couriers,
            layout: MailboxLayout::new(&shapes, ranks),
            lanes: (0..ranks).map(lanes).collect(),
            unread: (0..ranks).map(|_| vec![VecDeque::new(); ranks]).collect(),
            shapes,
            hosts: hosts.to_vec(),
        }
    }

    fn direction(&self, of: usize, pair: (usize, usize), room: usize) -> Direction {
        self.copies[of].directions(&self.layout, &self.shapes, pair)[room]
    }

    /// Bytes that rank `me` reads or writes: these of the slots of `writer`.
    fn slot(
        &self,
        me: usize,
        writer: usize,
        direction: &Direction,
        body: CopyRange,
    ) -> ViewMut<'_> {
        let (arena, start) = match self.hosts[me] == self.hosts[writer] {
            true => (self.arenas.get(writer), body.start),
            false => (self.arenas.get(me), direction.at_reader(body.start)),
        };
        // SAFETY: the test has one thread.
        unsafe {
            match arena {
                Some(arena) => arena.view().slice(start, body.len),
                None => self.copies[me].slot(body),
            }
        }
    }

    /// Writes `len` bytes for `readers` in a lane, if their slot is free.
    fn publish(&mut self, me: usize, readers: &[usize], room: usize, lane: usize, len: usize) {
        let is_message = room >= GROUPS;
        let readers = if is_message { &readers[..1] } else { readers };
        let kept = if is_message { GROUPS + readers[0] } else { room };
        let Lane { published, audiences } = &self.lanes[me][kept][lane];
        let (position, slots) = (*published, audiences.len());
        let slot = position as usize % slots;
        let done = (position + 1).saturating_sub(slots as u64);
        let is_free = |reader: &usize| {
            let room = if is_message { GROUPS + 1 } else { room };
            let back = self.direction(me, (*reader, me), room);
            let head = WordHead { kind: WordKind::Consumed, lane: lane as u8, ..WordHead::GOODBYE };
            let (at, _) = back.place(&head).unwrap();
            self.copies[me].word(at).load(Ordering::Acquire) >= done
        };
        if !audiences[slot].iter().all(is_free) {
            return;
        }
        let copy = &self.copies[me];
        for reader in readers {
            let direction = self.direction(me, (me, *reader), room);
            let head = WordHead {
                kind: WordKind::Arrived,
                lane: lane as u8,
                slot: slot as u8,
                length: len as u32,
                ..WordHead::GOODBYE
            };
            let (at, body) = direction.place(&head).unwrap();
            let bytes: Vec<u8> = (0..len).map(|at| byte(me, room, position, at)).collect();
            self.slot(me, me, &direction, body).fill_from(&bytes);
            copy.word(direction.length(&head)).store(len as u64, Ordering::Relaxed);
            copy.word(at).store((position + 1) << 16 | MARK, Ordering::Release);
            self.unread[me][*reader].push_back((room, lane, position, len));
        }
        let lane = &mut self.lanes[me][kept][lane];
        lane.published += 1;
        lane.audiences[slot] = readers.to_vec();
    }

    /// Reads the next publication of `writer`, if it has arrived. True if it has.
    fn read(&mut self, me: usize, writer: usize) -> bool {
        let Some(&(room, lane, position, len)) = self.unread[writer][me].front() else {
            return false;
        };
        let direction = self.direction(me, (writer, me), room);
        let slot = (position % direction.slots as u64) as u8;
        let (kind, lane) = (WordKind::Arrived, lane as u8);
        let head = WordHead { kind, lane, slot, length: len as u32, ..WordHead::GOODBYE };
        let (at, body) = direction.place(&head).unwrap();
        let copy = &self.copies[me];
        let arrived = copy.word(at).load(Ordering::Acquire) >> 16;
        assert!(arrived <= position + 1, "a slot was written before it was read");
        if arrived <= position {
            return false;
        }
        let bytes = self.slot(me, writer, &direction, body).as_view().to_vec();
        let expected: Vec<u8> = (0..len).map(|at| byte(writer, room, position, at)).collect();
        assert_eq!(bytes, expected, "publication {position} of rank {writer} in lane {lane}");
        let room = if room >= GROUPS { GROUPS + 1 } else { room };
        let head = WordHead { kind: WordKind::Consumed, lane, ..WordHead::GOODBYE };
        let (at, _) = self.direction(me, (me, writer), room).place(&head).unwrap();
        copy.word(at).store(position + 1, Ordering::Release);
        self.unread[writer][me].pop_front();
        true
    }

    /// One step of a rank: a publication, the read of one, or some of its courier's work.
    fn step(&mut self, [rank, action, room, lane, readers, len]: [u8; 6]) {
        let ranks = self.hosts.len();
        let me = usize::from(rank) % ranks;
        let others: Vec<_> = (0..ranks).filter(|other| *other != me).collect();
        let room = usize::from(room) % (GROUPS + 1);
        let lanes = [2, 3, 2][room];
        match action % 4 {
            0 => {
                let is_reader = |at: &usize| readers >> at & 1 == 1;
                let mut chosen: Vec<_> = others.iter().copied().filter(is_reader).collect();
                if chosen.is_empty() {
                    chosen.push(others[usize::from(readers) % others.len()]);
                }
                let len = usize::from(len) % (LONGEST + 1);
                self.publish(me, &chosen, room, usize::from(lane) % lanes, len);
            }
            1 => {
                self.read(me, others[usize::from(readers) % others.len()]);
            }
            _ => {
                self.couriers[me].drive().unwrap();
            }
        }
    }

    /// Lets all couriers work until nothing moves, also not what a stream has kept back.
    fn settle(&mut self) {
        let mut quiet = 0;
        // A write may find no room for some rounds.
        while quiet < 20 {
            let moved = self.couriers.iter_mut().filter_map(|it| it.drive().unwrap().then_some(()));
            quiet = if moved.count() > 0 { 0 } else { quiet + 1 };
        }
    }

    fn read_all(&mut self) {
        let ranks = self.hosts.len();
        let pairs = || (0..ranks).flat_map(|a| (0..ranks).map(move |b| (a, b)));
        loop {
            self.settle();
            let read = pairs().filter(|(me, writer)| self.read(*me, *writer)).count();
            if read == 0 {
                break;
            }
        }
        assert!(self.unread.iter().flatten().all(VecDeque::is_empty), "some never arrive");
    }
}

fn slots() -> impl Strategy<Value = SlotPlace> {
    prop::sample::select(vec![SlotPlace::Host, SlotPlace::Gpus, SlotPlace::LateGpus])
}

fn worlds() -> impl Strategy<Value = Vec<usize>> {
    let hosts: [&[usize]; 5] = [&[0, 1], &[0, 0, 1, 1], &[0, 0, 0, 1], &[0, 1, 2, 3], &[0, 1, 0]];
    prop::sample::select(hosts.map(<[_]>::to_vec).to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Publications arrive with their bytes and once, over streams that hold few bytes, however ranks and
    /// couriers take turns.
    #[test]
    fn publications_arrive(
        hosts in worlds(),
        capacity in 1_usize..60,
        slots in prop::option::of(slots()),
        rails in 1_usize..4,
        steps in prop::collection::vec(any::<[u8; 6]>(), 0..600),
    ) {
        let pair = || direct::pair(capacity, direct::Mutant::None);
        let mut world = match slots {
            Some(slots) => World::of(&hosts, rails, slots, pair),
            None => World::new(&hosts, capacity),
        };
        steps.into_iter().for_each(|step| world.step(step));
        world.read_all();
    }

    /// A goodbye overtakes no word: when it has arrived, so have all publications.
    #[test]
    fn goodbyes_come_last(
        hosts in worlds(),
        capacity in 1_usize..60,
        rails in 1_usize..4,
        steps in prop::collection::vec(any::<[u8; 6]>(), 0..200),
        turns in prop::collection::vec(any::<u8>(), 0..100),
        slots in slots(),
    ) {
        let pair = || direct::pair(capacity, direct::Mutant::None);
        let mut world = World::of(&hosts, rails, slots, pair);
        steps.into_iter().for_each(|step| world.step(step));
        let ranks = hosts.len();
        world.couriers[0].say_goodbye();
        let mut turns = turns.into_iter().map(|turn| usize::from(turn) % ranks).chain((0..ranks).cycle());
        while !world.couriers[0].has_ended() {
            let me = turns.next().unwrap();
            world.couriers[me].drive().unwrap();
            while world.couriers[me].left() & 1 == 1 && world.read(me, 0) {}
            if world.couriers[me].left() & 1 == 1 {
                prop_assert!(world.unread[0][me].is_empty());
            }
        }
        world.settle();
        for me in (0..ranks).filter(|me| hosts[*me] != hosts[0]) {
            prop_assert_eq!(world.couriers[me].left(), 1);
        }
    }

    /// Ranks leave at any time, after their last words, and end without waiting for one another's goodbyes.
    #[test]
    fn all_leave(
        hosts in worlds(),
        capacity in 1_usize..60,
        rails in 1_usize..4,
        steps in prop::collection::vec(any::<[u8; 6]>(), 0..100),
        turns in prop::collection::vec(any::<(u8, bool)>(), 0..200),
        slots in slots(),
    ) {
        let pair = || direct::pair(capacity, direct::Mutant::None);
        let mut world = World::of(&hosts, rails, slots, pair);
        steps.into_iter().for_each(|step| world.step(step));
        world.read_all();
        let ranks = hosts.len();
        let turns = turns.into_iter().map(|(turn, leaves)| (usize::from(turn) % ranks, leaves));
        let rest = (0..ranks).cycle().map(|rank| (rank, true));
        for (me, leaves) in turns.chain(rest.take(100 * ranks)) {
            if leaves {
                world.couriers[me].say_goodbye();
            }
            world.couriers[me].drive().unwrap();
            if world.couriers[me].has_ended() {
                world.couriers[me].links.clear();
            }
        }
        prop_assert!(world.couriers.iter().all(|courier| courier.links.is_empty()));
    }

    /// No head makes a courier write outside of the pieces of its peer.
    #[test]
    fn heads_name_places_or_nothing(bytes in any::<[u8; 16]>()) {
        let world = World::new(&[0, 1], 8);
        let direction = world.direction(0, (1, 0), 0);
        let Some(head) = WordHead::from_bytes(bytes) else { return Ok(()) };
        prop_assert_eq!(WordHead::from_bytes(head.to_bytes()), Some(head));
        if let Some((_, CopyRange { start, len })) = direction.place(&head) {
            let mailbox = DeviceBoard::bytes_in_host(&shapes(false), 2) / 2;
            prop_assert!(len == 0 || (mailbox..mailbox + 2 * 480).contains(&(start + len - 1)));
        }
    }
}

/// A rank that dies says no goodbye.
#[test]
fn a_stream_that_ends_without_a_goodbye_is_lost() {
    let mut world = World::new(&[0, 1], 64);
    let died = world.couriers.remove(0);
    drop(died);
    let lost = world.couriers[0].drive().unwrap_err();
    assert_eq!(lost.peer, 0);
}
