//! The stream between two ranks, over any transport.

use maypole_kernels::{View, ViewMut};
use maypole_transports::ib::VerbsStream;
use maypole_transports::poll::Interest;
use maypole_transports::{EncryptedStream, Fault, HEAD, Stream, Tcp};
use std::os::fd::BorrowedFd;

/// A stream of any kind. An enum rather than a trait object, so that short messages cost no
/// indirect call.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyStream {
    /// Over TCP.
    Tcp(Tcp),
    /// Between threads of one process.
    Mem(maypole_transports::mem::Mem),
    /// Through memory that two processes share.
    Pipe(maypole_transports::Pipe),
    /// Over TCP, encrypted. In a box, because its state is larger than that of all others.
    Encrypted(Box<EncryptedStream<Tcp>>),
    /// Over InfiniBand or RoCE.
    Verbs(Box<VerbsStream>),
    /// Over InfiniBand or RoCE, encrypted.
    EncryptedVerbs(Box<EncryptedStream<VerbsStream>>),
    /// Over a simulated link, which a seed rules.
    Simulated(maypole_transports::SimulatedStream),
}

impl AnyStream {
    /// Bytes that were sent and may be lost if this end is closed now. Zero for streams in memory,
    /// which outlives this end, and over verbs, where closing waits for what was sent.
    pub fn unsent(&self) -> usize {
        match self {
            Self::Tcp(stream) => stream.unsent(),
            Self::Mem(_) | Self::Pipe(_) | Self::Verbs(_) | Self::Simulated(_) => 0,
            Self::Encrypted(stream) => stream.below().unsent() + stream.unsent(),
            Self::EncryptedVerbs(stream) => stream.unsent(),
        }
    }

    /// True if the stream leads to another process over a connection.
    pub(super) fn is_connection(&self) -> bool {
        !matches!(self, Self::Mem(_) | Self::Pipe(_) | Self::Simulated(_))
    }
}

impl Stream for AnyStream {
    fn send(&mut self, head: &[u8; HEAD], body: View<'_>, skip: usize) -> Result<usize, Fault> {
        match self {
            Self::Tcp(stream) => stream.send(head, body, skip),
            Self::Mem(stream) => stream.send(head, body, skip),
            Self::Pipe(stream) => stream.send(head, body, skip),
            Self::Encrypted(stream) => stream.send(head, body, skip),
            Self::Verbs(stream) => stream.send(head, body, skip),
            Self::EncryptedVerbs(stream) => stream.send(head, body, skip),
            Self::Simulated(stream) => stream.send(head, body, skip),
        }
    }

    fn receive(
        &mut self,
        head: &mut [u8; HEAD],
        body: ViewMut<'_>,
        skip: usize,
    ) -> Result<usize, Fault> {
        match self {
            Self::Tcp(stream) => stream.receive(head, body, skip),
            Self::Mem(stream) => stream.receive(head, body, skip),
            Self::Pipe(stream) => stream.receive(head, body, skip),
            Self::Encrypted(stream) => stream.receive(head, body, skip),
            Self::Verbs(stream) => stream.receive(head, body, skip),
            Self::EncryptedVerbs(stream) => stream.receive(head, body, skip),
            Self::Simulated(stream) => stream.receive(head, body, skip),
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Tcp(stream) => stream.descriptor(),
            Self::Mem(stream) => stream.descriptor(),
            Self::Pipe(stream) => stream.descriptor(),
            Self::Encrypted(stream) => stream.descriptor(),
            Self::Verbs(stream) => stream.descriptor(),
            Self::EncryptedVerbs(stream) => stream.descriptor(),
            Self::Simulated(stream) => stream.descriptor(),
        }
    }

    fn interest(&self, reads: bool, writes: bool) -> Option<(BorrowedFd<'_>, Interest)> {
        match self {
            Self::Verbs(stream) => stream.interest(reads, writes),
            Self::EncryptedVerbs(stream) => stream.interest(reads, writes),
            other => Some((other.descriptor()?, Interest::new(reads, writes)?)),
        }
    }

    /// Only an adapter has to be asked for an event.
    fn prepare_to_sleep(&mut self) -> bool {
        match self {
            Self::Verbs(stream) => stream.prepare_to_sleep(),
            Self::EncryptedVerbs(stream) => stream.prepare_to_sleep(),
            _ => true,
        }
    }

    /// Only streams by verbs wait when they are closed.
    fn abandon(&mut self) {
        match self {
            Self::Verbs(stream) => stream.abandon(),
            Self::EncryptedVerbs(stream) => stream.abandon(),
            _ => {}
        }
    }

    fn finish(&mut self) {
        match self {
            Self::Tcp(stream) => stream.finish(),
            Self::Mem(stream) => stream.finish(),
            Self::Pipe(stream) => stream.finish(),
            Self::Encrypted(stream) => stream.finish(),
            Self::Verbs(stream) => stream.finish(),
            Self::EncryptedVerbs(stream) => stream.finish(),
            Self::Simulated(stream) => stream.finish(),
        }
    }
}
