//! The link on which one rank sends to another.

use super::door::Door;
use super::frame::Frame;
use super::post::Sending;
use super::way::Way;
use super::{COST, ROOM, SHORT, broken};
use crate::execute::{AnyStream, Moved};
use maypole_kernels::{View, ViewMut};
use maypole_transports::poll::Interest;
use maypole_transports::{Fault, HEAD, Pipe};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

/// What follows a frame.
#[derive(Debug)]
enum Tail {
    Nothing,
    /// The bytes of this send.
    Send(usize),
    /// Where shared memory may be brought to.
    Door(Vec<u8>),
    /// Everything else, through shared memory.
    Turn,
}

/// Messages leave in the order in which they were posted; long ones wait for their grant without
/// holding up others.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) way: Way,
    /// Where the receiver may bring shared memory.
    door: Option<Door>,
    /// Sends of the running batch that may not even be announced yet.
    turn: VecDeque<usize>,
    /// Frames on their way, each with what follows it.
    queue: VecDeque<([u8; HEAD], Tail)>,
    /// Bytes of the first frame that have left.
    left: usize,
    /// Messages so far.
    number: u64,
    /// What our messages take of the receiver's room, as far as we know.
    waiting: usize,
    /// Messages that wait for their grant, by number, and the sends that they are.
    announced: VecDeque<(u64, usize)>,
    word: [u8; HEAD],
    /// Bytes of the word that are here.
    here: usize,
    pub(super) fault: Option<Fault>,
    /// What has left, for those who count.
    pub(super) sent: Moved,
}

impl Outgoing {
    /// Sends over `stream`, and through what the receiver brings if it has an `door`.
    pub(super) fn new(stream: AnyStream, door: Option<Door>) -> Self {
        let told = door.as_ref().map(Door::to_bytes);
        let told =
            told.map(|bytes| (Frame::Door(bytes.len() as u64).to_bytes(), Tail::Door(bytes)));
        Self {
            way: Way::new(stream),
            door,
            turn: VecDeque::new(),
            queue: told.into_iter().collect(),
            left: 0,
            number: 0,
            waiting: 0,
            announced: VecDeque::new(),
            word: [0; HEAD],
            here: 0,
            fault: None,
            sent: Moved::default(),
        }
    }

    /// Send `at` is next.
    pub(super) fn post(&mut self, at: usize, sends: &mut [Sending<'_>]) {
        self.collect();
        sends[at].number = self.number + self.turn.len() as u64;
        self.turn.push_back(at);
        self.announce(sends);
    }

    /// Turns to shared memory, if the receiver has brought some.
    pub(super) fn collect(&mut self) {
        if let Some(segment) = self.door.as_ref().and_then(Door::collect) {
            self.door = None;
            self.way.add(AnyStream::Pipe(Pipe::writer(segment)));
            self.queue.push_back((Frame::Turn.to_bytes(), Tail::Turn));
        }
    }

    /// Puts on their way all sends that there is room for, in order.
    fn announce(&mut self, sends: &[Sending<'_>]) {
        while let Some(at) = self.turn.front().copied() {
            let label = sends[at].label();
            let short = label.bytes <= SHORT && self.waiting + COST + label.bytes <= ROOM;
            if !short && self.waiting + COST > 2 * ROOM {
                return;
            }
            if short {
                self.waiting += COST + label.bytes;
                self.queue.push_back((Frame::Short(label).to_bytes(), Tail::Send(at)));
            } else {
                self.waiting += COST;
                self.queue.push_back((Frame::Long(label).to_bytes(), Tail::Nothing));
                self.announced.push_back((self.number, at));
            }
            self.number += 1;
            self.turn.pop_front();
        }
    }

    /// True if a message of `bytes` bytes can leave before its receiver asks for it.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        bytes <= SHORT && self.waiting + COST + bytes <= ROOM
    }

    /// Moves what can be moved now, both ways; true if anything did.
    pub(super) fn drive(&mut self, sends: &mut [Sending<'_>]) -> bool {
        if self.fault.is_some() {
            return false;
        }
        let heard = self.listens() && self.hear(sends);
        self.push(sends) | heard
    }

    /// Sends as much as leaves now.
    fn push(&mut self, sends: &mut [Sending<'_>]) -> bool {
        let mut moved = false;
        while let Some((head, tail)) = self.queue.front() {
            let body = match tail {
                Tail::Send(at) => sends[*at].data,
                Tail::Door(bytes) => View::of(bytes),
                Tail::Nothing | Tail::Turn => View::EMPTY,
            };
            match self.way.send(head, body, self.left) {
                Ok(0) => return moved,
                Ok(sent) => self.left += sent,
                Err(fault) => {
                    self.fault = Some(fault);
                    return moved;
                }
            }
            moved = true;
            if self.left == HEAD + body.len() {
                self.sent.written += self.left as u64;
                match tail {
                    Tail::Send(at) => {
                        self.sent.messages += 1;
                        self.sent.payload += body.len() as u64;
                        sends[*at].done = true;
                    }
                    Tail::Turn => self.way.turn_out(),
                    Tail::Nothing | Tail::Door(_) => {}
                }
                self.queue.pop_front();
                self.left = 0;
            }
        }
        moved
    }

    /// True if the receiver has something to say that matters now.
    fn listens(&self) -> bool {
        !self.announced.is_empty() || !self.turn.is_empty() || self.waiting > ROOM / 2
    }

    /// Takes in what the receiver says.
    fn hear(&mut self, sends: &[Sending<'_>]) -> bool {
        let mut moved = false;
        loop {
            match self.way.receive(&mut self.word, ViewMut::EMPTY, self.here) {
                Ok(0) => return moved,
                Ok(came) => self.here += came,
                Err(fault) => {
                    self.fault = Some(fault);
                    return moved;
                }
            }
            moved = true;
            if self.here == HEAD {
                self.here = 0;
                if self.obey().is_none() {
                    self.fault = Some(broken("the receiver said something that means nothing"));
                    return moved;
                }
                self.announce(sends);
            }
        }
    }

    /// Does what the word says; `None` if it makes no sense.
    fn obey(&mut self) -> Option<()> {
        match Frame::from_bytes(self.word)? {
            Frame::Grant(number) => {
                let at = self.announced.iter().position(|(announced, _)| *announced == number)?;
                let (_, send) = self.announced.remove(at)?;
                self.queue.push_back((Frame::Body(number).to_bytes(), Tail::Send(send)));
                self.waiting = self.waiting.checked_sub(COST)?;
            }
            Frame::Taken(room) => {
                self.waiting = self.waiting.checked_sub(usize::try_from(room).ok()?)?
            }
            Frame::Turn => return self.way.turn_inward().then_some(()),
            Frame::Short(_) | Frame::Long(_) | Frame::Body(_) | Frame::Door(_) => return None,
        }
        Some(())
    }

    /// What to wake up for, if anything.
    pub(super) fn interest(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        if self.fault.is_some() {
            return None;
        }
        self.way.interest(self.listens(), !self.queue.is_empty())
    }

    /// Takes in what nobody will read any more, so that closing the stream does not throw away what
    /// is on its way.
    pub(super) fn forget(&mut self) {
        let mut word = [0; HEAD];
        while self.fault.is_none()
            && matches!(self.way.receive(&mut word, ViewMut::EMPTY, 0), Ok(1..))
        {}
    }
}
