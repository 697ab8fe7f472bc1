//! A stream: ordered bytes to and from one peer, never waiting.
//!
//! A stream keeps no pointer to anybody's memory. What is posted stays with the executor, as places
//! in the caller's buffers, and is offered again until it has left; what arrives goes straight to
//! where the executor points. So views need to live no longer than one call of these methods, and a
//! call that fails half-way leaves nothing dangling.

use maypole_kernels::{View, ViewMut};
use std::io;
use std::os::fd::BorrowedFd;

/// Bytes of a message's head.
pub const HEAD: usize = 16;

/// What precedes every message on a stream: which one it is, and what its sender is doing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Head {
    /// Messages sent before it on this link, since the link was made.
    pub position: u64,
    /// What every rank's call must agree on, condensed.
    pub fingerprint: u64,
}

impl Head {
    /// Little-endian, position first.
    pub fn to_bytes(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..8].copy_from_slice(&self.position.to_le_bytes());
        bytes[8..].copy_from_slice(&self.fingerprint.to_le_bytes());
        bytes
    }

    /// The reverse of [`Head::to_bytes`]; every 16 bytes are some head.
    pub fn from_bytes(bytes: [u8; HEAD]) -> Self {
        let (position, fingerprint) = bytes.split_at(8);
        Self {
            position: u64::from_le_bytes(position.try_into().expect("8 of 16 bytes")),
            fingerprint: u64::from_le_bytes(fingerprint.try_into().expect("8 of 16 bytes")),
        }
    }
}

/// Why a stream carries nothing any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The peer closed its end, or is gone.
    #[error("the peer closed the connection")]
    Closed,
    /// The operating system refused.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
}

/// Ordered bytes to and from one peer. Nothing here waits, allocates or locks for long; the
/// executor owns waiting.
pub trait Stream {
    /// Offers the bytes of `head` and then `body`, from byte `skip` of the two together on. Returns
    /// how many were taken; 0 means not now.
    ///
    /// # Errors
    /// [`Fault`] if the link is lost.
    ///
    /// # Panics
    /// If `skip` is not below `HEAD + body.len()`.
    fn send(&mut self, head: &[u8; HEAD], body: View<'_>, skip: usize) -> Result<usize, Fault>;

    /// Fills `head` and then `body` from byte `skip` of the two together on, never reading past
    /// their end. Returns how many bytes came; 0 means none yet.
    ///
    /// # Errors
    /// [`Fault::Closed`] once the peer has left and everything it sent was taken; [`Fault::Io`] if
    /// the link is lost.
    ///
    /// # Panics
    /// If `skip` is not below `HEAD + body.len()`.
    fn receive(
        &mut self,
        head: &mut [u8; HEAD],
        body: ViewMut<'_>,
        skip: usize,
    ) -> Result<usize, Fault>;

    /// What to poll while waiting for this stream; `None` if there is nothing the kernel could
    /// signal.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Says that nothing more will be sent. What was taken still arrives.
    fn finish(&mut self);
}
