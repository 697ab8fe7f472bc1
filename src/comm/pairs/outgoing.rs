//! The link on which one rank sends to another.

use super::frame::Frame;
use super::post::Sending;
use super::{COST, ROOM, SHORT, broken};
use crate::execute::AnyStream;
use maypole_kernels::{View, ViewMut};
use maypole_transports::poll::Interest;
use maypole_transports::{Fault, HEAD, Stream};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

/// Messages leave in the order in which they were posted; long ones wait for their grant without holding up others.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) stream: AnyStream,
    /// Sends of the running batch that may not even be announced yet.
    turn: VecDeque<usize>,
    /// Frames on their way, each with the send whose bytes follow it.
    queue: VecDeque<([u8; HEAD], Option<usize>)>,
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
}

impl Outgoing {
    pub(super) fn new(stream: AnyStream) -> Self {
        Self {
            stream,
            turn: VecDeque::new(),
            queue: VecDeque::new(),
            left: 0,
            number: 0,
            waiting: 0,
            announced: VecDeque::new(),
            word: [0; HEAD],
            here: 0,
            fault: None,
        }
    }

    /// Send `at` is next.
    pub(super) fn post(&mut self, at: usize, sends: &[Sending<'_>]) {
        self.turn.push_back(at);
        self.announce(sends);
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
                self.queue.push_back((Frame::Short(label).to_bytes(), Some(at)));
            } else {
                self.waiting += COST;
                self.queue.push_back((Frame::Long(label).to_bytes(), None));
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
        while let Some((head, sent)) = self.queue.front() {
            let body = sent.map_or(View::EMPTY, |at| sends[at].data);
            match self.stream.send(head, body, self.left) {
                Ok(0) => return moved,
                Ok(sent) => self.left += sent,
                Err(fault) => {
                    self.fault = Some(fault);
                    return moved;
                }
            }
            moved = true;
            if self.left == HEAD + body.len() {
                if let Some(at) = sent {
                    sends[*at].done = true;
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
            match self.stream.receive(&mut self.word, ViewMut::EMPTY, self.here) {
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
                self.queue.push_back((Frame::Body(number).to_bytes(), Some(send)));
                self.waiting = self.waiting.checked_sub(COST)?;
            }
            Frame::Taken(room) => self.waiting = self.waiting.checked_sub(usize::try_from(room).ok()?)?,
            Frame::Short(_) | Frame::Long(_) | Frame::Body(_) => return None,
        }
        Some(())
    }

    /// What to wake up for, if anything.
    pub(super) fn interest(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        let interest = match (self.listens(), !self.queue.is_empty()) {
            (true, true) => Interest::Both,
            (true, false) => Interest::Read,
            (false, true) => Interest::Write,
            (false, false) => return None,
        };
        Some((self.stream.descriptor()?, interest))
    }

    /// Takes in what nobody will read any more, so that closing the stream does not throw away what is on its way.
    pub(super) fn forget(&mut self) {
        let mut word = [0; HEAD];
        while self.fault.is_none() && matches!(self.stream.receive(&mut word, ViewMut::EMPTY, 0), Ok(1..)) {}
    }
}
