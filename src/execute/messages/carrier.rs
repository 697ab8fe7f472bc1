//! The common part of both ends of a link: a stream, the shared memory that may later replace it,
//! and the queue of frames to send.

use super::frame::Frame;
use super::posted::Posted;
use crate::execute::cursor::{Advance, ReceiveCursor};
use crate::execute::{AnyStream, Moved};
use maypole_kernels::{View, ViewMut};
use maypole_transports::pipe::PipeWait;
use maypole_transports::poll::PollFd;
use maypole_transports::{Fault, HEAD, Pipe, Stream};
use std::collections::VecDeque;
use std::io;

/// The payload of a frame.
#[derive(Debug)]
pub(super) enum FrameBody {
    Empty,
    /// The bytes of the posted send of this number.
    Message(usize),
    /// An offer to use shared memory.
    Offer(Vec<u8>),
    /// Empty; all later frames go through shared memory.
    Switch,
}

/// A stream, and a pipe in shared memory once there is one. Each direction switches to the pipe at
/// a moment of its own.
#[derive(Debug)]
pub(super) struct Carrier {
    pub(super) stream: AnyStream,
    pipe: Option<Pipe>,
    /// This end sends through the pipe.
    sends_through_pipe: bool,
    /// This end receives through the pipe.
    receives_through_pipe: bool,
    /// The frames that are not yet sent completely.
    queue: VecDeque<([u8; HEAD], FrameBody)>,
    /// Bytes of the first frame of the queue that have left.
    sent_bytes: usize,
    /// The position in the frame that is arriving.
    pub(super) receiving: ReceiveCursor,
    /// A receiver's end: its frames are replies.
    sends_replies: bool,
    pub(super) fault: Option<Fault>,
    /// The traffic that has left, for the communicator's counters.
    pub(super) sent: Moved,
}

impl Carrier {
    /// The end of a sender, or of a receiver, which `sends_replies`.
    pub(super) fn new(stream: AnyStream, sends_replies: bool) -> Self {
        Self {
            stream,
            pipe: None,
            sends_through_pipe: false,
            receives_through_pipe: false,
            queue: VecDeque::new(),
            sent_bytes: 0,
            receiving: ReceiveCursor::default(),
            sends_replies,
            fault: None,
            sent: Moved::default(),
        }
    }

    pub(super) fn enqueue(&mut self, frame: Frame, body: FrameBody) {
        self.queue.push_back((frame.to_bytes(), body));
    }

    /// True if a frame is queued.
    pub(super) fn is_sending(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Records that the other end breaks the protocol.
    pub(super) fn fail(&mut self, why: &str) {
        self.fault = Some(Fault::Io(io::Error::new(io::ErrorKind::InvalidData, why)));
    }

    /// Sends as much as the link takes without blocking; true if any byte left.
    pub(super) fn push(&mut self, posted: &mut Posted<'_, '_>) -> bool {
        let mut moved = false;
        while let Some((head, body)) = self.queue.front() {
            let body = match body {
                FrameBody::Message(at) => posted.memory(*at).data(),
                FrameBody::Offer(bytes) => View::of(bytes),
                FrameBody::Empty | FrameBody::Switch => View::EMPTY,
            };
            let sent = match &mut self.pipe {
                Some(pipe) if self.sends_through_pipe => pipe.send(head, body, self.sent_bytes),
                _ => self.stream.send(head, body, self.sent_bytes),
            };
            match sent {
                Ok(0) => return moved,
                Ok(taken) => {
                    self.sent_bytes += taken;
                    let payload = body.len();
                    if self.sent_bytes == HEAD + payload {
                        self.end_frame(payload, posted);
                    }
                }
                // A sender that has left needs no replies. The death of a sender shows in its
                // missing messages.
                Err(_) if self.sends_replies => {
                    self.end_frame(0, posted);
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

    /// The first frame of the queue has left, with a payload of `bytes` bytes.
    fn end_frame(&mut self, bytes: usize, posted: &mut Posted<'_, '_>) {
        let (_, body) = self.queue.pop_front().expect("a frame has left");
        self.sent_bytes = 0;
        self.sent.written += (HEAD + bytes) as u64;
        match body {
            FrameBody::Message(at) => {
                self.sent.messages += 1;
                self.sent.payload += bytes as u64;
                posted.complete_send(at);
            }
            FrameBody::Switch => self.sends_through_pipe = self.pipe.is_some(),
            FrameBody::Empty | FrameBody::Offer(_) => {}
        }
    }

    /// Receives a part of the arriving frame, its payload into `body`. Returns `Advance::Blocked`
    /// after a fault.
    #[inline(always)]
    pub(super) fn pull(&mut self, body: ViewMut<'_>) -> Advance {
        let advanced = match &mut self.pipe {
            Some(pipe) if self.receives_through_pipe => self.receiving.advance(pipe, body),
            _ => self.receiving.advance(&mut self.stream, body),
        };
        advanced.unwrap_or_else(|fault| {
            self.fault = Some(fault);
            Advance::Blocked
        })
    }

    /// The event that ends a sleep of this end early, which `receives` or only sends. `None` after a
    /// fault, and for a direction through the pipe, which has no events of the kernel.
    pub(super) fn interest(&self, receives: bool) -> Option<PollFd<'_>> {
        let reads = receives && !self.receives_through_pipe;
        let writes = self.is_sending() && !self.sends_through_pipe;
        if self.fault.is_some() { None } else { self.stream.interest(reads, writes) }
    }

    /// The same, if all directions use the pipe.
    pub(super) fn pipe_wait(&self, receives: bool) -> Option<PipeWait<'_>> {
        let sends = self.is_sending();
        let is_only =
            (!receives || self.receives_through_pipe) && (!sends || self.sends_through_pipe);
        let pipe = self.pipe.as_ref().filter(|_| is_only && self.fault.is_none())?;
        Some(PipeWait { pipe, receives, sends })
    }

    /// Adds a pipe. Neither direction uses it yet.
    pub(super) fn add_pipe(&mut self, pipe: Pipe) {
        self.pipe.get_or_insert(pipe);
    }

    /// Receives through the pipe from now on; false if there is none.
    pub(super) fn switch_inbound(&mut self) -> bool {
        self.receives_through_pipe = self.pipe.is_some();
        self.receives_through_pipe
    }

    /// Signals the end of the sent bytes to the other end.
    pub(super) fn finish(&mut self) {
        self.stream.finish();
        if let Some(pipe) = &mut self.pipe {
            pipe.finish();
        }
    }

    /// Reads replies that no batch will use. If they stayed unread, closing the stream would reset
    /// the connection and lose bytes in flight. A receiver that has ended is a fault: sent bytes
    /// cannot arrive.
    pub(super) fn discard_replies(&mut self) {
        while self.fault.is_none() {
            self.receiving.restart();
            if self.pull(ViewMut::EMPTY) == Advance::Blocked {
                return;
            }
        }
    }
}
