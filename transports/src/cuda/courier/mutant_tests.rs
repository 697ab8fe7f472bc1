//! Couriers that break one rule each. The model of the ranks objects to all of them.

use super::super::message::{WordHead, WordKind};
use super::World;
use crate::any_stream::AnyStream;
use crate::mem::{self, Mem};
use crate::stream::{HEAD, Result, Stream};
use maypole_kernels::{View, ViewMut};
use std::panic::{AssertUnwindSafe, catch_unwind};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Mutant {
    /// None is broken.
    None,
    /// None is broken: a publication is delayed, and words behind it overtake it, also publications of other
    /// lanes.
    LanesReordered,
    /// `arrived` is written before the bytes.
    CounterFirst,
    /// More publications are consumed than the reader has read.
    CreditEarly,
    /// The goodbye overtakes the last publication.
    GoodbyeFirst,
    /// The bytes of a lane go to another one.
    LaneMixed,
    /// Nothing is sent after some messages.
    Stops,
}

/// The sending end of a courier that breaks a rule.
#[derive(Debug)]
struct BrokenStream {
    below: Mem,
    mutant: Mutant,
    /// The message that the courier sends.
    message: Vec<u8>,
    /// The last one, if it has to wait for the next.
    held: Vec<u8>,
    messages: usize,
    /// Bytes that leave when there is room.
    ready: Vec<u8>,
}

impl BrokenStream {
    fn over(below: Mem, mutant: Mutant) -> AnyStream {
        let (message, held, ready) = (Vec::new(), Vec::new(), Vec::new());
        AnyStream::Test(Box::new(Self { below, mutant, message, held, messages: 0, ready }))
    }

    /// The room and the lane of the publication that is held back.
    fn held_lane(&self) -> Option<(u8, u8)> {
        let head: [u8; HEAD] = self.held.get(..HEAD)?.try_into().ok()?;
        WordHead::from_bytes(head).map(|head| (head.room, head.lane))
    }

    /// Breaks the rule with a whole message.
    fn break_rule(&mut self) {
        let mut message = std::mem::take(&mut self.message);
        let mut head = WordHead::from_bytes(message[..HEAD].try_into().unwrap()).unwrap();
        self.messages += 1;
        match (self.mutant, head.kind) {
            (Mutant::CounterFirst, WordKind::Arrived) => {
                let first = WordHead { length: 0, ..head };
                self.ready.extend(first.to_bytes());
            }
            (Mutant::CreditEarly, WordKind::Consumed) => head.word += 1,
            (Mutant::LaneMixed, WordKind::Arrived) => head.lane ^= 1,
            (Mutant::LanesReordered, kind) => {
                let is_of_lane = self.held_lane() == Some((head.room, head.lane));
                if is_of_lane || kind == WordKind::Goodbye {
                    self.ready.append(&mut self.held);
                } else if kind == WordKind::Arrived && self.held.is_empty() {
                    self.held = message;
                    return;
                }
            }
            (Mutant::Stops, _) if self.messages > 3 => return,
            (Mutant::GoodbyeFirst, WordKind::Goodbye) => {
                self.ready.append(&mut message);
                return self.ready.append(&mut self.held);
            }
            (Mutant::GoodbyeFirst, WordKind::Arrived) => {
                self.ready.append(&mut self.held);
                self.held = message;
                return;
            }
            _ => {}
        }
        message[..HEAD].copy_from_slice(&head.to_bytes());
        self.ready.append(&mut message);
    }

    fn flush(&mut self) -> Result<()> {
        while !self.ready.is_empty() {
            let mut head = [0; HEAD];
            let count = self.ready.len().min(HEAD);
            head[HEAD - count..].copy_from_slice(&self.ready[..count]);
            let sent = self.below.send(&head, View::EMPTY, HEAD - count)?;
            if sent == 0 {
                break;
            }
            self.ready.drain(..sent);
        }
        Ok(())
    }
}

impl Stream for BrokenStream {
    fn send(&mut self, head: &[u8; HEAD], body: View<'_>, skip: usize) -> Result<usize> {
        assert_eq!(skip, 0, "it takes whole messages");
        self.message = [&head[..], &body.to_vec()].concat();
        self.break_rule();
        self.flush()?;
        Ok(HEAD + body.len())
    }

    fn receive(&mut self, head: &mut [u8; HEAD], body: ViewMut<'_>, skip: usize) -> Result<usize> {
        if self.mutant == Mutant::LanesReordered {
            self.ready.append(&mut self.held);
        }
        self.flush()?;
        self.below.receive(head, body, skip)
    }

    fn finish(&mut self) {
        self.below.finish();
    }
}

/// Random steps of two ranks on two hosts; then everything is read, and rank 0 leaves.
fn run(mutant: Mutant, seed: u64) {
    let mut world = World::over(&[0, 1], 1, || {
        let (here, there) = mem::pair(40);
        (BrokenStream::over(here, mutant), BrokenStream::over(there, mutant))
    });
    let mut state = seed;
    for _ in 0..1000 {
        state = maypole_kernels::mix(state + 1);
        let [a, b, c, d, e, f, ..] = state.to_le_bytes();
        world.step([a, b, c, d, e, f]);
    }
    if mutant != Mutant::GoodbyeFirst {
        world.read_all();
    }
    world.couriers[0].say_goodbye();
    while world.couriers[1].left() == 0 {
        for courier in &mut world.couriers {
            courier.drive().unwrap();
        }
    }
    while world.read(1, 0) {}
    assert!(world.unread[0][1].is_empty(), "the goodbye came before the last publication");
}

#[test]
fn mutants_are_caught() {
    use Mutant as M;
    let object = |mutant| {
        (0..100)
            .filter(|seed| catch_unwind(AssertUnwindSafe(|| run(mutant, *seed))).is_err())
            .count()
    };
    assert_eq!([M::None, M::LanesReordered].map(object), [0, 0]);
    for mutant in [M::CounterFirst, M::CreditEarly, M::GoodbyeFirst, M::LaneMixed, M::Stops] {
        assert!(object(mutant) > 0, "{mutant:?} is not caught");
    }
}
