//! Both ends of the handshake: as state machines that take and give bytes, and on sockets.

use super::cipher::Resolver;
use super::{
    Binding, Channel, HANDSHAKE_FRAME, JobSecret, PREAMBLE, Purpose, REFUSAL, SecureError, TAG,
};
use snow::{Builder, HandshakeState};
use std::io::{self, ErrorKind, Read, Write};

const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_BLAKE2s";

/// Returns the frame of a refusal, which a responder may send to an initiator whose handshake
/// failed. A refusal is not authenticated, so it serves error messages only.
pub fn refuse(why: &SecureError) -> [u8; 3] {
    let code = match why {
        SecureError::OtherJob => 1,
        SecureError::WrongKey => 2,
        SecureError::Refused => 3,
        SecureError::NoDescriptor => 4,
        _ => 0,
    };
    [REFUSAL as u8, 0, code]
}

fn refusal(code: u8) -> SecureError {
    match code {
        1 => SecureError::OtherJob,
        2 => SecureError::WrongKey,
        3 => SecureError::Refused,
        4 => SecureError::NoDescriptor,
        _ => SecureError::UnknownProtocol,
    }
}

/// The accepting end of a handshake. It takes no bytes but those of the handshake: the initiator sends none
/// before it is accepted.
#[derive(Debug)]
pub struct Responder {
    secret: JobSecret,
    /// The accepting rank, if the responder represents one rank only.
    rank: Option<u32>,
    /// The received bytes of the next message.
    pub(super) buffer: Vec<u8>,
    /// The connection, once its first message was answered.
    answered: Option<(Binding, Channel)>,
}

impl Responder {
    /// Begins the handshake with an initiator of this job.
    pub fn new(secret: &JobSecret) -> Self {
        Self { secret: secret.clone(), rank: None, buffer: Vec::new(), answered: None }
    }

    /// Refuses, before it proves anything, every connection that is not from another rank to
    /// `rank`.
    ///
    /// Without this an attacker on the way could lead a connection to another rank of the job, or
    /// back to the rank that made it. Both hold the key, so the handshake would succeed, and the
    /// initiator would take the other end for the requested rank.
    #[must_use]
    pub fn of_rank(self, rank: u32) -> Self {
        Self { rank: Some(rank), ..self }
    }

    /// Takes the bytes of `stream` that are there, and replies. Returns the outcome once the
    /// handshake has completed; `None` if a read would block.
    ///
    /// # Errors
    /// If the bytes are not of a handshake of this job, and errors of the stream. The connection must then be
    /// dropped.
    pub fn advance(
        &mut self,
        stream: &mut (impl Read + Write),
    ) -> Result<Option<(Binding, Channel)>, SecureError> {
        let mut bytes = [0; HANDSHAKE_FRAME];
        loop {
            let read = match stream.read(&mut bytes) {
                Ok(0) => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            self.buffer.extend(&bytes[..read]);
            let mut out = Vec::new();
            let is_accepted = match &mut self.answered {
                Some((_, channel)) => accepts(channel, &self.buffer, &mut out)?,
                None => self.answer(&mut out)?,
            };
            // A handshake's few bytes always fit into a fresh socket's buffer.
            stream.write_all(&out)?;
            if is_accepted {
                return Ok(self.answered.take());
            }
        }
    }

    /// Answers the first message, once it has arrived. False, because the initiator has not proved its key yet.
    fn answer(&mut self, out: &mut Vec<u8>) -> Result<bool, SecureError> {
        let Some((preamble, rest)) = self.buffer.split_first_chunk() else { return Ok(false) };
        let binding = match Binding::decode(preamble, &self.secret.job) {
            Err(stranger @ SecureError::UnknownProtocol) => return Err(stranger),
            binding => binding,
        };
        // It is read even if the preamble is of another job: closing a socket with unread bytes could lose the
        // refusal.
        let Some(first) = whole_frame(rest)? else { return Ok(false) };
        let binding = binding?;
        let is_mine = |rank| binding.responder == rank && binding.initiator != rank;
        if !self.rank.is_none_or(is_mine) {
            return Err(SecureError::Refused);
        }
        let mut noise = noise(&self.secret, preamble, &binding, false);
        let read = noise.read_message(first, &mut [0; HANDSHAKE_FRAME]);
        read.map_err(|_| SecureError::WrongKey)?;
        write(&mut noise, out);
        self.answered = Some((binding, Channel::new(noise)?));
        self.buffer.clear();
        Ok(false)
    }
}

/// Reads the third message and accepts its sender. False if the message has not arrived completely.
fn accepts(channel: &mut Channel, third: &[u8], out: &mut Vec<u8>) -> Result<bool, SecureError> {
    if whole_frame(third)?.is_none() {
        return Ok(false);
    }
    channel.receive(third);
    channel.open(0)?.ok_or(SecureError::UnknownProtocol)?;
    channel.seal(&[], out);
    Ok(true)
}

/// The body of the one frame that `bytes` are; `None` if it has not arrived completely.
fn whole_frame(bytes: &[u8]) -> Result<Option<&[u8]>, SecureError> {
    let Some((len, body)) = bytes.split_first_chunk() else { return Ok(None) };
    let len = usize::from(u16::from_le_bytes(*len));
    if !(TAG..=HANDSHAKE_FRAME).contains(&len) || body.len() > len {
        return Err(SecureError::UnknownProtocol);
    }
    Ok((body.len() == len).then_some(body))
}

/// Performs the connecting end of a handshake on a socket whose reads and writes have a timeout.
/// Reads no byte after the handshake.
///
/// # Errors
/// If the other end refuses, or has not the same key for this connection; if the system has no
/// random source; errors of the socket.
pub fn initiate(
    socket: &mut (impl Read + Write),
    secret: &JobSecret,
    binding: &Binding,
) -> Result<Channel, SecureError> {
    let preamble = binding.encode(&secret.job);
    let mut noise = noise(secret, &preamble, binding, true);
    let mut hello = preamble.to_vec();
    write(&mut noise, &mut hello);
    socket.write_all(&hello)?;
    let answer = read_frame(socket)?;
    let read = noise.read_message(&answer[2..], &mut [0; HANDSHAKE_FRAME]);
    read.map_err(|_| SecureError::WrongKey)?;
    let mut channel = Channel::new(noise)?;
    let mut third = Vec::new();
    channel.seal(&[], &mut third);
    socket.write_all(&third)?;
    channel.receive(&read_frame(socket)?);
    channel.open(0)?.ok_or(SecureError::UnknownProtocol)?;
    Ok(channel)
}

/// Returns a frame of the other end with its head, unless it is a refusal.
fn read_frame(socket: &mut impl Read) -> Result<Vec<u8>, SecureError> {
    let mut len = [0; 2];
    socket.read_exact(&mut len)?;
    let body = usize::from(u16::from_le_bytes(len));
    if body > HANDSHAKE_FRAME {
        return Err(SecureError::UnknownProtocol);
    }
    let mut framed = len.to_vec();
    framed.resize(2 + body, 0);
    socket.read_exact(&mut framed[2..])?;
    if body == REFUSAL { Err(refusal(framed[2])) } else { Ok(framed) }
}

fn noise(
    secret: &JobSecret,
    preamble: &[u8; PREAMBLE],
    binding: &Binding,
    initiates: bool,
) -> HandshakeState {
    // A joining rank has no session yet.
    let session = if binding.purpose == Purpose::Join { [0; 16] } else { secret.session };
    let prologue = [&preamble[..], &session, secret.job.as_bytes()].concat();
    let pattern = PATTERN.parse().expect("the pattern is a constant");
    let builder = Builder::with_resolver(pattern, Box::new(Resolver));
    let build = || {
        let builder = builder.psk(0, &secret.key)?.prologue(&prologue)?;
        if initiates { builder.build_initiator() } else { builder.build_responder() }
    };
    build().expect("the key has 32 bytes, and the pattern needs nothing else")
}

/// Writes the next message of a handshake as a frame.
fn write(noise: &mut HandshakeState, out: &mut Vec<u8>) {
    let mut message = [0; HANDSHAKE_FRAME];
    let len = noise
        .write_message(&[], &mut message)
        .expect("the state machine writes in its turn, and the message is short");
    out.extend((len as u16).to_le_bytes());
    out.extend(&message[..len]);
}
