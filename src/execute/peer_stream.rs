//! The stream to one peer: the messages that are posted and not yet sent, and the message that is
//! expected.
//!
//! Short messages that are posted before the stream is pushed leave together, in one system call
//! and one packet.

use super::cursor::{Advance, ReceiveCursor};
use super::{AnyStream, Buffers, LinkError};
use crate::schedule::Buffer;
use crate::schedule::simulate::SHORT_MESSAGES_TOGETHER;
use maypole_kernels::{Region, View};
use maypole_transports::poll::PollFd;
use maypole_transports::{Fault, HEAD, Head, LONGEST_AHEAD, Stream};
use std::collections::VecDeque;

/// A range of one of the call's buffers, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct BufferRange {
    pub(super) buffer: Buffer,
    pub(super) offset: usize,
    pub(super) len: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ExpectedMessage {
    /// The destination of its body; `None` for the staging buffer of its stream.
    pub(super) into: Option<BufferRange>,
    /// Bytes of its body.
    pub(super) len: usize,
}

/// A posted message that has not left completely.
#[derive(Debug)]
struct PostedMessage {
    head: [u8; HEAD],
    body: BufferRange,
}

/// The most bytes of messages that leave together. Copying them costs less than a system call, and
/// a receiver takes as many in one call.
pub(super) const TOGETHER: usize = SHORT_MESSAGES_TOGETHER as usize * (LONGEST_AHEAD - HEAD);

/// The stream to one peer, with its pending sends and receives.
#[derive(Debug)]
pub(super) struct PeerStream {
    pub(super) stream: AnyStream,
    posted: VecDeque<PostedMessage>,
    /// Bytes of the first posted message that have left.
    sent: usize,
    /// Messages posted since the stream was made.
    posts: u64,
    /// Messages that have left in this run.
    pub(super) flushed: u64,
    /// Messages received since the stream was made.
    taken: u64,
    expected: Option<ExpectedMessage>,
    /// The position in the expected message.
    receiving: ReceiveCursor,
    /// Holds an expected message that is not received directly to its destination.
    staging: Region,
    /// Why the stream is lost, until it is reported.
    pub(super) fault: Option<Fault>,
}

impl PeerStream {
    pub(super) fn new(stream: AnyStream) -> Self {
        Self {
            stream,
            posted: VecDeque::new(),
            sent: 0,
            posts: 0,
            flushed: 0,
            taken: 0,
            expected: None,
            receiving: ReceiveCursor::default(),
            staging: Region::new(0),
            fault: None,
        }
    }

    /// Makes room for a message of `bytes` bytes; false if there is no memory for it.
    pub(super) fn has_room(&mut self, bytes: usize) -> bool {
        if self.staging.len() < bytes {
            match Region::try_new(bytes) {
                Some(staging) => self.staging = staging,
                None => return false,
            }
        }
        true
    }

    /// Prepares for a run of a program that stages messages of up to `staged` bytes.
    pub(super) fn begin(&mut self, staged: usize) {
        self.flushed = 0;
        if self.staging.len() < staged {
            self.staging = Region::new(staged);
        }
    }

    /// Queues a message whose body is `body`.
    pub(super) fn post(&mut self, body: BufferRange, fingerprint: u64) {
        let head = Head { position: self.posts, fingerprint }.to_bytes();
        self.posted.push_back(PostedMessage { head, body });
        self.posts += 1;
    }

    /// Sets the next message and the destination of its body.
    pub(super) fn expect(&mut self, expected: ExpectedMessage) {
        self.expected = Some(expected);
        self.receiving.restart();
    }

    /// `None` until the expected message has arrived. Then true if it is in its destination, false
    /// if it is in the staging buffer.
    ///
    /// # Errors
    /// [`LinkError::Mismatch`] if the message belongs to another call.
    pub(super) fn arrived(&self, fingerprint: u64) -> Result<Option<bool>, LinkError> {
        let expected = self.expected.expect("only expected messages are awaited");
        let Some(head) = self.receiving.head() else { return Ok(None) };
        let head = Head::from_bytes(head);
        if head != (Head { position: self.taken, fingerprint }) {
            return Err(LinkError::Mismatch);
        }
        let complete = self.receiving.is_complete(expected.len);
        Ok(complete.then_some(expected.into.is_some()))
    }

    /// The first `len` bytes of the staging buffer.
    pub(super) fn staged(&self, len: usize) -> View<'_> {
        self.staging.view().slice(0, len).as_view()
    }

    /// Ends the use of the expected message.
    pub(super) fn release(&mut self) {
        self.expected = None;
        self.taken += 1;
    }

    /// True if no posted message is left to send.
    pub(super) fn is_flushed(&self) -> bool {
        self.posted.is_empty()
    }

    /// Sends as much as the stream takes now; true if any byte left.
    pub(super) fn push(&mut self, buffers: &Buffers<'_>, gathered: &mut [u8]) -> bool {
        let mut moved = false;
        while !self.posted.is_empty() {
            match self.offer(buffers, gathered) {
                Ok(0) => return moved,
                Ok(taken) => self.count_sent(taken),
                Err(fault) => {
                    self.fault.get_or_insert(fault);
                    return moved;
                }
            }
            moved = true;
        }
        moved
    }

    /// Offers the first posted message to the stream, and as many later ones as fit in `gathered`.
    /// Returns how many bytes the stream has taken.
    fn offer(&mut self, buffers: &Buffers<'_>, gathered: &mut [u8]) -> Result<usize, Fault> {
        let PostedMessage { head, body } = &self.posted[0];
        let body = buffers.read(body.buffer, (body.offset, body.len));
        match gather(&self.posted, buffers, gathered) {
            Some(len) => self.stream.send(head, View::of(&gathered[HEAD..len]), self.sent),
            None => self.stream.send(head, body, self.sent),
        }
    }

    /// Counts bytes that have left, and removes the messages that they complete.
    fn count_sent(&mut self, bytes: usize) {
        self.sent += bytes;
        while let Some(first) = self.posted.front()
            && self.sent >= HEAD + first.body.len
        {
            self.sent -= HEAD + first.body.len;
            self.posted.pop_front();
            self.flushed += 1;
        }
    }

    /// Receives as much of the expected message as has arrived; true if any byte has.
    pub(super) fn pull(&mut self, buffers: &Buffers<'_>) -> bool {
        let mut moved = false;
        let Some(expected) = self.expected else { return moved };
        while !self.receiving.is_complete(expected.len) {
            let body = match expected.into {
                Some(range) => buffers.write(range.buffer, (range.offset, range.len)),
                None => self.staging.view().slice(0, expected.len),
            };
            match self.receiving.advance(&mut self.stream, body) {
                Ok(Advance::Blocked) => return moved,
                Ok(Advance::Partial | Advance::Complete) => moved = true,
                Err(fault) => {
                    self.fault.get_or_insert(fault);
                    return moved;
                }
            }
        }
        moved
    }

    /// The event that ends a sleep early, if there is one.
    pub(super) fn interest(&self) -> Option<PollFd<'_>> {
        let reads = self.expected.is_some_and(|expected| !self.receiving.is_complete(expected.len));
        self.stream.interest(reads, !self.posted.is_empty())
    }
}

/// Copies the first of `posted` to `gathered`, one after another, as many as fit. Returns how many
/// bytes they have; `None` if not even two fit.
#[inline]
fn gather(
    posted: &VecDeque<PostedMessage>,
    buffers: &Buffers<'_>,
    gathered: &mut [u8],
) -> Option<usize> {
    let whole = |message: &PostedMessage| HEAD + message.body.len;
    if posted.len() < 2 || whole(&posted[0]) + whole(&posted[1]) > TOGETHER {
        return None;
    }
    let mut len = 0;
    for message in posted {
        let Some(into) = gathered.get_mut(len..len + whole(message)) else { break };
        let PostedMessage { head, body } = message;
        into[..HEAD].copy_from_slice(head);
        buffers.read(body.buffer, (body.offset, body.len)).copy_to(&mut into[HEAD..]);
        len += into.len();
    }
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use maypole_kernels::ViewMut;
    use maypole_transports::mem;
    use proptest::prelude::*;

    /// The bytes that the peer receives of messages with these bodies, which are posted in groups
    /// and pushed after each group, while the peer reads `room` bytes at a time.
    fn received(groups: &[Vec<usize>], room: usize) -> Vec<Vec<u8>> {
        let (here, mut there) = mem::pair(room);
        let mut sender = PeerStream::new(AnyStream::Mem(here));
        let lengths: Vec<usize> = groups.concat();
        let bytes: Vec<u8> = (0..lengths.iter().sum::<usize>()).map(|at| at as u8).collect();
        let buffers = Buffers {
            input: View::of(&bytes),
            output: ViewMut::of::<u8>(&mut []),
            scratch: ViewMut::of::<u8>(&mut []),
        };
        let mut gathered = [0; TOGETHER];
        let mut offset = 0;
        for group in groups {
            for len in group.iter().copied() {
                sender.post(BufferRange { buffer: Buffer::Input, offset, len }, 7);
                offset += len;
            }
            sender.push(&buffers, &mut gathered);
        }
        let mut bodies = Vec::new();
        for (position, len) in lengths.iter().enumerate() {
            let mut body = vec![0; *len];
            let mut cursor = ReceiveCursor::default();
            while !cursor.is_complete(*len) {
                cursor.advance(&mut there, ViewMut::of(&mut body)).unwrap();
                sender.push(&buffers, &mut gathered);
                assert!(sender.flushed >= position as u64, "received before it has left");
            }
            let head = Head { position: position as u64, fingerprint: 7 };
            assert_eq!(cursor.head(), Some(head.to_bytes()));
            bodies.push(body);
        }
        assert!(sender.is_flushed() && sender.flushed == lengths.len() as u64);
        bodies
    }

    /// As many messages leave together as prices count.
    #[test]
    fn what_leaves_together_is_what_is_priced() {
        assert_eq!(TOGETHER, SHORT_MESSAGES_TOGETHER as usize * (LONGEST_AHEAD - HEAD));
    }

    proptest! {
        /// In any groups, and in pieces of any size.
        #[test]
        fn messages_arrive_as_they_were_posted(
            groups in prop::collection::vec(
                prop::collection::vec(prop_oneof![0usize..40, 0..3000usize, 0..20_000usize], 1..6),
                1..6,
            ),
            room in prop_oneof![1usize..64, 64..20_000usize],
        ) {
            let bytes: Vec<u8> = received(&groups, room).concat();
            prop_assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == at as u8));
        }
    }
}
