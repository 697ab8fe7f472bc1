//! Authentication and encryption of connections: a handshake proves that both ends hold the job's
//! key, and an encrypted channel follows.
//!
//! The state machines take bytes and give bytes. They own no socket and read no clock.
//!
//! # The handshake
//!
//! ```text
//! initiator                                          responder
//!   preamble (plain: what this connection is for)  -->
//!   first message (e; needs the key)               -->  wrong key or job: plain refusal or silence
//!                                                  <--  second message (e, ee)
//!   third message (encrypted)                      -->  the initiator is authenticated
//!                                                  <--  accepted (encrypted)
//! ```
//!
//! The last two messages are empty.
//!
//! The handshake is Noise `NNpsk0`. Its prologue binds the preamble (protocol version, purpose,
//! group, lane, both ranks), the session and the name of the job, so that a message of one
//! connection cannot be replayed or reflected into another. A replayed first message is worthless:
//! the third message needs the ephemeral private key of the initiator.
//!
//! # Frames
//!
//! After the preamble, everything is sent in frames: a length (`u16`, little-endian) and that many
//! bytes. A message on a channel is one or more encrypted frames, and the last byte of each plain
//! text marks the last frame. So a receiver allocates memory only for bytes that have arrived, and
//! limits the length of a message.
//!
//! # Bulk data
//!
//! It is plain, or an [`EncryptedStream`] makes a message of every 32 KiB: `secure/stream.rs`.

mod channel;
mod cipher;
mod handshake;
mod stream;

pub use channel::Channel;
pub use handshake::{Responder, initiate, refuse};
pub use stream::EncryptedStream;

use bytemuck::{CheckedBitPattern, Pod, Zeroable};
use std::io;

/// The layout of a preamble on the wire. All fields are bytes, so that there is no padding.
/// Integers are little-endian.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Preamble {
    magic: [u8; 8],
    job: [u8; 8],
    purpose: u8,
    group: [[u8; 8]; 2],
    lane: [u8; 4],
    initiator: [u8; 4],
    responder: [u8; 4],
}

/// Bytes of a preamble.
pub const PREAMBLE: usize = size_of::<Preamble>();

/// The first bytes of every connection. The last one is the version of the protocol.
const MAGIC: [u8; 8] = *b"maypole\x03";
/// Bytes of the length of a frame.
const FRAME: usize = size_of::<u16>();
/// Bytes that mark the last frame of a message.
const MARK: usize = 1;
/// Bytes of an authentication tag.
const TAG: usize = 16;
/// Bytes of a refusal: one code. No Noise message is that short.
const REFUSAL: usize = 1;
/// The longest frame of a handshake.
const HANDSHAKE_FRAME: usize = 96;

/// The purpose of a connection.
#[derive(CheckedBitPattern, Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Purpose {
    /// A rank joins the job. The connection becomes its control connection.
    Join = 1,
    /// One of the data connections between two ranks of a group.
    Data = 2,
    /// As [`Data`](Self::Data), and all bytes after the handshake are encrypted.
    EncryptedData = 4,
    /// One rank queries another's progress, or reports a failure to it.
    Question = 5,
    /// The agreement on the surviving ranks after a failure.
    Shrink = 6,
}

/// The purpose and the ends of a connection. It is sent in plain text, and the handshake fails if
/// it was altered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Binding {
    /// The purpose of the connection.
    pub purpose: Purpose,
    /// The group that the connection belongs to.
    pub group: [u64; 2],
    /// The number of the connection among those between the same two ranks.
    pub lane: u32,
    /// The rank that connects.
    pub initiator: u32,
    /// The rank that accepts.
    pub responder: u32,
}

/// The key that the members of a job share, and the names of the job and the session.
#[derive(Clone)]
pub struct JobSecret {
    /// The job's key.
    pub key: [u8; 32],
    /// The job's name.
    pub job: String,
    /// Random, chosen by rank 0. Zero until received.
    pub session: [u8; 16],
}

opaque!(JobSecret, "JobSecret");

/// Why a handshake or a channel failed. A failed handshake proves nothing about a peer, because any
/// process can send bytes to a port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecureError {
    /// The bytes are of another protocol, or of another version of this one.
    #[error("the other end does not speak this version of maypole's protocol")]
    UnknownProtocol,
    /// The other end belongs to another job.
    #[error("the other end belongs to another job")]
    OtherJob,
    /// The two ends have different keys, or different [`Binding`]s.
    #[error("the other end has another job key, or expects another connection")]
    WrongKey,
    /// The other end expected another rank, or no connection at all.
    #[error("the other end refuses this connection")]
    Refused,
    /// The other end has no file descriptor for the connection.
    #[error("the other end has no file descriptor left; raise its limit with `ulimit -n`")]
    NoDescriptor,
    /// A message is longer than this end accepts.
    #[error("a message is longer than {maximum} bytes, the most that this end accepts")]
    TooLong {
        /// Bytes that this end accepts.
        maximum: usize,
    },
    /// Bytes of an established channel were altered or lost.
    #[error("bytes of the encrypted channel were altered or lost")]
    Damaged,
    /// The socket failed, or was closed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Binding {
    /// The preamble of a connection of `job`.
    fn encode(&self, job: &str) -> [u8; PREAMBLE] {
        let preamble = Preamble {
            magic: MAGIC,
            job: job_hash(job).to_le_bytes(),
            purpose: self.purpose as u8,
            group: self.group.map(u64::to_le_bytes),
            lane: self.lane.to_le_bytes(),
            initiator: self.initiator.to_le_bytes(),
            responder: self.responder.to_le_bytes(),
        };
        *bytemuck::bytes_of(&preamble).first_chunk().expect("the length of a preamble is its size")
    }

    fn decode(bytes: &[u8; PREAMBLE], job: &str) -> Result<Self, SecureError> {
        let preamble: Preamble = bytemuck::pod_read_unaligned(bytes);
        if preamble.magic != MAGIC {
            return Err(SecureError::UnknownProtocol);
        }
        if preamble.job != job_hash(job).to_le_bytes() {
            return Err(SecureError::OtherJob);
        }
        let purpose = bytemuck::checked::try_cast(preamble.purpose);
        Ok(Self {
            purpose: purpose.map_err(|_| SecureError::UnknownProtocol)?,
            group: preamble.group.map(u64::from_le_bytes),
            lane: u32::from_le_bytes(preamble.lane),
            initiator: u32::from_le_bytes(preamble.initiator),
            responder: u32::from_le_bytes(preamble.responder),
        })
    }
}

/// Hashes the name of a job (FNV-1a), to distinguish jobs without sending their names: equal in
/// every build on every host, which `std`'s hashes do not guarantee. The hash is no secret, and
/// proves nothing.
pub fn job_hash(job: &str) -> u64 {
    let mix = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    job.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}

#[cfg(test)]
mod tests;
