//! A stream: ordered bytes to and from one peer. Its methods never wait.
//!
//! A stream keeps no pointer to the memory of its caller. The executor records posted messages as
//! ranges of the caller's buffers, and offers them again until the stream has taken all of them.
//! Received bytes go straight to the memory that the executor names. So a view lives no longer than
//! one call of these methods, and a call that fails half-way leaves no dangling pointer.
//!
//! A stream that borrowed a view until it was flushed would need a lifetime that outlasts the call,
//! or in unsafe Rust an obligation that a failed call must still meet.

pub mod direct;

use crate::poll::PollFd;
use direct::DirectWrites;
use maypole_kernels::{View, ViewMut};
use std::io;

/// Bytes of a message's head.
pub const HEAD: usize = 16;

/// The head that precedes every message on a stream: the number of the message, and the call that
/// the sender is in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Head {
    /// The number of earlier messages on this link.
    pub position: u64,
    /// A hash of everything that the ranks of one call must agree on.
    pub fingerprint: u64,
}

impl Head {
    /// Encodes the head: little-endian, position first.
    #[inline]
    pub fn to_bytes(self) -> [u8; HEAD] {
        bytemuck::cast([self.position.to_le(), self.fingerprint.to_le()])
    }

    /// Decodes the bytes of [`Head::to_bytes`]. Any 16 bytes are a head.
    #[inline]
    pub fn from_bytes(bytes: [u8; HEAD]) -> Self {
        let [position, fingerprint] = bytemuck::cast::<_, [u64; 2]>(bytes).map(u64::from_le);
        Self { position, fingerprint }
    }
}

/// Why a stream does not work any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The peer closed its end, or its process has died.
    #[error("the peer closed the connection")]
    Closed,
    /// An encrypted connection ended without the peer's goodbye. Its process has died, or the
    /// network has cut the connection.
    #[error(
        "the encrypted connection ended without a goodbye: the peer died, or the connection was cut \
         on the way"
    )]
    Cut,
    /// Bytes arrived on an encrypted connection that the peer did not send, or not in this order.
    /// None of them was delivered.
    #[error(
        "bytes of the encrypted connection were altered, lost, repeated or reordered on the way; \
         look at what lies between the two hosts"
    )]
    Altered,
    /// The operating system reported an error.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
}

/// The result of an operation on a stream.
pub type Result<T, E = Fault> = std::result::Result<T, E>;

/// Ordered bytes to and from one peer. No method waits, allocates or locks; the executor owns
/// waiting.
pub trait Stream {
    /// Offers the bytes of `head` and then `body`, from byte `skip` of the two together on. Returns
    /// how many bytes were taken; 0 means that there is no room now.
    ///
    /// After 0 the caller offers the same bytes again, or [finishes](Self::finish). It may append
    /// more bytes, but not replace them: an encrypted stream may have begun to send them.
    ///
    /// # Errors
    /// [`Fault`] if the link is lost.
    ///
    /// # Panics
    /// If `skip` is not below `HEAD + body.len()`.
    fn send(&mut self, head: &[u8; HEAD], body: View<'_>, skip: usize) -> Result<usize>;

    /// Fills `head` and then `body` from byte `skip` of the two together on, never reading past
    /// their end. Returns how many bytes were received; 0 means that none have arrived.
    ///
    /// # Errors
    /// [`Fault::Closed`] once the peer has ended the stream and all of its bytes were received;
    /// [`Fault::Io`] if the link is lost; [`Fault::Cut`] and [`Fault::Altered`] if the link is
    /// encrypted.
    ///
    /// # Panics
    /// If `skip` is not below `HEAD + body.len()`.
    fn receive(&mut self, head: &mut [u8; HEAD], body: ViewMut<'_>, skip: usize) -> Result<usize>;

    /// Makes the descriptor of [`interest`](Self::interest) report every later arrival. A caller that polls
    /// the descriptor calls this first, each time. Returns false if something has arrived already: the
    /// caller tries again instead of sleeping.
    ///
    /// The kernel always reports bytes on a socket. An adapter for RDMA makes an event only on
    /// request, and a request costs more than a poll.
    fn prepare_to_sleep(&mut self) -> bool {
        true
    }

    /// Returns the descriptor and the events to [poll](crate::poll::poll) for, so that a sleep ends
    /// once this stream can receive (if `reads`) or send (if `writes`). `None` if nothing in the
    /// kernel can end it.
    ///
    /// Sockets become writable when there is room. An adapter for RDMA has one event for bytes and for
    /// room.
    fn interest(&self, _reads: bool, _writes: bool) -> Option<PollFd<'_>> {
        None
    }

    /// Writes past this stream to memory of the peer. `None` if there are none: only adapters for RDMA
    /// make them, and they would bypass an encrypted stream.
    fn direct(&mut self) -> Option<&mut dyn DirectWrites> {
        None
    }

    /// Marks the calls as aborted, so closing this end need not flush. Its peer may have died.
    fn abandon(&mut self) {}

    /// Ends this direction: nothing more will be sent. Bytes that were taken still arrive. If the
    /// link is full, an encrypted stream sends its end while it receives.
    fn finish(&mut self);
}
