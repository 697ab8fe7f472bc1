//! Who may talk to us: a handshake that proves both ends hold the job's key, and the encrypted channel that follows.
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
//! It is Noise `NNpsk0`. Its prologue binds the preamble (protocol version, purpose, group, lane, both ranks), the
//! session and the name of the job, so that no message of one connection can be replayed or reflected into another.
//! The third message is what makes a replayed first one worthless: only who knows the ephemeral key can write it.
//!
//! # Frames
//!
//! Everything after the preamble is frames: a `u16` length and so many bytes. On a channel a message is one or more
//! encrypted frames, each of which says (encrypted) whether it is the last; so no length is ever believed before the
//! bytes are there, and a receiver states how much it takes.

use snow::{Builder, HandshakeState, TransportState};
use std::io::{self, Read, Write};

/// Bytes of a preamble.
pub const PREAMBLE: usize = 49;
/// The most bytes that a handshake puts on the wire in one direction: far below the 4 KiB that a stranger may cost us.
pub const HANDSHAKE: usize = PREAMBLE + 2 * (2 + 64);

const MAGIC: [u8; 8] = *b"maypole\x01";
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// An authentication tag.
const TAG: usize = 16;
/// A frame of the handshake that is shorter than any Noise message is a refusal: one byte that says why.
const REFUSAL: usize = 1;
const HANDSHAKE_FRAME: usize = 96;
/// The most plain bytes in one frame: Noise's 65,535 less the tag and the byte that says whether more follows.
const PIECE: usize = 65_535 - TAG - 1;

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

/// Everything that the handshake of one connection is bound to. It travels in the clear, and a change to it is noticed.
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

/// What the members of a job know and nobody else does, with the names that keep jobs and sessions apart.
#[derive(Clone)]
pub struct Secret {
    /// The job's key.
    pub key: [u8; 32],
    /// The job's name.
    pub job: String,
    /// Random, from rank 0; zero until it is known.
    pub session: [u8; 16],
}

impl std::fmt::Debug for Secret {
    // A key is never printed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").field("job", &self.job).finish_non_exhaustive()
    }
}

/// Why a handshake or a channel ended. None of it is news about a peer: anybody can send bytes to a port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecureError {
    /// The bytes are not of this protocol, or of another version of it.
    #[error("the other end does not speak this version of maypole's protocol")]
    Stranger,
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
            return Err(SecureError::Stranger);
        }
        if take::<8>(&mut rest) != tag(job) {
            return Err(SecureError::OtherJob);
        }
        let purpose = match take::<1>(&mut rest) {
            [1] => Purpose::Join,
            [2] => Purpose::Data,
            [3] => Purpose::Segment,
            _ => return Err(SecureError::Stranger),
        };
        let group = [u64::from_le_bytes(take(&mut rest)), u64::from_le_bytes(take(&mut rest))];
        let [lane, initiator, responder] = std::array::from_fn(|_| u32::from_le_bytes(take(&mut rest)));
        Ok(Self { purpose, group, lane, initiator, responder })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (field, after) = rest.split_first_chunk().expect("the preamble's length is the sum of its fields");
    *rest = after;
    *field
}

/// Tells jobs on one machine apart without naming them (FNV-1a). Not a secret, and nothing is trusted because of it.
fn tag(job: &str) -> [u8; 8] {
    let mix = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    job.bytes().fold(0xcbf2_9ce4_8422_2325, mix).to_le_bytes()
}

fn prologue(preamble: &[u8; PREAMBLE], secret: &Secret, session: [u8; 16]) -> Vec<u8> {
    [&preamble[..], &session, secret.job.as_bytes()].concat()
}

/// A joining rank cannot know the session yet.
fn session(secret: &Secret, binding: &Binding) -> [u8; 16] {
    if binding.purpose == Purpose::Join { [0; 16] } else { secret.session }
}

fn noise(secret: &Secret, preamble: &[u8; PREAMBLE], binding: &Binding, initiates: bool) -> HandshakeState {
    let prologue = prologue(preamble, secret, session(secret, binding));
    let builder = Builder::new(PATTERN.parse().expect("the pattern is a constant"));
    let build = || {
        let builder = builder.psk(0, &secret.key)?.prologue(&prologue)?;
        if initiates { builder.build_initiator() } else { builder.build_responder() }
    };
    build().expect("every input of the handshake is of a fixed and right size")
}

/// Appends `body` as a frame.
fn frame(body: &[u8], out: &mut Vec<u8>) {
    let len = u16::try_from(body.len()).expect("frames are made no longer than this");
    out.extend(len.to_le_bytes());
    out.extend(body);
}

/// Writes the next message of a handshake as a frame.
fn write(noise: &mut HandshakeState, out: &mut Vec<u8>) {
    let mut message = [0; HANDSHAKE_FRAME];
    let len = noise.write_message(&[], &mut message).expect("it is our turn, and the message is short");
    frame(&message[..len], out);
}

/// The connecting end of a handshake.
#[derive(Debug)]
pub struct Initiator(HandshakeState);

impl Initiator {
    /// Begins, and gives what to send first.
    pub fn start(secret: &Secret, binding: &Binding) -> (Self, Vec<u8>) {
        let preamble = binding.encode(&secret.job);
        let mut noise = noise(secret, &preamble, binding, true);
        let mut out = preamble.to_vec();
        write(&mut noise, &mut out);
        (Self(noise), out)
    }

    /// Takes the answer (a frame's body); gives the channel, and the third message to send.
    ///
    /// # Errors
    /// If the answer is a refusal, or was not made with our key for this very connection.
    pub fn finish(mut self, answer: &[u8]) -> Result<(Channel, Vec<u8>), SecureError> {
        if answer.len() == REFUSAL {
            return Err(refusal(answer[0]));
        }
        self.0.read_message(answer, &mut [0; HANDSHAKE_FRAME]).map_err(|_| SecureError::WrongKey)?;
        let mut channel = Channel::new(self.0)?;
        let mut third = Vec::new();
        channel.seal(&[], &mut third);
        Ok((channel, third))
    }
}

/// The refusal's frame: what a responder may say to who failed its handshake. It is not authenticated, so it only makes
/// messages better.
pub fn refuse(why: &SecureError) -> [u8; 3] {
    let code = match why {
        SecureError::OtherJob => 1,
        SecureError::WrongKey => 2,
        SecureError::Refused => 3,
        _ => 0,
    };
    [REFUSAL as u8, 0, code]
}

fn refusal(code: u8) -> SecureError {
    match code {
        1 => SecureError::OtherJob,
        2 => SecureError::WrongKey,
        3 => SecureError::Refused,
        _ => SecureError::Stranger,
    }
}

/// The accepting end of a handshake: feed it exactly the bytes it asks for, so that none of what follows the handshake
/// is swallowed.
#[derive(Debug)]
pub struct Responder {
    secret: Secret,
    buffer: Vec<u8>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Preamble,
    /// The first message is awaited even from another job: closing with bytes unread could lose the refusal.
    First(Result<Binding, SecureError>, [u8; PREAMBLE]),
    Third(Binding, Box<Channel>),
    Over,
}

/// What a responder makes of the bytes it was fed.
#[derive(Debug)]
pub enum Progress {
    /// Nothing yet.
    More,
    /// This is to be sent; then more is awaited.
    Send(Vec<u8>),
    /// The initiator holds the key. Send `accepted`, and the connection counts.
    Done {
        /// What the connection is for, now believed.
        binding: Binding,
        /// The channel.
        channel: Box<Channel>,
        /// The last bytes of the handshake.
        accepted: Vec<u8>,
    },
}

impl Responder {
    /// Waits for an initiator of this job.
    pub fn new(secret: &Secret) -> Self {
        Self { secret: secret.clone(), buffer: Vec::new(), stage: Stage::Preamble }
    }

    /// How many bytes are to be read next, and not one more: at least one, at most a hundred or so.
    pub fn wants(&self) -> usize {
        let whole = match &self.stage {
            Stage::Preamble => PREAMBLE,
            _ if self.buffer.len() < 2 => 2,
            _ => 2 + self.frame_len(),
        };
        whole - self.buffer.len()
    }

    fn frame_len(&self) -> usize {
        usize::from(u16::from_le_bytes([self.buffer[0], self.buffer[1]]))
    }

    /// Takes bytes, at most as many as [`wants`](Self::wants) says.
    ///
    /// # Errors
    /// If they are not of a handshake of this job. The connection is to be dropped then.
    ///
    /// # Panics
    /// If there are more bytes than wanted.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Progress, SecureError> {
        assert!(bytes.len() <= self.wants(), "a responder was fed more than it asked for");
        self.buffer.extend(bytes);
        if !matches!(self.stage, Stage::Preamble) && self.buffer.len() >= 2 {
            let len = self.frame_len();
            if !(TAG..=HANDSHAKE_FRAME).contains(&len) {
                return Err(SecureError::Stranger);
            }
        }
        if self.wants() > 0 {
            return Ok(Progress::More);
        }
        let buffer = std::mem::take(&mut self.buffer);
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Preamble => self.preamble(&buffer),
            Stage::First(binding, preamble) => self.first(binding?, &preamble, &buffer[2..]),
            Stage::Third(binding, channel) => third(binding, channel, &buffer),
            Stage::Over => Err(SecureError::Stranger),
        }
    }

    fn preamble(&mut self, bytes: &[u8]) -> Result<Progress, SecureError> {
        let preamble = bytes.try_into().expect("as many as were asked for");
        let binding = Binding::decode(&preamble, &self.secret.job);
        if let Err(stranger @ SecureError::Stranger) = binding {
            return Err(stranger);
        }
        self.stage = Stage::First(binding, preamble);
        Ok(Progress::More)
    }

    fn first(&mut self, binding: Binding, preamble: &[u8; PREAMBLE], body: &[u8]) -> Result<Progress, SecureError> {
        let mut noise = noise(&self.secret, preamble, &binding, false);
        noise.read_message(body, &mut [0; HANDSHAKE_FRAME]).map_err(|_| SecureError::WrongKey)?;
        let mut out = Vec::new();
        write(&mut noise, &mut out);
        self.stage = Stage::Third(binding, Box::new(Channel::new(noise)?));
        Ok(Progress::Send(out))
    }
}

fn third(binding: Binding, mut channel: Box<Channel>, buffer: &[u8]) -> Result<Progress, SecureError> {
    channel.receive(buffer);
    match channel.open(0)? {
        Some(_) => {
            let mut accepted = Vec::new();
            channel.seal(&[], &mut accepted);
            Ok(Progress::Done { binding, channel, accepted })
        }
        None => Err(SecureError::Stranger),
    }
}

/// Both directions of an established, encrypted connection.
#[derive(Debug)]
pub struct Channel {
    noise: TransportState,
    /// Bytes from the wire that are not a whole frame yet.
    wire: Vec<u8>,
    /// Plain bytes of a message whose last frame has not come.
    partial: Vec<u8>,
}

impl Channel {
    fn new(noise: HandshakeState) -> Result<Self, SecureError> {
        let noise = noise.into_transport_mode().map_err(|_| SecureError::WrongKey)?;
        Ok(Self { noise, wire: Vec::new(), partial: Vec::new() })
    }

    /// Appends `message`, encrypted and framed, to `out`.
    pub fn seal(&mut self, message: &[u8], out: &mut Vec<u8>) {
        let mut rest = message;
        loop {
            let (piece, after) = rest.split_at(rest.len().min(PIECE));
            self.seal_piece(piece, after.is_empty(), out);
            if after.is_empty() {
                return;
            }
            rest = after;
        }
    }

    fn seal_piece(&mut self, piece: &[u8], last: bool, out: &mut Vec<u8>) {
        let plain = [&[u8::from(last)], piece].concat();
        let mut body = vec![0; plain.len() + TAG];
        let len = self.noise.write_message(&plain, &mut body).expect("2^64 messages are never sent");
        frame(&body[..len], out);
    }

    /// Takes bytes from the wire. Call [`open`](Self::open) until it has no more messages before taking the next ones,
    /// and no more than a frame's worth is ever kept.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.wire.extend(bytes);
    }

    /// The next whole message, if it has come; none longer than `maximum` is taken.
    ///
    /// # Errors
    /// If the message is longer, or the bytes were not written by the other end of this channel. The channel is useless
    /// then.
    pub fn open(&mut self, maximum: usize) -> Result<Option<Vec<u8>>, SecureError> {
        while let Some(last) = self.open_frame()? {
            if self.partial.len() > maximum {
                return Err(SecureError::TooLong { maximum });
            }
            if last {
                return Ok(Some(std::mem::take(&mut self.partial)));
            }
        }
        Ok(None)
    }

    /// Decrypts one frame to the end of `partial`, and tells whether it is its message's last one.
    fn open_frame(&mut self) -> Result<Option<bool>, SecureError> {
        let Some((len, rest)) = self.wire.split_first_chunk::<2>() else { return Ok(None) };
        let len = usize::from(u16::from_le_bytes(*len));
        let Some(body) = rest.get(..len) else { return Ok(None) };
        let mut plain = vec![0; len];
        let read = self.noise.read_message(body, &mut plain).map_err(|_| SecureError::Damaged)?;
        let (last, piece) = plain[..read].split_first().ok_or(SecureError::Damaged)?;
        self.partial.extend(piece);
        self.wire.drain(..2 + len);
        Ok(Some(*last == 1))
    }
}

/// Performs the connecting end of a handshake on a socket whose reads and writes end by themselves. Reads not one byte
/// more than the handshake's.
///
/// # Errors
/// As [`Initiator::finish`], and what the socket reports.
pub fn initiate(socket: &mut (impl Read + Write), secret: &Secret, binding: &Binding) -> Result<Channel, SecureError> {
    let (initiator, hello) = Initiator::start(secret, binding);
    socket.write_all(&hello)?;
    let (mut channel, third) = initiator.finish(&read_frame(socket)?)?;
    socket.write_all(&third)?;
    let accepted = read_frame(socket)?;
    if accepted.len() == REFUSAL {
        return Err(refusal(accepted[0]));
    }
    let mut framed = Vec::new();
    frame(&accepted, &mut framed);
    channel.receive(&framed);
    channel.open(0)?.ok_or(SecureError::Stranger)?;
    Ok(channel)
}

/// Performs the accepting end of a handshake on a socket whose reads and writes end by themselves.
///
/// # Errors
/// As [`Responder::feed`], and what the socket reports.
pub fn respond(socket: &mut (impl Read + Write), secret: &Secret) -> Result<(Binding, Channel), SecureError> {
    let mut responder = Responder::new(secret);
    let mut bytes = [0; HANDSHAKE_FRAME];
    loop {
        let wants = responder.wants().min(bytes.len());
        socket.read_exact(&mut bytes[..wants])?;
        match responder.feed(&bytes[..wants])? {
            Progress::More => {}
            Progress::Send(answer) => socket.write_all(&answer)?,
            Progress::Done { binding, channel, accepted } => {
                socket.write_all(&accepted)?;
                return Ok((binding, *channel));
            }
        }
    }
}

fn read_frame(socket: &mut impl Read) -> Result<Vec<u8>, SecureError> {
    let mut len = [0; 2];
    socket.read_exact(&mut len)?;
    let len = usize::from(u16::from_le_bytes(len));
    if len > HANDSHAKE_FRAME {
        return Err(SecureError::Stranger);
    }
    let mut body = vec![0; len];
    socket.read_exact(&mut body)?;
    Ok(body)
}

#[cfg(test)]
mod tests;
