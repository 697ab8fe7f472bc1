//! The stream between two ranks, over any transport.

use crate::ib::VerbsStream;
use crate::poll::PollFd;
use crate::stream::direct::DirectWrites;
use crate::stream::{HEAD, Result, Stream};
use crate::{EncryptedStream, Mem, Tcp};
use maypole_kernels::{View, ViewMut};
use std::fmt::Debug;

/// A stream of any kind. An enum rather than a trait object, so that short messages cost no
/// indirect call.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyStream {
    /// Over TCP.
    Tcp(Tcp),
    /// Between threads of one process.
    Mem(Mem),
    /// Over InfiniBand or RoCE.
    Verbs(Box<VerbsStream>),
    /// Over one of the others, encrypted. In a box, because its state is larger than that of all others.
    Encrypted(Box<EncryptedStream<AnyStream>>),
    /// Over a link of a world for tests.
    Test(Box<dyn TestStream>),
}

/// A stream of a world for tests.
pub trait TestStream: Stream + Debug + Send {}
impl<S: Stream + Debug + Send> TestStream for S {}

/// Evaluates an expression on the stream of each kind.
macro_rules! each {
    ($any:expr, $stream:ident => $value:expr) => {
        match $any {
            Self::Tcp($stream) => $value,
            Self::Mem($stream) => $value,
            Self::Verbs($stream) => $value,
            Self::Encrypted($stream) => $value,
            Self::Test($stream) => $value,
        }
    };
}

impl AnyStream {
    /// Returns how many bytes were sent and may be lost if this end is closed now. Zero for streams
    /// in memory, which outlives this end, and over verbs, where closing flushes sent bytes.
    pub fn unsent(&self) -> usize {
        match self {
            Self::Tcp(stream) => stream.unsent(),
            Self::Mem(_) | Self::Verbs(_) | Self::Test(_) => 0,
            Self::Encrypted(stream) => stream.below().unsent() + stream.unsent(),
        }
    }

    /// Returns true if the stream leads to another process over a connection.
    pub fn is_connection(&self) -> bool {
        !matches!(self, Self::Mem(_) | Self::Test(_))
    }
}

impl Stream for AnyStream {
    #[inline]
    fn send(&mut self, head: &[u8; HEAD], body: View<'_>, skip: usize) -> Result<usize> {
        each!(self, stream => stream.send(head, body, skip))
    }

    #[inline]
    fn receive(&mut self, head: &mut [u8; HEAD], body: ViewMut<'_>, skip: usize) -> Result<usize> {
        each!(self, stream => stream.receive(head, body, skip))
    }

    fn prepare_to_sleep(&mut self) -> bool {
        each!(self, stream => stream.prepare_to_sleep())
    }

    fn interest(&self, reads: bool, writes: bool) -> Option<PollFd<'_>> {
        each!(self, stream => stream.interest(reads, writes))
    }

    fn direct(&mut self) -> Option<&mut dyn DirectWrites> {
        each!(self, stream => stream.direct())
    }

    fn abandon(&mut self) {
        each!(self, stream => stream.abandon());
    }

    fn finish(&mut self) {
        each!(self, stream => stream.finish());
    }
}
