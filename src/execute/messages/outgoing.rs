//! The link on which one rank sends messages to another.

use super::carrier::{Carrier, FrameBody};
use super::frame::Frame;
use super::posted::Posted;
use super::{CREDIT, CREDIT_PER_MESSAGE, EAGER_LIMIT};
use crate::execute::AnyStream;
use crate::execute::cursor::Advance;
use maypole_kernels::ViewMut;
use maypole_transports::shm::SegmentOffer;
use maypole_transports::{HEAD, Pipe};
use std::collections::VecDeque;

/// Sends messages in the order in which they were posted. A message by rendezvous that waits for
/// its clear-to-send does not block later messages.
#[derive(Debug)]
pub(super) struct OutgoingLink {
    pub(super) carrier: Carrier,
    /// The offer to use shared memory, until the receiver has passed a segment.
    offer: Option<SegmentOffer>,
    /// Posted sends for which there is no credit yet, not even to announce them.
    without_credit: VecDeque<usize>,
    next_number: u64,
    /// Bytes of credit that messages in flight use, by the replies received so far.
    credit_used: usize,
    /// Messages by rendezvous that have been announced and not cleared: their numbers, and those of their
    /// sends among the posted ones.
    announced: VecDeque<(u64, usize)>,
}

impl OutgoingLink {
    /// Sends over `stream`, and through shared memory once the receiver has accepted the `offer`.
    pub(super) fn new(stream: AnyStream, offer: Option<SegmentOffer>) -> Self {
        let mut carrier = Carrier::new(stream, false);
        if let Some(offer) = &offer {
            let bytes = offer.to_bytes();
            carrier.enqueue(Frame::Offer(bytes.len() as u64), FrameBody::Offer(bytes));
        }
        Self {
            carrier,
            offer,
            without_credit: VecDeque::new(),
            next_number: 0,
            credit_used: 0,
            announced: VecDeque::new(),
        }
    }

    /// Queues the posted send `at`.
    pub(super) fn post(&mut self, at: usize, posted: &mut Posted<'_, '_>) {
        self.take_segment();
        posted.head_mut(at).number = self.next_number + self.without_credit.len() as u64;
        self.without_credit.push_back(at);
        self.use_credit(posted);
    }

    /// Switches to shared memory, if the receiver has passed a segment.
    fn take_segment(&mut self) {
        let Some(offer) = &mut self.offer else { return };
        match offer.take(Pipe::BYTES) {
            Ok(None) => return,
            Ok(Some(segment)) => {
                self.carrier.add_pipe(Pipe::writer(segment));
                self.carrier.enqueue(Frame::Switch, FrameBody::Switch);
            }
            Err(error) => tracing::debug!(%error, "messages keep their connection"),
        }
        self.offer = None;
    }

    /// Queues all sends for which there is credit, in order.
    fn use_credit(&mut self, posted: &Posted<'_, '_>) {
        while let Some(at) = self.without_credit.front().copied() {
            let envelope = posted.head(at).envelope();
            if self.has_credit(envelope.bytes) {
                self.credit_used += CREDIT_PER_MESSAGE + envelope.bytes;
                self.carrier.enqueue(Frame::Eager(envelope), FrameBody::Message(at));
            } else if self.credit_used + CREDIT_PER_MESSAGE <= 2 * CREDIT {
                self.credit_used += CREDIT_PER_MESSAGE;
                self.carrier.enqueue(Frame::ReadyToSend(envelope), FrameBody::Empty);
                self.announced.push_back((self.next_number, at));
            } else {
                return;
            }
            self.next_number += 1;
            self.without_credit.pop_front();
        }
    }

    /// True if a message of `bytes` bytes can be sent eagerly.
    pub(super) fn has_credit(&self, bytes: usize) -> bool {
        let used = self.credit_used + CREDIT_PER_MESSAGE + bytes;
        bytes <= EAGER_LIMIT && used <= CREDIT
    }

    /// Moves the bytes that can be moved now, both ways; true if any byte moved. With `looks`, the receiver's
    /// memory is taken first if it has come.
    pub(super) fn drive(&mut self, posted: &mut Posted<'_, '_>, looks: bool) -> bool {
        if looks {
            self.take_segment();
        }
        if self.carrier.fault.is_some() {
            return false;
        }
        let pulled = self.needs_replies() && self.pull(posted);
        let pushed = self.carrier.push(posted);
        pushed | pulled
    }

    /// True if a frame is queued, or a reply is awaited.
    pub(super) fn is_busy(&self) -> bool {
        self.carrier.is_sending() || self.needs_replies()
    }

    /// True if a message waits for a reply of the receiver, or credit runs short.
    pub(super) fn needs_replies(&self) -> bool {
        !self.announced.is_empty()
            || !self.without_credit.is_empty()
            || self.credit_used > CREDIT / 2
    }

    /// Takes the replies that have arrived; true if any byte did.
    fn pull(&mut self, posted: &mut Posted<'_, '_>) -> bool {
        let mut moved = false;
        loop {
            match self.carrier.pull(ViewMut::EMPTY) {
                Advance::Blocked => return moved,
                Advance::Partial => {}
                Advance::Complete => {
                    let reply = self.carrier.receiving.head().expect("a complete head");
                    self.carrier.receiving.restart();
                    if self.handle_reply(reply, posted).is_none() {
                        self.carrier
                            .fail("the receiver sent a reply that the protocol does not allow");
                        return true;
                    }
                    self.use_credit(posted);
                }
            }
            moved = true;
        }
    }

    /// Handles a reply; `None` if it breaks the protocol.
    fn handle_reply(&mut self, reply: [u8; HEAD], posted: &mut Posted<'_, '_>) -> Option<()> {
        match Frame::from_bytes(reply)? {
            Frame::ClearToSend(number) => {
                let send = self.answered(number)?;
                self.carrier.enqueue(Frame::Data(number), FrameBody::Message(send));
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

    /// Removes the announced message `number` after the receiver's reply, frees its credit, and
    /// returns its send.
    fn answered(&mut self, number: u64) -> Option<usize> {
        let at = self.announced.iter().position(|it| it.0 == number)?;
        let (_, send) = self.announced.remove(at)?;
        self.credit_used = self.credit_used.checked_sub(CREDIT_PER_MESSAGE)?;
        Some(send)
    }
}
