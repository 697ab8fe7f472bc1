//! A stream whose bytes are encrypted and authenticated, over any other stream.
//!
//! ```text
//! record:   a frame with the length of the next (2 bytes)   a frame with the bytes, the last of the message
//! goodbye:  an empty frame, the last of its message
//! ```
//!
//! The first frame of a record has a known length, and that of the second one is authentic before it comes. So no
//! receiver waits for the bytes of an altered length: an altered byte anywhere is noticed as soon as the tag behind
//! it is there. A stream that ends without a goodbye was not ended by the peer.

use super::{Channel, FRAME, MARK, TAG};
use crate::parts::{unfilled, unsent};
use crate::poll::PollFd;
use crate::stream::{Fault, HEAD, Result, Stream};
use maypole_kernels::{View, ViewMut};
use std::ops::Range;

/// Most bytes of a record, before they are encrypted: a head and 32 KiB of its body.
const RECORD: usize = HEAD + (32 << 10);
/// Bytes of the longest record on the wire.
const LONGEST: usize = 2 * (FRAME + MARK + TAG) + size_of::<u16>() + RECORD;
/// Lengths of the first frame of a record, and of a goodbye.
const FIRST: [usize; 2] = [size_of::<u16>(), 0];

/// A [`Stream`] that carries encrypted, authenticated records over another stream.
///
/// Bytes that differ from the sent ones are never delivered: the result is [`Fault::Altered`]. The
/// peer's end is [`Fault::Closed`] only if the peer itself has ended the stream, and [`Fault::Cut`]
/// otherwise. Dropping it ends the stream.
///
/// It holds up to two records of each direction, about 160 KiB in all, and copies every byte four times more
/// than the stream below. [`send`](Stream::send) returns the bytes of a record only once the stream
/// below has taken all of it. So after 0 the caller must offer the same bytes again, as executors
/// do.
///
/// ```
/// use maypole_kernels::{View, ViewMut};
/// use maypole_transports::secure::{Binding, JobSecret, Purpose, Responder, initiate};
/// use maypole_transports::{EncryptedStream, HEAD, Stream, mem};
/// use std::os::unix::net::UnixStream;
///
/// // The two ends of a connection prove to one another that they know the job's key.
/// let secret = JobSecret { key: [1; 32], job: "example".to_owned(), session: [2; 16] };
/// let binding = Binding {
///     purpose: Purpose::EncryptedData, group: [0; 2], lane: 0, initiator: 0, responder: 1,
/// };
/// let (mut near, mut far) = UnixStream::pair()?;
/// let (here, there) = std::thread::scope(|threads| {
///     let other = threads.spawn(|| Responder::new(&secret).advance(&mut far).unwrap());
///     (initiate(&mut near, &secret, &binding).unwrap(), other.join().unwrap().unwrap().1)
/// });
///
/// // The channels between them encrypt a stream.
/// let (near, far) = mem::pair(1000);
/// let mut here = EncryptedStream::new(near, here);
/// let mut there = EncryptedStream::new(far, there);
/// assert_eq!(here.send(&[7; HEAD], View::of(b"ribbon"), 0)?, HEAD + 6);
/// let mut head = [0; HEAD];
/// let mut body = [0; 6];
/// assert_eq!(there.receive(&mut head, ViewMut::of(&mut body), 0)?, HEAD + 6);
/// assert_eq!((head, &body), ([7; HEAD], b"ribbon"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct EncryptedStream<S: Stream> {
    below: S,
    channel: Channel,
    /// Bytes of the caller in the record that is leaving, which is in `wire`.
    leaving: usize,
    /// Room for the plain bytes of a record and the mark of the last frame.
    plain: Box<[u8]>,
    /// Encrypted bytes, of which those before `sent` are gone.
    wire: Vec<u8>,
    sent: usize,
    /// Decrypted bytes, of which those in `opened` were not taken.
    arrived: Vec<u8>,
    opened: Range<usize>,
    /// Lengths that the next frame may have.
    next: [usize; 2],
    /// This end has ended its direction.
    finished: bool,
    /// How the other direction has ended: by a goodbye, or by bytes that the peer has not sent.
    end: Option<fn() -> Fault>,
    /// The process that made the stream. A forked child must not use it.
    process: u32,
}

impl<S: Stream> EncryptedStream<S> {
    /// Encrypts the bytes over `below`, on the channel that the handshake of this connection gave.
    pub fn new(below: S, channel: Channel) -> Self {
        Self {
            below,
            channel,
            leaving: 0,
            plain: vec![0; RECORD + MARK].into_boxed_slice(),
            wire: Vec::with_capacity(2 * LONGEST),
            sent: 0,
            arrived: Vec::with_capacity(LONGEST),
            opened: 0..0,
            next: FIRST,
            finished: false,
            end: None,
            process: std::process::id(),
        }
    }

    /// Returns the stream below.
    pub fn below(&self) -> &S {
        &self.below
    }

    /// Returns the number of encrypted bytes that the stream below has not taken.
    pub fn unsent(&self) -> usize {
        self.wire.len() - self.sent
    }

    /// Encrypts the first bytes of `parts` as a record. Returns their number.
    fn seal(&mut self, parts: [View<'_>; 2]) -> usize {
        let mut len = 0;
        for part in parts {
            let part = part.slice(0, part.len().min(RECORD - len));
            part.copy_to(&mut self.plain[len..len + part.len()]);
            len += part.len();
        }
        assert!(len > 0, "a record without bytes would be a goodbye");
        self.plain[len] = 1;
        self.wire.clear();
        self.sent = 0;
        let [low, high] = (len as u16).to_le_bytes();
        self.channel.seal_frame(&[low, high, 0], &mut self.wire);
        self.channel.seal_frame(&self.plain[..=len], &mut self.wire);
        len
    }

    /// Sends encrypted bytes. Returns true once the stream below has taken all of it.
    fn flush(&mut self) -> Result<bool> {
        while self.unsent() > 0 {
            // Without a head.
            match self.below.send(&[0; HEAD], View::of(&self.wire[self.sent..]), HEAD)? {
                0 => return Ok(false),
                taken => self.sent += taken,
            }
        }
        Ok(true)
    }

    /// Sends the rest of a goodbye, and ends the direction below.
    fn flush_goodbye(&mut self) {
        // A link that is lost needs no goodbye. The next receive reports the loss.
        if self.unsent() > 0 && self.flush().unwrap_or(true) {
            self.below.finish();
        }
    }

    /// Receives until there are bytes to take. Returns false if none are here yet.
    fn await_record(&mut self) -> Result<bool> {
        while self.opened.is_empty() && self.end.is_none() {
            self.arrived.clear();
            let opened = self.channel.open_frame(&mut self.arrived, Some(self.next));
            match (opened, &self.arrived[..]) {
                (Ok(None), _) => {
                    if !self.receive_below()? {
                        return Ok(false);
                    }
                }
                (Ok(Some(false)), [low, high]) => {
                    self.next = [u16::from_le_bytes([*low, *high]).into(); 2];
                }
                (Ok(Some(true)), []) => self.end = Some(|| Fault::Closed),
                (Ok(Some(true)), arrived) => (self.opened, self.next) = (0..arrived.len(), FIRST),
                _ => self.end = Some(|| Fault::Altered),
            }
        }
        self.end.map_or(Ok(true), |fault| Err(fault()))
    }

    /// Receives encrypted bytes. Returns false if none are here.
    fn receive_below(&mut self) -> Result<bool> {
        let room = ViewMut::of(self.channel.room(LONGEST));
        match self.below.receive(&mut [0; HEAD], room, HEAD) {
            Ok(received) => {
                self.channel.received(received);
                Ok(received > 0)
            }
            // A goodbye would have arrived before this end.
            Err(Fault::Closed) => Err(Fault::Cut),
            Err(fault) => Err(fault),
        }
    }

    /// Moves decrypted bytes to `parts`. Returns their number.
    fn take(&mut self, parts: [ViewMut<'_>; 2]) -> usize {
        let before = self.opened.len();
        for part in parts {
            let taken = part.len().min(self.opened.len());
            part.slice(0, taken).fill_from(&self.arrived[self.opened.start..][..taken]);
            self.opened.start += taken;
        }
        before - self.opened.len()
    }
}

impl<S: Stream> Stream for EncryptedStream<S> {
    fn send(&mut self, head: &[u8; HEAD], body: View<'_>, skip: usize) -> Result<usize> {
        let parts = unsent(head, body, skip);
        if self.finished {
            return Err(Fault::Closed);
        }
        if self.leaving == 0 {
            self.leaving = self.seal(parts);
        }
        if !self.flush()? {
            return Ok(0);
        }
        Ok(std::mem::take(&mut self.leaving))
    }

    fn receive(&mut self, head: &mut [u8; HEAD], body: ViewMut<'_>, skip: usize) -> Result<usize> {
        let parts = unfilled(head, body, skip);
        if self.finished {
            self.flush_goodbye();
        }
        if self.await_record()? { Ok(self.take(parts)) } else { Ok(0) }
    }

    fn prepare_to_sleep(&mut self) -> bool {
        self.below.prepare_to_sleep()
    }

    fn interest(&self, reads: bool, writes: bool) -> Option<PollFd<'_>> {
        self.below.interest(reads, writes)
    }

    fn abandon(&mut self) {
        self.below.abandon();
    }

    fn finish(&mut self) {
        if self.finished || self.process != std::process::id() {
            return;
        }
        self.finished = true;
        self.channel.seal_frame(&[1], &mut self.wire);
        self.flush_goodbye();
    }
}

impl<S: Stream> Drop for EncryptedStream<S> {
    fn drop(&mut self) {
        self.finish();
    }
}
