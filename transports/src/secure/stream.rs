//! A stream whose bytes are encrypted and authenticated, over any other stream.

use super::keys::RecordKeys;
use super::records::{RECORDS_PER_KEY, RecordReader, RecordWriter};
use crate::parts::{unfilled, unsent};
use crate::poll::PollFd;
use crate::stream::{Fault, HEAD, Result, Stream};
use maypole_kernels::{View, ViewMut};

/// A [`Stream`] that carries encrypted, authenticated records over another stream.
///
/// Bytes that differ from the sent ones are never delivered: the result is [`Fault::Altered`]. The
/// peer's end is [`Fault::Closed`] only if the peer itself has ended the stream, and [`Fault::Cut`]
/// otherwise. Dropping it ends the stream.
///
/// It holds one record of each direction, about 64 KiB in all, and copies every byte twice more
/// than the stream below. [`send`](Stream::send) returns the bytes of a record only once the stream
/// below has taken all of it. So after 0 the caller must offer the same bytes again, as executors
/// do.
///
/// ```
/// use maypole_kernels::{View, ViewMut};
/// use maypole_transports::secure::{
///     Binding, EncryptedStream, JobSecret, Purpose, Responder, initiate,
/// };
/// use maypole_transports::{HEAD, Stream, mem};
/// use std::os::unix::net::UnixStream;
///
/// // The two ends of a connection prove to one another that they know the job's key.
/// let secret = JobSecret { key: [1; 32], job: "example".to_owned(), session: [2; 16] };
/// let binding = Binding {
///     purpose: Purpose::EncryptedData, group: [0; 2], lane: 0, initiator: 0, responder: 1,
/// };
/// let (mut near, mut far) = UnixStream::pair()?;
/// let (mut here, mut there) = std::thread::scope(|threads| {
///     let other = threads.spawn(|| Responder::new(&secret).advance(&mut far).unwrap());
///     (initiate(&mut near, &secret, &binding).unwrap(), other.join().unwrap().unwrap().1)
/// });
///
/// // The keys that they have agreed on encrypt a stream.
/// let (near, far) = mem::pair(1000);
/// let mut here = EncryptedStream::new(near, &here.take_record_keys().unwrap());
/// let mut there = EncryptedStream::new(far, &there.take_record_keys().unwrap());
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
    writer: RecordWriter,
    /// Bytes of the caller in the record that is leaving.
    leaving: usize,
    reader: RecordReader,
    /// This end has ended its direction.
    finished: bool,
    /// Bytes arrived that the peer has not sent.
    altered: bool,
    /// The process that made the stream. A forked child must not use it.
    process: u32,
}

impl<S: Stream> EncryptedStream<S> {
    /// Encrypts the bytes over `below`, with the keys that the handshake of this connection gave.
    /// Use keys for one stream only.
    pub fn new(below: S, keys: &RecordKeys) -> Self {
        Self::with_records_per_key(below, keys, RECORDS_PER_KEY)
    }

    /// Encrypts as [`new`](Self::new) does, and changes the keys after this number of records. Both
    /// ends must give the same number.
    pub fn with_records_per_key(below: S, keys: &RecordKeys, records_per_key: u64) -> Self {
        Self {
            below,
            writer: RecordWriter::new(keys.suite, &keys.sending, records_per_key),
            leaving: 0,
            reader: RecordReader::new(keys.suite, &keys.receiving, records_per_key),
            finished: false,
            altered: false,
            process: std::process::id(),
        }
    }

    /// Returns the stream below.
    pub fn below(&self) -> &S {
        &self.below
    }

    /// Returns the number of sealed bytes that the stream below has not taken.
    pub fn unsent(&self) -> usize {
        self.writer.unsent().len()
    }

    /// Sends sealed bytes. Returns true once the stream below has taken all of it.
    fn flush(&mut self) -> Result<bool> {
        while !self.writer.unsent().is_empty() {
            match below_send(&mut self.below, self.writer.unsent())? {
                0 => return Ok(false),
                taken => self.writer.sent(taken),
            }
        }
        Ok(true)
    }

    /// Sends the rest of a goodbye, and ends the direction below.
    fn flush_goodbye(&mut self) {
        // A link that is lost needs no goodbye. The next receive reports the loss.
        if !self.writer.unsent().is_empty() && self.flush().unwrap_or(true) {
            self.below.finish();
        }
    }

    /// Receives until there are bytes to take. Returns false if none are here yet.
    fn await_record(&mut self) -> Result<bool> {
        if self.altered {
            return Err(Fault::Altered);
        }
        loop {
            match self.reader.open() {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(fault) => {
                    self.altered = matches!(fault, Fault::Altered);
                    return Err(fault);
                }
            }
            match below_receive(&mut self.below, self.reader.room()) {
                Ok(0) => return Ok(false),
                Ok(received) => self.reader.received(received),
                // A goodbye would have arrived before this end.
                Err(Fault::Closed) => return Err(Fault::Cut),
                Err(fault) => return Err(fault),
            }
        }
    }
}

/// Sends plain bytes, without a head.
fn below_send(below: &mut impl Stream, bytes: &[u8]) -> Result<usize> {
    below.send(&[0; HEAD], View::of(bytes), HEAD)
}

/// Receives plain bytes, without a head.
fn below_receive(below: &mut impl Stream, into: &mut [u8]) -> Result<usize> {
    below.receive(&mut [0; HEAD], ViewMut::of(into), HEAD)
}

impl<S: Stream> Stream for EncryptedStream<S> {
    fn send(&mut self, head: &[u8; HEAD], body: View<'_>, skip: usize) -> Result<usize> {
        let parts = unsent(head, body, skip);
        if self.finished {
            return Err(Fault::Closed);
        }
        if self.leaving == 0 {
            self.leaving = self.writer.seal(parts);
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
        if self.await_record()? { Ok(self.reader.take(parts)) } else { Ok(0) }
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
        self.writer.seal_goodbye();
        self.flush_goodbye();
    }
}

impl<S: Stream> Drop for EncryptedStream<S> {
    fn drop(&mut self) {
        self.finish();
    }
}
