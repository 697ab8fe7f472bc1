//! The stream between two ranks, over any transport.

use maypole_kernels::{View, ViewMut};
use maypole_transports::{Fault, HEAD, Stream};
use std::os::fd::BorrowedFd;

/// A stream of any kind. An enum rather than a trait object, so that short messages cost no
/// indirect call.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyStream {
    /// Over TCP.
    Tcp(maypole_transports::tcp::Tcp),
    /// Between threads of one process.
    Mem(maypole_transports::mem::Mem),
    /// Through memory that two processes share.
    Pipe(maypole_transports::Pipe),
}

impl AnyStream {
    /// Bytes that were sent and may be lost if this end is closed now. Zero for streams in memory,
    /// which outlives this end.
    pub fn unsent(&self) -> usize {
        match self {
            Self::Tcp(stream) => stream.unsent(),
            Self::Mem(_) | Self::Pipe(_) => 0,
        }
    }
}

impl Stream for AnyStream {
    fn send(&mut self, head: &[u8; HEAD], body: View<'_>, skip: usize) -> Result<usize, Fault> {
        match self {
            Self::Tcp(stream) => stream.send(head, body, skip),
            Self::Mem(stream) => stream.send(head, body, skip),
            Self::Pipe(stream) => stream.send(head, body, skip),
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
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Tcp(stream) => stream.descriptor(),
            Self::Mem(stream) => stream.descriptor(),
            Self::Pipe(stream) => stream.descriptor(),
        }
    }

    fn finish(&mut self) {
        match self {
            Self::Tcp(stream) => stream.finish(),
            Self::Mem(stream) => stream.finish(),
            Self::Pipe(stream) => stream.finish(),
        }
    }
}
