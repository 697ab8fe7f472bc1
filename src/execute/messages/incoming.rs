//! The link on which one rank receives from another.

use super::door::{LONGEST, bring};
use super::frame::{Frame, Label};
use super::post::{Receiving, State};
use super::way::Way;
use super::{COST, REPORT, ROOM, SHORT, Stop, Why, broken};
use crate::execute::AnyStream;
use maypole_kernels::{View, ViewMut};
use maypole_transports::poll::Interest;
use maypole_transports::{Fault, HEAD, Pipe};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

/// A message that nobody has asked for yet.
#[derive(Debug)]
struct Message {
    number: u64,
    label: Label,
    /// Its bytes, if they came with it.
    bytes: Option<Vec<u8>>,
}

impl Message {
    /// What it takes of our room.
    fn cost(&self) -> usize {
        COST + self.bytes.as_ref().map_or(0, Vec::len)
    }
}

/// What is coming in.
#[derive(Debug)]
enum Coming {
    Head,
    /// A message, whole once the bytes that come with it are here.
    Message(Message),
    /// So many bytes for this receive of the running batch.
    Into(usize, usize),
    /// Where shared memory may be brought to.
    Door(Vec<u8>),
    Turn,
}

/// Takes messages in, in the order in which they were sent, and keeps those that nobody asked for
/// yet.
#[derive(Debug)]
pub(super) struct Incoming {
    peer: usize,
    way: Way,
    /// We may bring shared memory.
    brings: bool,
    head: [u8; HEAD],
    /// Bytes of the frame that are here.
    here: usize,
    coming: Coming,
    /// Messages so far.
    number: u64,
    waiting: VecDeque<Message>,
    /// What they take of our room.
    held: usize,
    /// Messages whose bytes we asked for, by number, and the receives that they are for.
    granted: VecDeque<(u64, usize)>,
    words: VecDeque<[u8; HEAD]>,
    /// Bytes of the first word that have left.
    left: usize,
    /// What was taken and not reported.
    unreported: usize,
    pub(super) fault: Option<Fault>,
}

impl Incoming {
    /// Receives over `stream`; `brings` says whether there is memory left to share.
    pub(super) fn new(peer: usize, stream: AnyStream, brings: bool) -> Self {
        Self {
            peer,
            way: Way::new(stream),
            brings,
            head: [0; HEAD],
            here: 0,
            coming: Coming::Head,
            number: 0,
            waiting: VecDeque::new(),
            held: 0,
            granted: VecDeque::new(),
            words: VecDeque::new(),
            left: 0,
            unreported: 0,
            fault: None,
        }
    }

    /// True if it never carried anything.
    pub(super) fn is_fresh(&self) -> bool {
        self.number == 0 && self.here == 0
    }

    /// Gives receive `at` the first message that waits for it, if there is one.
    pub(super) fn serve(
        &mut self,
        at: usize,
        receives: &mut [Receiving<'_>],
    ) -> Result<bool, Stop> {
        let tag = receives[at].tag;
        let Some(found) = self.waiting.iter().position(|message| message.label.tag == tag) else {
            return Ok(false);
        };
        let message = self.waiting.remove(found).expect("found above");
        self.held -= message.cost();
        self.take(message, at, receives)?;
        Ok(true)
    }

    /// Receive `at` takes `message`.
    fn take(
        &mut self,
        message: Message,
        at: usize,
        receives: &mut [Receiving<'_>],
    ) -> Result<(), Stop> {
        let (receive, label) = (&mut receives[at], message.label);
        if !receive.fits(label) {
            let theirs =
                format!("sends {} x {}", label.bytes / label.kind.size(), label.kind.name());
            return Err(Stop::receive(at, Some(self.peer), Why::Mismatch(theirs)));
        }
        receive.number = message.number;
        self.unreported += message.cost();
        match message.bytes {
            Some(bytes) => {
                receive.into.slice(0, bytes.len()).copy_from(View::of(&bytes));
                receive.state = State::Done(self.peer, bytes.len());
                if self.unreported >= REPORT {
                    self.words.push_back(Frame::Taken(self.unreported as u64).to_bytes());
                    self.unreported = 0;
                }
            }
            None => {
                // The grant itself says that the announcement was taken.
                self.unreported -= COST;
                self.words.push_back(Frame::Grant(message.number).to_bytes());
                self.granted.push_back((message.number, at));
                receive.state = State::Granted(self.peer, label.bytes);
            }
        }
        Ok(())
    }

    /// Moves what can be moved now, both ways, up to the end of a frame; true if anything did.
    pub(super) fn drive(&mut self, receives: &mut [Receiving<'_>]) -> Result<bool, Stop> {
        if self.fault.is_some() {
            return Ok(false);
        }
        let pulled = self.pull(receives)?;
        Ok(self.answer() | pulled)
    }

    fn pull(&mut self, receives: &mut [Receiving<'_>]) -> Result<bool, Stop> {
        let mut moved = false;
        loop {
            let body = match &mut self.coming {
                Coming::Head | Coming::Turn => ViewMut::EMPTY,
                Coming::Door(bytes) => ViewMut::of(bytes),
                Coming::Message(message) => {
                    ViewMut::of(message.bytes.as_mut().expect("bytes follow"))
                }
                Coming::Into(at, bytes) => receives[*at].into.slice(0, *bytes),
            };
            match self.way.receive(&mut self.head, body, self.here) {
                Ok(0) => return Ok(moved),
                Ok(came) => self.here += came,
                Err(fault) => {
                    self.fault = Some(fault);
                    return Ok(moved);
                }
            }
            moved = true;
            let whole = HEAD + body.len();
            if self.here == HEAD && matches!(self.coming, Coming::Head) {
                match self.begin(receives)? {
                    Some(0) => {}
                    Some(_) => continue,
                    None => {
                        self.fault = Some(broken("the sender said something that means nothing"));
                        return Ok(true);
                    }
                }
            } else if self.here < whole {
                continue;
            }
            self.end(receives)?;
            return Ok(true);
        }
    }

    /// A head is here: how many bytes follow it, or `None` if it makes no sense.
    fn begin(&mut self, receives: &[Receiving<'_>]) -> Result<Option<usize>, Stop> {
        let number = self.number;
        let (coming, bytes) = match Frame::from_bytes(self.head) {
            Some(Frame::Short(label)) if label.bytes <= SHORT => (
                Coming::Message(Message { number, label, bytes: Some(vec![0; label.bytes]) }),
                label.bytes,
            ),
            Some(Frame::Long(label)) => {
                (Coming::Message(Message { number, label, bytes: None }), 0)
            }
            Some(Frame::Body(number)) => match self.granted.front() {
                Some((granted, at)) if *granted == number => {
                    let State::Granted(_, bytes) = receives[*at].state else { return Ok(None) };
                    (Coming::Into(*at, bytes), bytes)
                }
                _ => return Ok(None),
            },
            Some(Frame::Door(bytes)) if bytes <= LONGEST as u64 => {
                (Coming::Door(vec![0; bytes as usize]), bytes as usize)
            }
            Some(Frame::Turn) => (Coming::Turn, 0),
            _ => return Ok(None),
        };
        self.coming = coming;
        Ok(Some(bytes))
    }

    /// A frame is here as a whole.
    fn end(&mut self, receives: &mut [Receiving<'_>]) -> Result<(), Stop> {
        self.here = 0;
        match std::mem::replace(&mut self.coming, Coming::Head) {
            Coming::Head => {}
            Coming::Door(door) => self.bring(&door),
            Coming::Turn if self.way.turn_inward() => self.words.push_back(Frame::Turn.to_bytes()),
            Coming::Turn => {
                self.fault = Some(broken("the sender turned to shared memory that there is not"))
            }
            Coming::Into(at, bytes) => {
                self.granted.pop_front();
                receives[at].state = State::Done(self.peer, bytes);
            }
            Coming::Message(message) => {
                self.number += 1;
                match receives
                    .iter()
                    .position(|receive| receive.accepts(self.peer, message.label.tag))
                {
                    Some(at) => self.take(message, at, receives)?,
                    None => self.keep(message),
                }
            }
        }
        Ok(())
    }

    /// Brings the sender what it asked for. Where that cannot be done the stream serves as well.
    fn bring(&mut self, door: &[u8]) {
        if !self.brings {
            return;
        }
        match bring(door) {
            Ok(segment) => self.way.add(AnyStream::Pipe(Pipe::reader(segment))),
            Err(error) => {
                tracing::debug!(peer = self.peer, %error, "messages stay on their stream")
            }
        }
    }

    fn keep(&mut self, message: Message) {
        self.held += message.cost();
        // The sender counts, too; so this is no sender of ours.
        if self.held > 2 * ROOM {
            self.fault = Some(broken("more messages wait than the sender may send"));
        }
        self.waiting.push_back(message);
    }

    /// Sends as many words as leave now.
    pub(super) fn answer(&mut self) -> bool {
        let mut moved = false;
        while let Some(word) = self.words.front() {
            match self.way.send(word, View::EMPTY, self.left) {
                Ok(0) => return moved,
                Ok(sent) => self.left += sent,
                // A sender that has left need not hear it; one that died is noticed by what it does
                // not send.
                Err(_) => self.left = HEAD,
            }
            moved = true;
            if self.left == HEAD {
                if Frame::from_bytes(*word) == Some(Frame::Turn) {
                    self.way.turn_out();
                }
                self.words.pop_front();
                self.left = 0;
            }
        }
        moved
    }

    /// What to wake up for.
    pub(super) fn interest(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        if self.fault.is_some() {
            return None;
        }
        self.way.interest(true, !self.words.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::super::post::Batch;
    use super::*;
    use maypole_kernels::DataType;
    use maypole_transports::{Mem, Stream, mem};

    fn link() -> (Mem, Incoming) {
        let (sender, receiver) = mem::pair(1 << 20);
        (sender, Incoming::new(0, AnyStream::Mem(receiver), false))
    }

    fn tell(sender: &mut Mem, head: [u8; HEAD], body: &[u8]) {
        assert_eq!(sender.send(&head, View::of(body), 0).unwrap(), HEAD + body.len());
    }

    /// Takes in all that is there.
    fn drain(link: &mut Incoming, batch: &mut Batch<'_>) {
        while link.drive(&mut batch.receives).unwrap() {}
    }

    fn label(tag: u32, bytes: usize) -> Label {
        Label { tag, kind: DataType::U8, bytes }
    }

    #[test]
    fn a_sender_that_breaks_the_protocol_is_found_out() {
        let frames = [
            Frame::Body(0),
            Frame::Grant(0),
            Frame::Taken(1),
            Frame::Turn,
            Frame::Short(label(0, SHORT + 1)),
            Frame::Short(label(0, usize::MAX)),
            Frame::Door(u64::MAX),
        ];
        for frame in frames {
            let (mut sender, mut link) = link();
            tell(&mut sender, frame.to_bytes(), &[]);
            drain(&mut link, &mut Batch::default());
            assert!(
                matches!(&link.fault, Some(Fault::Io(error)) if error.kind() == std::io::ErrorKind::InvalidData)
            );
        }
    }

    #[test]
    fn no_more_waits_than_there_is_room_for() {
        let (mut sender, mut link) = link();
        let most = 2 * ROOM / COST;
        for number in 0..most {
            tell(&mut sender, Frame::Long(label(number as u32, 1 << 40)).to_bytes(), &[]);
        }
        drain(&mut link, &mut Batch::default());
        assert!(link.fault.is_none() && link.waiting.len() == most);
        tell(&mut sender, Frame::Short(label(0, 1)).to_bytes(), &[7]);
        drain(&mut link, &mut Batch::default());
        assert!(link.fault.is_some());
    }

    #[test]
    fn the_first_message_of_its_tag_is_taken() {
        let (mut sender, mut link) = link();
        for (tag, byte) in [(1, 1), (2, 2), (1, 3)] {
            tell(&mut sender, Frame::Short(label(tag, 1)).to_bytes(), &[byte]);
        }
        drain(&mut link, &mut Batch::default());
        let mut came = [0u8; 3];
        let [a, b, c] = &mut came;
        let mut batch = Batch::default();
        for (into, tag) in [(a, 2), (b, 1), (c, 1)] {
            batch.receive(DataType::U8, ViewMut::of(std::slice::from_mut(into)), Some(0), tag);
        }
        (0..3).for_each(|at| assert!(link.serve(at, &mut batch.receives).unwrap()));
        assert!(batch.is_done() && link.held == 0);
        assert_eq!(came, [2, 1, 3]);
    }
}
