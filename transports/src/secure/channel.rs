//! Encrypted messages in both directions.

use super::{FRAME, MARK, SecureError, TAG};
use snow::{HandshakeState, TransportState};
use std::ops::Range;

/// The most bytes of a message in one frame: Noise's 65,535, less the tag and the byte that marks
/// the last frame.
const PIECE: usize = 65_535 - TAG - MARK;
/// Frames of one direction with one key. AES-GCM is safe far beyond that, and no nonce is used twice.
const FRAMES_PER_KEY: u64 = 1 << 16;

/// Both directions of an established, encrypted connection.
#[derive(Debug)]
pub struct Channel {
    noise: TransportState,
    /// Received bytes, of which those in `sealed` are not decrypted yet.
    wire: Vec<u8>,
    sealed: Range<usize>,
    /// Decrypted bytes of a message whose last frame has not arrived.
    partial: Vec<u8>,
}

impl Channel {
    pub(super) fn new(noise: HandshakeState) -> Result<Self, SecureError> {
        let noise = noise.into_transport_mode().map_err(|_| SecureError::WrongKey)?;
        Ok(Self { noise, wire: Vec::new(), sealed: 0..0, partial: Vec::new() })
    }

    /// Appends `message`, encrypted and framed, to `out`.
    pub fn seal(&mut self, message: &[u8], out: &mut Vec<u8>) {
        let mut rest = message;
        loop {
            let (piece, after) = rest.split_at(rest.len().min(PIECE));
            self.seal_frame(&[piece, &[u8::from(after.is_empty())]].concat(), out);
            if after.is_empty() {
                return;
            }
            rest = after;
        }
    }

    /// Appends one frame to `out`. The last byte of `plain` is 1 if the frame is the last one of its message.
    pub(super) fn seal_frame(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        let len = u16::try_from(plain.len() + TAG).expect("a frame has at most 65,535 bytes");
        out.extend(len.to_le_bytes());
        let start = out.len();
        out.resize(start + usize::from(len), 0);
        let sealed = self.noise.write_message(plain, &mut out[start..]);
        sealed.expect("a channel never sends 2^64 frames");
        if self.noise.sending_nonce().is_multiple_of(FRAMES_PER_KEY) {
            self.noise.rekey_outgoing();
        }
    }

    /// Takes received bytes. Call [`open`](Self::open) until it returns `None` before the next
    /// call: then at most one frame and the given bytes are kept.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.room(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.received(bytes.len());
    }

    /// Room for at least `least` bytes that are received next.
    pub(super) fn room(&mut self, least: usize) -> &mut [u8] {
        self.wire.copy_within(self.sealed.clone(), 0);
        self.sealed = 0..self.sealed.len();
        let least = self.sealed.end + least;
        self.wire.resize(least.max(self.wire.len()), 0);
        &mut self.wire[self.sealed.end..]
    }

    /// Accepts the first `bytes` bytes of [`room`](Self::room), which were received.
    pub(super) fn received(&mut self, bytes: usize) {
        self.sealed.end += bytes;
    }

    /// Returns the next message, or `None` if it has not arrived completely.
    ///
    /// # Errors
    /// If the message is longer than `maximum` bytes, or the bytes were not written by the other
    /// end of this channel. The channel cannot be used after an error.
    pub fn open(&mut self, maximum: usize) -> Result<Option<Vec<u8>>, SecureError> {
        let mut message = std::mem::take(&mut self.partial);
        while let Some(is_last) = self.open_frame(&mut message, None)? {
            if message.len() > maximum {
                return Err(SecureError::TooLong { maximum });
            }
            if is_last {
                return Ok(Some(message));
            }
        }
        self.partial = message;
        Ok(None)
    }

    /// Decrypts one frame, whose text has one of these `lengths`, to the end of `message`. Returns true if the
    /// frame is the last one of its message, and `None` if it has not arrived completely.
    pub(super) fn open_frame(
        &mut self,
        message: &mut Vec<u8>,
        lengths: Option<[usize; 2]>,
    ) -> Result<Option<bool>, SecureError> {
        let wire = &self.wire[self.sealed.clone()];
        let Some((len, rest)) = wire.split_first_chunk() else { return Ok(None) };
        let len = usize::from(u16::from_le_bytes(*len));
        if lengths.is_some_and(|lengths| !lengths.map(|text| text + MARK + TAG).contains(&len)) {
            return Err(SecureError::Damaged);
        }
        let Some(body) = rest.get(..len) else { return Ok(None) };
        let start = message.len();
        message.resize(start + len, 0);
        let opened = self.noise.read_message(body, &mut message[start..]);
        message.truncate(start + opened.map_err(|_| SecureError::Damaged)?);
        if self.noise.receiving_nonce().is_multiple_of(FRAMES_PER_KEY) {
            self.noise.rekey_incoming();
        }
        self.sealed.start += FRAME + len;
        let mark = message[start..].last().copied().ok_or(SecureError::Damaged)?;
        message.pop();
        Ok(Some(mark == 1))
    }
}
