//! Direct writes as an adapter may make them at worst: bytes land as late as the order of a connection allows,
//! completions come at any time, and a request finds no room now and then. Adapters that break one rule each
//! are caught by the model of the ranks.

use super::super::message::{WordHead, WordKind};
use super::World;
use crate::any_stream::AnyStream;
use crate::mem;
use crate::shm::Segment;
use crate::stream::direct::{DirectWrites, DmaBuf, RemoteMemory};
use crate::stream::{Fault, HEAD, Result, Stream};
use maypole_kernels::{View, ViewMut};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

/// Where slots are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SlotPlace {
    Host,
    Gpus,
    /// On GPUs that see bytes late.
    LateGpus,
}

/// The memory of a rank's GPU.
pub(super) fn gpu(bytes: usize, lands_late: bool) -> (Arc<Segment>, Arc<DmaBuf>) {
    let segment = Arc::new(Segment::create(bytes).unwrap());
    let file = std::fs::File::open("/dev/null").unwrap().into();
    let (address, memory) = (segment.start().as_ptr() as u64, Arc::clone(&segment) as _);
    (segment, Arc::new(DmaBuf { file, address, len: bytes, lands_late, memory }))
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Mutant {
    /// No rule is broken.
    None,
    /// The word arrives before the bytes.
    WordFirst,
    /// The bytes land in another lane.
    LaneMixed,
    /// A write is said to be complete while the adapter still reads its bytes.
    CompleteEarly,
    /// The peer's adapter takes no such key.
    Refused,
    /// The key is that of memory of the host, and slots are in the memory of GPUs.
    HostKey,
    /// The bytes land in the twin of the slots of another rank.
    TwinMixed,
    /// The device does not see the bytes that the word follows.
    FlushLeftOut,
}

/// A write that is not complete.
#[derive(Debug)]
struct PostedWrite {
    at: usize,
    /// The place in the memory of the other end.
    to: usize,
    bytes: Vec<u8>,
}

/// The registered memory of an end.
#[derive(Debug, Default)]
struct EndMemory {
    segment: Option<Arc<Segment>>,
    is_late: bool,
    /// Bytes that the device does not see before the next flush, and their places.
    late: Vec<(usize, Vec<u8>)>,
}

#[derive(Debug)]
struct DirectEnd {
    below: AnyStream,
    mutant: Mutant,
    /// This end's and the other's place in `memories`.
    sides: [usize; 2],
    memories: Arc<Mutex<[EndMemory; 2]>>,
    /// Writes that have not landed, and the number of sends since.
    flying: Vec<(PostedWrite, usize)>,
    posted: VecDeque<PostedWrite>,
    total: u64,
    chance: u64,
}

pub(super) fn pair(capacity: usize, mutant: Mutant) -> (AnyStream, AnyStream) {
    let (here, there) = mem::pair(capacity);
    over((AnyStream::Mem(here), AnyStream::Mem(there)), capacity as u64, mutant)
}

/// Ends whose messages go over these streams.
pub(super) fn over(
    (here, there): (AnyStream, AnyStream),
    chance: u64,
    mutant: Mutant,
) -> (AnyStream, AnyStream) {
    let memories = Arc::<Mutex<_>>::default();
    let end = |below, sides| {
        let (flying, posted, memories) = (Vec::new(), VecDeque::new(), Arc::clone(&memories));
        let end = DirectEnd { below, mutant, sides, memories, flying, posted, total: 0, chance };
        AnyStream::Test(Box::new(end))
    };
    (end(here, [0, 1]), end(there, [1, 0]))
}

fn remote(side: usize, memory: &Segment) -> RemoteMemory {
    RemoteMemory { address: memory.start().as_ptr() as u64, key: 100 + side as u32 }
}

impl DirectEnd {
    fn memory(&self, of: usize) -> Arc<Segment> {
        let memories = self.memories.lock().unwrap();
        Arc::clone(memories[self.sides[of]].segment.as_ref().unwrap())
    }

    fn register_memory(&mut self, segment: Arc<Segment>, is_late: bool) -> RemoteMemory {
        let registered = remote(self.sides[0], &segment);
        let memory = EndMemory { segment: Some(segment), is_late, late: Vec::new() };
        self.memories.lock().unwrap()[self.sides[0]] = memory;
        registered
    }

    /// Lets this end's device see all bytes.
    fn see(&self) {
        let EndMemory { segment, late, .. } = &mut self.memories.lock().unwrap()[self.sides[0]];
        for (at, bytes) in late.drain(..) {
            // SAFETY: nobody reads them before the word behind them.
            let memory = unsafe { segment.as_ref().unwrap().view() };
            memory.slice(at, bytes.len()).fill_from(&bytes);
        }
    }

    fn happens(&mut self, once_in: u64) -> bool {
        self.chance = maypole_kernels::mix(self.chance + 1);
        self.chance.is_multiple_of(once_in)
    }

    /// Bytes land before anything that is sent after them.
    fn land(&mut self) {
        let late = if self.mutant == Mutant::WordFirst { 40 } else { 0 };
        let EndMemory { segment, is_late, late: unseen } =
            &mut self.memories.lock().unwrap()[self.sides[1]];
        for (write, sends) in &mut self.flying {
            *sends += 1;
            if *sends > late {
                let at = match self.mutant {
                    Mutant::LaneMixed => write.to + super::LONGEST,
                    Mutant::TwinMixed => write.to - super::SHAPE.bytes,
                    _ => write.to,
                };
                if *is_late {
                    unseen.push((at, write.bytes.clone()));
                    continue;
                }
                // SAFETY: nobody reads them before the word behind them.
                let memory = unsafe { segment.as_ref().unwrap().view() };
                memory.slice(at, write.bytes.len()).fill_from(&write.bytes);
            }
        }
        self.flying.retain(|(_, sends)| *sends <= late);
    }

    /// Completes the first write. Its bytes are as they were.
    fn complete(&mut self) {
        let Some(write) = self.posted.pop_front() else { return };
        let memory = self.memory(0);
        // SAFETY: the test has one thread.
        let now = unsafe { memory.view() }.slice(write.at, write.bytes.len());
        assert_eq!(now.as_view().to_vec(), write.bytes, "bytes changed during their write");
    }
}

impl DirectWrites for DirectEnd {
    fn register(&mut self, memory: &Arc<Segment>) -> std::io::Result<RemoteMemory> {
        Ok(self.register_memory(Arc::clone(memory), false))
    }

    fn register_device(&mut self, memory: &Arc<DmaBuf>) -> std::io::Result<RemoteMemory> {
        let segment = Arc::downcast(Arc::clone(&memory.memory)).unwrap();
        let registered = self.register_memory(segment, memory.lands_late);
        let key = registered.key + if self.mutant == Mutant::HostKey { 10 } else { 0 };
        Ok(RemoteMemory { key, ..registered })
    }

    fn flush(&mut self, _: usize) -> Result<bool> {
        if self.mutant == Mutant::FlushLeftOut {
            return Ok(true);
        }
        let is_done = self.happens(2);
        if is_done {
            self.see();
        }
        Ok(is_done)
    }

    fn port(&self) -> String {
        "port 1 of a test".to_owned()
    }

    unsafe fn write(&mut self, (at, len): (usize, usize), to: RemoteMemory) -> Result<Option<u64>> {
        let there = remote(self.sides[1], &self.memory(1));
        if self.mutant == Mutant::Refused || to.key != there.key {
            return Err(Fault::Io(std::io::Error::other("refused")));
        }
        if self.happens(3) {
            return Ok(None);
        }
        if self.happens(2) {
            self.complete();
        }
        let memory = self.memory(0);
        // SAFETY: the test has one thread.
        let bytes = unsafe { memory.view() }.slice(at, len).as_view().to_vec();
        let to = (to.address - there.address) as usize;
        self.flying.push((PostedWrite { at, to, bytes: bytes.clone() }, 0));
        self.posted.push_back(PostedWrite { at, to, bytes });
        self.total += 1;
        Ok(Some(self.total))
    }

    fn is_complete(&mut self, write: u64) -> Result<bool> {
        if self.mutant == Mutant::CompleteEarly {
            return Ok(true);
        }
        if self.happens(2) {
            self.complete();
        }
        Ok(self.total - self.posted.len() as u64 >= write)
    }
}

impl Stream for DirectEnd {
    fn send(&mut self, head: &[u8; HEAD], body: View<'_>, skip: usize) -> Result<usize> {
        self.land();
        self.below.send(head, body, skip)
    }

    fn receive(&mut self, head: &mut [u8; HEAD], body: ViewMut<'_>, skip: usize) -> Result<usize> {
        self.below.receive(head, body, skip)
    }

    fn direct(&mut self) -> Option<&mut dyn DirectWrites> {
        Some(self)
    }

    fn finish(&mut self) {
        self.below.finish();
    }
}

fn run(slots: SlotPlace, mutant: Mutant, seed: u64) {
    let mut world = World::of(&[0, 1], 1, slots, || pair(40, mutant));
    let mut state = seed;
    for _ in 0..300 {
        state = maypole_kernels::mix(state + 1);
        let [a, b, c, d, e, f, ..] = state.to_le_bytes();
        world.step([a, b, c, d, e, f]);
    }
    world.read_all();
}

#[test]
fn adapters_that_break_a_rule_are_caught() {
    use Mutant as M;
    let object = |slots, mutant| {
        let run = |seed: &u64| run(slots, mutant, *seed);
        let fails = |seed: &u64| catch_unwind(AssertUnwindSafe(|| run(seed))).is_err();
        (0..100).filter(fails).count()
    };
    let of_all = [M::WordFirst, M::LaneMixed, M::CompleteEarly, M::Refused];
    let of_gpus = [M::HostKey, M::TwinMixed];
    for (slots, more) in [(SlotPlace::Host, &[][..]), (SlotPlace::Gpus, &of_gpus)] {
        assert_eq!(object(slots, M::None), 0);
        for mutant in of_all.iter().chain(more) {
            assert!(object(slots, *mutant) > 0, "{mutant:?} is not caught, {slots:?}");
        }
    }
    assert_eq!(object(SlotPlace::LateGpus, M::None), 0);
    assert!(object(SlotPlace::LateGpus, M::FlushLeftOut) > 0, "a flush may be left out");
}

/// No processor writes bytes into the memory of a GPU, whoever sends them.
#[test]
fn bytes_in_a_message_are_refused_where_slots_are_on_gpus() {
    let mut world = World::of(&[0, 1], 1, SlotPlace::Gpus, || pair(64, Mutant::None));
    let head = WordHead { kind: WordKind::Arrived, length: 4, ..WordHead::GOODBYE };
    let stream = &mut world.couriers[0].links[0].stream;
    stream.send(&head.to_bytes(), View::of(&[1_u8; 4]), 0).unwrap();
    let why = world.couriers[1].drive().unwrap_err().fault.to_string();
    assert!(why.contains("names no place"), "{why}");
}

#[test]
fn the_number_of_a_publication_is_above_its_mark() {
    let source = include_str!("../../../../kernels/cuda/lane.h");
    assert!(source.contains("MARK_LOG = 16,"), "couriers read the number above the mark");
}
