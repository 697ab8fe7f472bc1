//! The link on which one rank receives messages from another.

use super::carrier::{Carrier, FrameBody};
use super::frame::{Envelope, Frame};
use super::message::MessageState;
use super::posted::Posted;
use super::requests::MessageRequests;
use super::{CREDIT, CREDIT_PER_MESSAGE, CREDIT_REPORT, EAGER_LIMIT};
use crate::execute::AnyStream;
use crate::execute::cursor::Advance;
use maypole_kernels::{View, ViewMut};
use maypole_transports::Pipe;
use maypole_transports::shm::{Segment, SegmentOffer};
use std::collections::VecDeque;

/// A message that no receive has taken.
#[derive(Debug)]
struct IncomingMessage {
    number: u64,
    envelope: Envelope,
    /// Its bytes, if it is eager.
    bytes: Option<Vec<u8>>,
}

impl IncomingMessage {
    /// Bytes of credit that it uses.
    fn credit(&self) -> usize {
        CREDIT_PER_MESSAGE + self.bytes.as_ref().map_or(0, Vec::len)
    }
}

/// The frame that is arriving.
#[derive(Debug)]
enum Arriving {
    /// Its header, which is incomplete.
    Head,
    /// A message or an announcement.
    Message(IncomingMessage),
    /// The bytes of a cleared message.
    Data { receive: usize, bytes: usize },
    /// An offer to use shared memory.
    Offer(Vec<u8>),
    /// The sender switches to shared memory.
    Switch,
}

/// Takes messages in the order in which they were sent, and keeps those without a receive in the
/// unexpected queue.
#[derive(Debug)]
pub(super) struct IncomingLink {
    peer: usize,
    pub(super) carrier: Carrier,
    /// This end may provide shared memory.
    provides_memory: bool,
    arriving: Arriving,
    next_number: u64,
    unexpected: VecDeque<IncomingMessage>,
    /// Bytes of credit that the unexpected queue uses.
    unexpected_credit: usize,
    /// Messages that this end has cleared to send: their numbers, and those of their receives among the
    /// posted ones.
    cleared: VecDeque<(u64, usize)>,
    /// Bytes of credit that are free again and have not been reported.
    unreported: usize,
    /// The sender waits for one of the replies.
    owes_answer: bool,
}

impl IncomingLink {
    /// Receives from `peer` over `stream`. `provides_memory`: this end may make shared memory for
    /// the link.
    pub(super) fn new(peer: usize, stream: AnyStream, provides_memory: bool) -> Self {
        Self {
            peer,
            carrier: Carrier::new(stream, true),
            provides_memory,
            arriving: Arriving::Head,
            next_number: 0,
            unexpected: VecDeque::new(),
            unexpected_credit: 0,
            cleared: VecDeque::new(),
            unreported: 0,
            owes_answer: false,
        }
    }

    /// True if no byte has arrived yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.next_number == 0 && self.carrier.receiving.is_at_start()
    }

    /// True if one of `requests` waits for a message of the sender, the bytes of a cleared message
    /// are in flight, or the sender waits for a reply that has not left.
    pub(super) fn is_awaited(&self, requests: &MessageRequests) -> bool {
        requests.awaits(self.peer) || self.is_receiving() || self.owes_answer()
    }

    /// True if the bytes of a cleared message are in flight.
    pub(super) fn is_receiving(&self) -> bool {
        !self.cleared.is_empty()
    }

    /// True if the sender waits for a reply that has not left.
    pub(super) fn owes_answer(&self) -> bool {
        self.owes_answer && self.carrier.fault.is_none()
    }

    /// The length of the unexpected queue, if the sender has no credit for another message.
    pub(super) fn full_queue(&self) -> Option<usize> {
        let used = self.unexpected_credit + self.unreported;
        (used + CREDIT_PER_MESSAGE > 2 * CREDIT).then_some(self.unexpected.len())
    }

    /// Matches receive `at` with the first message of its tag in the unexpected queue; false if
    /// there is none.
    pub(super) fn match_unexpected(&mut self, at: usize, posted: &mut Posted<'_, '_>) -> bool {
        let tag = posted.head(at).tag;
        let mut unexpected = self.unexpected.iter();
        let Some(found) = unexpected.position(|message| message.envelope.tag == tag) else {
            return false;
        };
        let message = self.unexpected.remove(found).expect("found above");
        self.unexpected_credit -= message.credit();
        self.take(message, at, posted);
        true
    }

    /// Receive `at` takes `message`: an eager message is copied, any other is cleared to send. A
    /// message that does not fit is dropped.
    fn take(&mut self, message: IncomingMessage, at: usize, posted: &mut Posted<'_, '_>) {
        let IncomingMessage { number, envelope, bytes: eager } = message;
        let peer = self.peer;
        let bytes = envelope.bytes;
        let misfit = posted.head(at).misfit(peer, envelope);
        let state = match (&eager, misfit) {
            (Some(eager), None) => {
                posted.memory(at).room().slice(0, bytes).copy_from(View::of(eager));
                MessageState::Complete { peer, bytes }
            }
            // The reply also returns the credit of the announcement.
            (None, None) => {
                self.reply(Frame::ClearToSend(number));
                self.cleared.push_back((number, at));
                MessageState::Cleared { peer, bytes }
            }
            (None, Some(misfit)) => {
                self.reply(Frame::Dropped(number));
                self.owes_answer = true;
                MessageState::Misfit(misfit)
            }
            (Some(_), Some(misfit)) => MessageState::Misfit(misfit),
        };
        posted.head_mut(at).number = number;
        posted.set_state(at, state);
        if let Some(eager) = eager {
            self.give_back(CREDIT_PER_MESSAGE + eager.len());
        }
    }

    fn reply(&mut self, reply: Frame) {
        self.carrier.enqueue(reply, FrameBody::Empty);
    }

    /// Returns `bytes` bytes of credit to the sender, once the sum reaches [`CREDIT_REPORT`].
    fn give_back(&mut self, bytes: usize) {
        self.unreported += bytes;
        if self.unreported >= CREDIT_REPORT {
            self.reply(Frame::Credit(self.unreported as u64));
            self.unreported = 0;
        }
    }

    /// Moves the bytes that can be moved now, both ways, up to the end of a frame; true if any byte
    /// moved.
    pub(super) fn drive(&mut self, posted: &mut Posted<'_, '_>) -> bool {
        if self.carrier.fault.is_some() {
            return false;
        }
        let pulled = self.pull(posted);
        let pushed = self.carrier.push(posted);
        self.owes_answer &= self.carrier.is_sending();
        pushed | pulled
    }

    /// Receives up to the end of a frame; true if any byte arrived.
    fn pull(&mut self, posted: &mut Posted<'_, '_>) -> bool {
        let mut moved = false;
        loop {
            let body = match &mut self.arriving {
                Arriving::Head | Arriving::Switch => ViewMut::EMPTY,
                Arriving::Offer(bytes) => ViewMut::of(bytes),
                Arriving::Message(message) => {
                    ViewMut::of(message.bytes.as_mut().expect("only an eager message has a body"))
                }
                Arriving::Data { receive, bytes } => {
                    posted.memory(*receive).room().slice(0, *bytes)
                }
            };
            match self.carrier.pull(body) {
                Advance::Blocked => return moved,
                Advance::Partial => {
                    moved = true;
                    continue;
                }
                Advance::Complete => moved = true,
            }
            if matches!(self.arriving, Arriving::Head) {
                let Some((arriving, bytes)) = self.read_head(posted) else {
                    self.carrier.fail("the sender sent a frame that the protocol does not allow");
                    return true;
                };
                self.arriving = arriving;
                if bytes > 0 {
                    continue;
                }
            }
            self.end_frame(posted);
            return true;
        }
    }

    /// The frame whose header has arrived, and the size of its payload; `None` if the frame breaks
    /// the protocol.
    fn read_head(&self, posted: &Posted<'_, '_>) -> Option<(Arriving, usize)> {
        let number = self.next_number;
        match Frame::from_bytes(self.carrier.receiving.head()?)? {
            Frame::Eager(envelope) if envelope.bytes <= EAGER_LIMIT => {
                let bytes = Some(vec![0; envelope.bytes]);
                let message = IncomingMessage { number, envelope, bytes };
                Some((Arriving::Message(message), envelope.bytes))
            }
            Frame::ReadyToSend(envelope) => {
                let message = IncomingMessage { number, envelope, bytes: None };
                Some((Arriving::Message(message), 0))
            }
            Frame::Data(number) => {
                let (_, receive) = *self.cleared.front().filter(|it| it.0 == number)?;
                match posted.head(receive).state {
                    MessageState::Cleared { bytes, .. } => {
                        Some((Arriving::Data { receive, bytes }, bytes))
                    }
                    _ => None,
                }
            }
            Frame::Offer(bytes) if bytes <= SegmentOffer::LONGEST as u64 => {
                let bytes = bytes as usize;
                Some((Arriving::Offer(vec![0; bytes]), bytes))
            }
            Frame::Switch => Some((Arriving::Switch, 0)),
            Frame::Eager(_) | Frame::Offer(_) => None,
            Frame::ClearToSend(_) | Frame::Credit(_) | Frame::Dropped(_) => None,
        }
    }

    /// Handles a complete frame.
    fn end_frame(&mut self, posted: &mut Posted<'_, '_>) {
        self.carrier.receiving.restart();
        match std::mem::replace(&mut self.arriving, Arriving::Head) {
            Arriving::Head => {}
            Arriving::Offer(offer) => self.accept_offer(&offer),
            Arriving::Switch if self.carrier.switch_inbound() => {
                self.carrier.enqueue(Frame::Switch, FrameBody::Switch);
            }
            Arriving::Switch => {
                self.carrier.fail("the sender switched to shared memory, but there is none");
            }
            Arriving::Data { receive, bytes } => {
                self.cleared.pop_front();
                posted.set_state(receive, MessageState::Complete { peer: self.peer, bytes });
            }
            Arriving::Message(message) => {
                self.next_number += 1;
                let tag = message.envelope.tag;
                match posted.first_open(self.peer, tag) {
                    Some(at) => self.take(message, at, posted),
                    None => self.keep(message),
                }
            }
        }
    }

    /// Passes shared memory to the sender. If that fails, the link keeps its stream.
    fn accept_offer(&mut self, offer: &[u8]) {
        if !self.provides_memory {
            return;
        }
        let passed = Segment::create(Pipe::BYTES)
            .and_then(|segment| segment.pass_to(offer).map(|()| segment));
        match passed {
            Ok(segment) => self.carrier.add_pipe(Pipe::reader(segment)),
            Err(error) => {
                tracing::debug!(peer = self.peer, %error, "messages keep their connection")
            }
        }
    }

    /// Puts a message into the unexpected queue.
    fn keep(&mut self, message: IncomingMessage) {
        self.unexpected_credit += message.credit();
        // A sender that keeps to the protocol sends nothing beyond its credit.
        if self.unexpected_credit > 2 * CREDIT {
            self.carrier.fail("the sender sent more than its credit allows");
        }
        self.unexpected.push_back(message);
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::MessageBatch;
    use super::super::message::MessageMemory::Room;
    use super::*;
    use maypole_kernels::DataType;
    use maypole_transports::{Fault, HEAD, Mem, Stream, mem};

    fn link() -> (Mem, IncomingLink) {
        let (sender, receiver) = mem::pair(1 << 20);
        (sender, IncomingLink::new(0, AnyStream::Mem(receiver), false))
    }

    fn send(sender: &mut Mem, frame: Frame, body: &[u8]) {
        let sent = sender.send(&frame.to_bytes(), View::of(body), 0).unwrap();
        assert_eq!(sent, HEAD + body.len());
    }

    /// Receives all sent bytes.
    fn drain(link: &mut IncomingLink, batch: &mut MessageBatch<'_>) {
        let requests = &mut MessageRequests::default();
        while link.drive(&mut Posted { batch, requests }) {}
    }

    fn envelope(tag: u32, bytes: usize) -> Envelope {
        Envelope { tag, kind: DataType::U8, bytes }
    }

    #[test]
    fn a_sender_that_breaks_the_protocol_is_a_fault() {
        let frames = [
            Frame::Data(0),
            Frame::ClearToSend(0),
            Frame::Credit(1),
            Frame::Switch,
            Frame::Eager(envelope(0, EAGER_LIMIT + 1)),
            Frame::Eager(envelope(0, usize::MAX)),
            Frame::Offer(u64::MAX),
        ];
        for frame in frames {
            let (mut sender, mut link) = link();
            send(&mut sender, frame, &[]);
            drain(&mut link, &mut MessageBatch::default());
            let Some(Fault::Io(error)) = &link.carrier.fault else {
                panic!("{frame:?} is accepted")
            };
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn the_unexpected_queue_is_bounded() {
        let (mut sender, mut link) = link();
        let most = 2 * CREDIT / CREDIT_PER_MESSAGE;
        for number in 0..most {
            send(&mut sender, Frame::ReadyToSend(envelope(number as u32, 1 << 40)), &[]);
        }
        drain(&mut link, &mut MessageBatch::default());
        assert!(link.carrier.fault.is_none());
        assert_eq!(link.unexpected.len(), most);
        send(&mut sender, Frame::Eager(envelope(0, 1)), &[7]);
        drain(&mut link, &mut MessageBatch::default());
        assert!(link.carrier.fault.is_some());
    }

    #[test]
    fn a_receive_takes_the_first_message_with_its_tag() {
        let (mut sender, mut link) = link();
        for (tag, byte) in [(1, 1), (2, 2), (1, 3)] {
            send(&mut sender, Frame::Eager(envelope(tag, 1)), &[byte]);
        }
        drain(&mut link, &mut MessageBatch::default());
        let mut came = [0u8; 3];
        let mut batch = MessageBatch::default();
        for (into, tag) in came.chunks_mut(1).zip([2, 1, 1]) {
            batch.add(Room(ViewMut::of(into)), DataType::U8, Some(0), tag);
        }
        for at in 0..3 {
            let requests = &mut MessageRequests::default();
            assert!(link.match_unexpected(at, &mut Posted { batch: &mut batch, requests }));
        }
        assert!(batch.is_complete());
        assert_eq!(link.unexpected_credit, 0);
        assert_eq!(came, [2, 1, 3]);
    }
}
