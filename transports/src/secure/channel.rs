//! Encrypted messages in both directions.

use super::keys::RecordKeys;
use super::{SecureError, TAG, frame};
use snow::{HandshakeState, TransportState};

/// The most bytes of a message in one frame: Noise's 65,535, less the tag and the byte that marks
/// the last frame.
const PIECE: usize = 65_535 - TAG - 1;

/// Both directions of an established, encrypted connection.
#[derive(Debug)]
pub struct Channel {
    noise: TransportState,
    /// Received bytes that are not a whole frame yet.
    wire: Vec<u8>,
    /// Decrypted bytes of a message whose last frame has not arrived.
    partial: Vec<u8>,
    /// The keys for bulk data that its handshake has agreed on.
    pub(super) record_keys: Option<RecordKeys>,
}

impl Channel {
    pub(super) fn new(noise: HandshakeState) -> Result<Self, SecureError> {
        let noise = noise.into_transport_mode().map_err(|_| SecureError::WrongKey)?;
        Ok(Self { noise, wire: Vec::new(), partial: Vec::new(), record_keys: None })
    }

    /// Takes the keys for an [`EncryptedStream`](super::EncryptedStream) on this connection, which
    /// a handshake for [`EncryptedData`](super::Purpose::EncryptedData) has agreed on. They can be
    /// taken once.
    pub fn take_record_keys(&mut self) -> Option<RecordKeys> {
        self.record_keys.take()
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
        let len =
            self.noise.write_message(&plain, &mut body).expect("a channel never sends 2^64 frames");
        frame(&body[..len], out);
    }

    /// Takes received bytes. Call [`open`](Self::open) until it returns `None` before the next
    /// call: then at most one frame and the given bytes are kept.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.wire.extend(bytes);
    }

    /// Returns the next message, or `None` if it has not arrived completely.
    ///
    /// # Errors
    /// If the message is longer than `maximum` bytes, or the bytes were not written by the other
    /// end of this channel. The channel cannot be used after an error.
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

    /// Decrypts one frame to the end of `partial`. Returns true if the frame is the last one of
    /// its message, and `None` if it has not arrived completely.
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
