//! Direct writes as an adapter may make them at worst: bytes land as late as the order of a connection allows,
//! completions come at any time, and a request finds no room now and then. Adapters that break one rule each
//! are caught by the model of the ranks.

use super::World;
use crate::any_stream::AnyStream;
use crate::mem::{self, Mem};
use crate::shm::Segment;
use crate::stream::direct::{DirectWrites, RemoteMemory};
use crate::stream::{Fault, HEAD, Result, Stream};
use maypole_kernels::{View, ViewMut};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

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
}

/// A write that is not complete.
#[derive(Debug)]
struct PostedWrite {
    at: usize,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct DirectEnd {
    below: Mem,
    mutant: Mutant,
    /// This end's and the other's place in `memories`.
    sides: [usize; 2],
    memories: Arc<Mutex<[Option<Arc<Segment>>; 2]>>,
    /// Writes that have not landed, and the number of sends since.
    flying: Vec<(PostedWrite, usize)>,
    posted: VecDeque<PostedWrite>,
    total: u64,
    chance: u64,
}

pub(super) fn pair(capacity: usize, mutant: Mutant) -> (AnyStream, AnyStream) {
    let memories = Arc::<Mutex<_>>::default();
    let (here, there) = mem::pair(capacity);
    let end = |below, sides| {
        let (flying, posted, memories) = (Vec::new(), VecDeque::new(), Arc::clone(&memories));
        let chance = capacity as u64;
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
        Arc::clone(self.memories.lock().unwrap()[self.sides[of]].as_ref().unwrap())
    }

    fn happens(&mut self, once_in: u64) -> bool {
        self.chance = maypole_kernels::mix(self.chance + 1);
        self.chance.is_multiple_of(once_in)
    }

    /// Bytes land before anything that is sent after them.
    fn land(&mut self) {
        let late = if self.mutant == Mutant::WordFirst { 40 } else { 0 };
        let there = self.flying.first().map(|_| self.memory(1));
        for (write, sends) in &mut self.flying {
            *sends += 1;
            if *sends > late {
                let mixed = self.mutant == Mutant::LaneMixed;
                let at = write.at + if mixed { super::LONGEST } else { 0 };
                // SAFETY: the test has one thread.
                let memory = unsafe { there.as_ref().unwrap().view() };
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
        self.memories.lock().unwrap()[self.sides[0]] = Some(Arc::clone(memory));
        Ok(remote(self.sides[0], memory))
    }

    fn port(&self) -> String {
        "port 1 of a test".to_owned()
    }

    unsafe fn write(&mut self, (at, len): (usize, usize), to: RemoteMemory) -> Result<Option<u64>> {
        if self.mutant == Mutant::Refused || to != remote(self.sides[1], &self.memory(1)) {
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
        self.flying.push((PostedWrite { at, bytes: bytes.clone() }, 0));
        self.posted.push_back(PostedWrite { at, bytes });
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

fn run(mutant: Mutant, seed: u64) {
    let mut world = World::over(&[0, 1], 1, || pair(40, mutant));
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
    let object = |mutant| {
        let fails = |seed: &u64| catch_unwind(AssertUnwindSafe(|| run(mutant, *seed))).is_err();
        (0..100).filter(fails).count()
    };
    assert_eq!(object(M::None), 0);
    for mutant in [M::WordFirst, M::LaneMixed, M::CompleteEarly, M::Refused] {
        assert!(object(mutant) > 0, "{mutant:?} is not caught");
    }
}

#[test]
fn the_number_of_a_publication_is_above_its_mark() {
    let source = include_str!("../../../../kernels/cuda/lane.h");
    assert!(source.contains("MARK_LOG = 16,"), "couriers read the number above the mark");
}
