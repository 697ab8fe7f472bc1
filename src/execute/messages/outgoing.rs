//! The link on which one rank sends messages to another.

use super::carrier::{Carrier, LinkWait};
use super::frame::Frame;
use super::posted::Posted;
use super::shared_memory::SharedMemoryOffer;
use super::{CREDIT, CREDIT_PER_MESSAGE, EAGER_LIMIT, protocol_violation};
use crate::execute::cursor::{Advance, ReceiveCursor, SendCursor};
use crate::execute::{AnyStream, Moved};
use maypole_kernels::{View, ViewMut};
use maypole_transports::{Fault, HEAD, Pipe, Stream};
use std::collections::VecDeque;

/// The bytes that follow the head of a frame.
#[derive(Debug)]
enum FrameBody {
    Empty,
    /// The bytes of the posted send of this number.
    Message(usize),
    /// An offer to use shared memory.
    Offer(Vec<u8>),
    /// Nothing; all later frames go through shared memory.
    Switch,
}

/// A frame that has not left as a whole.
#[derive(Debug)]
struct QueuedFrame {
    head: [u8; HEAD],
    body: FrameBody,
}

/// A message by rendezvous that has been announced and not been cleared.
#[derive(Debug)]
struct AnnouncedMessage {
    /// The number of the message.
    number: u64,
    /// The number of its send among those that are posted.
    send: usize,
}

/// Sends messages in the order in which they were posted. A message by rendezvous that waits for
/// its clear-to-send does not hold up the messages behind it.
#[derive(Debug)]
pub(super) struct OutgoingLink {
    pub(super) carrier: Carrier,
    /// The offer to use shared memory, until the receiver has passed a segment.
    offer: Option<SharedMemoryOffer>,
    /// Posted sends for which there is no credit yet, not even to announce them.
    without_credit: VecDeque<usize>,
    queue: VecDeque<QueuedFrame>,
    /// The position in the first frame of the queue.
    sending: SendCursor,
    /// The number of the next message.
    next_number: u64,
    /// Bytes of credit that messages in flight use, as far as this end knows.
    credit_used: usize,
    announced: VecDeque<AnnouncedMessage>,
    /// The position in the next reply of the receiver.
    reply: ReceiveCursor,
    pub(super) fault: Option<Fault>,
    /// The traffic that has left, for the communicator's counters.
    pub(super) sent: Moved,
}

impl OutgoingLink {
    /// Sends over `stream`, and through shared memory once the receiver has accepted the `offer`.
    pub(super) fn new(stream: AnyStream, offer: Option<SharedMemoryOffer>) -> Self {
        let frame = offer.as_ref().map(|offer| {
            let bytes = offer.to_bytes();
            let head = Frame::Offer(bytes.len() as u64).to_bytes();
            QueuedFrame { head, body: FrameBody::Offer(bytes) }
        });
        Self {
            carrier: Carrier::new(stream),
            offer,
            without_credit: VecDeque::new(),
            queue: frame.into_iter().collect(),
            sending: SendCursor::default(),
            next_number: 0,
            credit_used: 0,
            announced: VecDeque::new(),
            reply: ReceiveCursor::default(),
            fault: None,
            sent: Moved::default(),
        }
    }

    /// Queues the posted send `at`.
    pub(super) fn post(&mut self, at: usize, posted: &mut Posted<'_, '_>) {
        self.take_segment();
        posted.send_mut(at).number = self.next_number + self.without_credit.len() as u64;
        self.without_credit.push_back(at);
        self.use_credit(posted);
    }

    /// Switches to shared memory, if the receiver has passed a segment.
    pub(super) fn take_segment(&mut self) {
        let segment = self.offer.as_ref().and_then(SharedMemoryOffer::take_segment);
        if let Some(segment) = segment {
            self.offer = None;
            self.carrier.add_pipe(AnyStream::Pipe(Pipe::writer(segment)));
            self.enqueue(Frame::Switch, FrameBody::Switch);
        }
    }

    /// Queues all sends for which there is credit, in order.
    fn use_credit(&mut self, posted: &Posted<'_, '_>) {
        while let Some(at) = self.without_credit.front().copied() {
            let envelope = posted.send(at).envelope();
            if self.has_credit(envelope.bytes) {
                self.credit_used += CREDIT_PER_MESSAGE + envelope.bytes;
                self.enqueue(Frame::Eager(envelope), FrameBody::Message(at));
            } else if self.credit_used + CREDIT_PER_MESSAGE <= 2 * CREDIT {
                self.credit_used += CREDIT_PER_MESSAGE;
                self.enqueue(Frame::ReadyToSend(envelope), FrameBody::Empty);
                self.announced.push_back(AnnouncedMessage { number: self.next_number, send: at });
            } else {
                return;
            }
            self.next_number += 1;
            self.without_credit.pop_front();
        }
    }

    fn enqueue(&mut self, frame: Frame, body: FrameBody) {
        self.queue.push_back(QueuedFrame { head: frame.to_bytes(), body });
    }

    /// True if a message of `bytes` bytes can be sent eagerly.
    pub(super) fn has_credit(&self, bytes: usize) -> bool {
        let used = self.credit_used + CREDIT_PER_MESSAGE + bytes;
        bytes <= EAGER_LIMIT && used <= CREDIT
    }

    /// Moves what can be moved now, both ways; true if any byte moved.
    pub(super) fn drive(&mut self, posted: &mut Posted<'_, '_>) -> bool {
        if self.fault.is_some() {
            return false;
        }
        let pulled = self.needs_replies() && self.pull(posted);
        let pushed = self.push(posted);
        pushed | pulled
    }

    /// True if there is something to send, or a reply is awaited.
    pub(super) fn is_busy(&self) -> bool {
        self.is_sending() || self.needs_replies()
    }

    /// True if there is something to send.
    pub(super) fn is_sending(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Sends as much as the link takes now; true if any byte left.
    fn push(&mut self, posted: &mut Posted<'_, '_>) -> bool {
        let mut moved = false;
        while let Some(frame) = self.queue.front() {
            let body = match &frame.body {
                FrameBody::Message(at) => posted.data(*at),
                FrameBody::Offer(bytes) => View::of(bytes),
                FrameBody::Empty | FrameBody::Switch => View::EMPTY,
            };
            match self.sending.advance(self.carrier.outbound(), &frame.head, body) {
                Ok(Advance::Blocked) => return moved,
                Ok(Advance::Partial) => {}
                Ok(Advance::Complete) => {
                    let payload = body.len();
                    self.end_frame(payload, posted);
                }
                Err(fault) => {
                    self.fault = Some(fault);
                    return moved;
                }
            }
            moved = true;
        }
        moved
    }

    /// The first frame of the queue has left, with `bytes` bytes behind its head.
    fn end_frame(&mut self, bytes: usize, posted: &mut Posted<'_, '_>) {
        let frame = self.queue.pop_front().expect("a frame has left");
        self.sent.written += (HEAD + bytes) as u64;
        match frame.body {
            FrameBody::Message(at) => {
                self.sent.messages += 1;
                self.sent.payload += bytes as u64;
                posted.complete_send(at);
            }
            FrameBody::Switch => self.carrier.switch_outbound(),
            FrameBody::Empty | FrameBody::Offer(_) => {}
        }
    }

    /// True if a reply of the receiver could let a message go on, or credit runs short.
    fn needs_replies(&self) -> bool {
        !self.announced.is_empty()
            || !self.without_credit.is_empty()
            || self.credit_used > CREDIT / 2
    }

    /// Takes the replies that are here; true if any byte came.
    fn pull(&mut self, posted: &mut Posted<'_, '_>) -> bool {
        let mut moved = false;
        loop {
            match self.reply.advance(self.carrier.inbound(), ViewMut::EMPTY) {
                Ok(Advance::Blocked) => return moved,
                Ok(Advance::Partial) => {}
                Ok(Advance::Complete) => {
                    let reply = self.reply.head().expect("a complete head");
                    self.reply.restart();
                    if self.handle_reply(reply, posted).is_none() {
                        let why = "the receiver sent a reply that the protocol does not allow";
                        self.fault = Some(protocol_violation(why));
                        return true;
                    }
                    self.use_credit(posted);
                }
                Err(fault) => {
                    self.fault = Some(fault);
                    return moved;
                }
            }
            moved = true;
        }
    }

    /// Does what a reply says; `None` if it breaks the protocol.
    fn handle_reply(&mut self, reply: [u8; HEAD], posted: &mut Posted<'_, '_>) -> Option<()> {
        match Frame::from_bytes(reply)? {
            Frame::ClearToSend(number) => {
                let send = self.answered(number)?;
                self.enqueue(Frame::Data(number), FrameBody::Message(send));
            }
            Frame::Dropped(number) => {
                let send = self.answered(number)?;
                posted.complete_send(send);
            }
            Frame::Credit(bytes) => {
                self.credit_used = self.credit_used.checked_sub(usize::try_from(bytes).ok()?)?;
            }
            Frame::Switch => return self.carrier.switch_inbound().then_some(()),
            Frame::Eager(_) | Frame::ReadyToSend(_) | Frame::Data(_) | Frame::Offer(_) => {
                return None;
            }
        }
        Some(())
    }

    /// The send of announced message `number`, which the receiver has answered: the credit of the
    /// announcement is free again.
    fn answered(&mut self, number: u64) -> Option<usize> {
        let at = self.announced.iter().position(|it| it.number == number)?;
        let announcement = self.announced.remove(at)?;
        self.credit_used = self.credit_used.checked_sub(CREDIT_PER_MESSAGE)?;
        Some(announcement.send)
    }

    /// What the link waits for; nothing after a fault.
    pub(super) fn awaited(&self) -> Option<LinkWait<'_>> {
        let (receives, sends) = (self.needs_replies(), self.is_sending());
        self.fault.is_none().then_some(LinkWait { carrier: &self.carrier, receives, sends })
    }

    /// Reads replies that no batch will use any more. If they were left unread, closing the stream
    /// would reset the connection and lose bytes in flight. A receiver that is gone is a fault:
    /// nothing that was sent can arrive any more.
    pub(super) fn discard_replies(&mut self) {
        let mut reply = [0; HEAD];
        let stream = self.carrier.inbound();
        while self.fault.is_none() {
            match stream.receive(&mut reply, ViewMut::EMPTY, 0) {
                Ok(0) => return,
                Ok(_) => {}
                Err(fault) => self.fault = Some(fault),
            }
        }
    }
}
