//! Who may talk to us: a handshake that proves both ends hold the job's key, and the encrypted
//! channel that follows.
//!
//! Bytes go in, bytes come out; nothing here owns a socket or a clock.
//!
//! # The handshake
//!
//! ```text
//! initiator                                          responder
//!   preamble (plain: what this connection is for)  -->
//!   first message (e; needs the key)               -->  wrong key or job: a plain refusal, or silence
//!                                                  <--  second message (e, ee)
//!   third message (encrypted, empty)               -->  only now does the connection count
//!                                                  <--  accepted (encrypted, empty)
//! ```
//!
//! It is Noise `NNpsk0`. Its prologue binds the preamble (protocol version, purpose, group, lane,
//! both ranks), the session and the name of the job, so that no message of one connection can be
//! replayed or reflected into another. The third message is what makes a replayed first one
//! worthless: only who knows the ephemeral key can write it.
//!
//! # Frames
//!
//! Everything after the preamble is frames: a `u16` length and so many bytes. On a channel a
//! message is one or more encrypted frames, each of which says (encrypted) whether it is the last;
//! so no length is ever believed before the bytes are there, and a receiver states how much it
//! takes.

mod channel;
mod handshake;

pub use channel::Channel;
pub use handshake::{HandshakeProgress, Initiator, Responder, initiate, refuse, respond};

use std::io;

/// Bytes of a preamble.
pub const PREAMBLE: usize = 49;
/// The most bytes that a handshake puts on the wire in one direction: far below the 4 KiB that a
/// stranger may cost us.
pub const HANDSHAKE: usize = PREAMBLE + 2 * (2 + 64);

const MAGIC: [u8; 8] = *b"maypole\x01";
/// An authentication tag.
const TAG: usize = 16;
/// A frame of the handshake that is shorter than any Noise message is a refusal: one byte that
/// says why.
const REFUSAL: usize = 1;
const HANDSHAKE_FRAME: usize = 96;

/// What a connection is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Purpose {
    /// A rank joins; the connection then stays as its control connection.
    Join = 1,
    /// A lane of data between two ranks of a group.
    Data = 2,
    /// A shared-memory segment is handed over.
    Segment = 3,
}

/// Everything that the handshake of one connection is bound to. It travels in the clear, and a
/// change to it is noticed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Binding {
    /// What the connection is for.
    pub purpose: Purpose,
    /// The group it belongs to.
    pub group: [u64; 2],
    /// Which of several connections between the same two ranks.
    pub lane: u32,
    /// The rank that connects.
    pub initiator: u32,
    /// The rank that accepts.
    pub responder: u32,
}

/// What the members of a job know and nobody else does, with the names that keep jobs and sessions
/// apart.
#[derive(Clone)]
pub struct JobSecret {
    /// The job's key.
    pub key: [u8; 32],
    /// The job's name.
    pub job: String,
    /// Random, from rank 0; zero until it is known.
    pub session: [u8; 16],
}

impl std::fmt::Debug for JobSecret {
    // A key is never printed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobSecret").field("job", &self.job).finish_non_exhaustive()
    }
}

/// Why a handshake or a channel ended. None of it is news about a peer: anybody can send bytes to
/// a port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecureError {
    /// The bytes are not of this protocol, or of another version of it.
    #[error("the other end does not speak this version of maypole's protocol")]
    UnknownProtocol,
    /// The other end says that it belongs to another job.
    #[error("the other end belongs to another job")]
    OtherJob,
    /// The keys, or what the connection is bound to, differ.
    #[error("the other end has another job key, or the connection is not what it says it is")]
    WrongKey,
    /// The other end wants another rank, or has no use for the connection.
    #[error("the other end refuses this connection")]
    Refused,
    /// A message is longer than this end takes.
    #[error("a message of more than {maximum} bytes")]
    TooLong {
        /// What this end takes.
        maximum: usize,
    },
    /// The bytes of an established channel were altered, or lost.
    #[error("the encrypted channel is damaged")]
    Damaged,
    /// The socket failed, or ended.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Binding {
    /// The preamble's bytes.
    fn encode(&self, job: &str) -> [u8; PREAMBLE] {
        let mut bytes = [0; PREAMBLE];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(&MAGIC);
        put(&tag(job));
        put(&[self.purpose as u8]);
        put(&self.group[0].to_le_bytes());
        put(&self.group[1].to_le_bytes());
        put(&self.lane.to_le_bytes());
        put(&self.initiator.to_le_bytes());
        put(&self.responder.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; PREAMBLE], job: &str) -> Result<Self, SecureError> {
        let mut rest = &bytes[..];
        if take::<8>(&mut rest) != MAGIC {
            return Err(SecureError::UnknownProtocol);
        }
        if take::<8>(&mut rest) != tag(job) {
            return Err(SecureError::OtherJob);
        }
        let purpose = match take::<1>(&mut rest) {
            [1] => Purpose::Join,
            [2] => Purpose::Data,
            [3] => Purpose::Segment,
            _ => return Err(SecureError::UnknownProtocol),
        };
        let group = [u64::from_le_bytes(take(&mut rest)), u64::from_le_bytes(take(&mut rest))];
        let [lane, initiator, responder] =
            std::array::from_fn(|_| u32::from_le_bytes(take(&mut rest)));
        Ok(Self { purpose, group, lane, initiator, responder })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (field, after) =
        rest.split_first_chunk().expect("the preamble's length is the sum of its fields");
    *rest = after;
    *field
}

/// Tells jobs on one machine apart without naming them (FNV-1a). Not a secret, and nothing is
/// trusted because of it.
fn tag(job: &str) -> [u8; 8] {
    let mix = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    job.bytes().fold(0xcbf2_9ce4_8422_2325, mix).to_le_bytes()
}

/// Appends `body` as a frame.
fn frame(body: &[u8], out: &mut Vec<u8>) {
    let len = u16::try_from(body.len()).expect("frames are made no longer than this");
    out.extend(len.to_le_bytes());
    out.extend(body);
}

#[cfg(test)]
mod tests;
