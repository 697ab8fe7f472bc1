//! The streams between ranks that are threads of one process.

use crate::execute::AnyStream;
use crate::topology::StreamLinks;
use crate::topology::transport::RefusalReason;
use maypole_transports::mem;
use std::fmt::Debug;

/// Why no adapter joins threads of one process.
pub(super) const ONE_PROCESS: &str = "the ranks are threads of one process";

/// The transport of streams between threads, as each pair of ranks reports it.
pub(crate) fn between_threads() -> StreamLinks {
    StreamLinks::Tcp(RefusalReason::Other(ONE_PROCESS.to_owned()))
}

/// Makes the streams between ranks that are threads.
pub trait ThreadLinks: Debug + Send + Sync {
    /// Joins two ranks of the first world: the end of `near`, and the end of `far`.
    fn pair(&self, near: usize, far: usize) -> (AnyStream, AnyStream);
}

/// Streams in memory, with buffers of this many bytes in each direction.
#[derive(Debug)]
pub(crate) struct MemoryLinks(pub(crate) usize);

impl ThreadLinks for MemoryLinks {
    fn pair(&self, _: usize, _: usize) -> (AnyStream, AnyStream) {
        let (near, far) = mem::pair(self.0);
        (AnyStream::Mem(near), AnyStream::Mem(far))
    }
}
