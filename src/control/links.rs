//! The streams between ranks that are threads of one process.

use crate::execute::AnyStream;
use crate::topology::StreamLinks;
use crate::topology::transport::RefusalReason;
use maypole_transports::mem;
use maypole_transports::simulated::{self, SimulatedNetwork};
use std::sync::Arc;

/// Why no adapter joins threads of one process.
pub(super) const ONE_PROCESS: &str = "the ranks are threads of one process";

/// What carries streams between threads, as all pairs of ranks describe it.
pub(crate) fn between_threads() -> StreamLinks {
    StreamLinks::Tcp(RefusalReason::Other(ONE_PROCESS.to_owned()))
}

/// How streams between threads are made.
#[derive(Clone, Debug)]
pub(crate) enum ThreadLinks {
    /// In memory. A stream holds this many bytes in each direction.
    Memory(usize),
    /// By a simulated network, which gives the ranks of the world these numbers.
    Simulated(Arc<SimulatedNetwork>, Vec<usize>),
}

impl ThreadLinks {
    /// Joins two ranks of the world: the end of `near`, and the end of `far`.
    pub(super) fn pair(&self, near: usize, far: usize) -> (AnyStream, AnyStream) {
        match self {
            Self::Memory(capacity) => {
                let (here, there) = mem::pair(*capacity);
                (AnyStream::Mem(here), AnyStream::Mem(there))
            }
            Self::Simulated(network, ranks) => {
                let (here, there) = network.link(ranks[near], ranks[far]);
                (AnyStream::Simulated(here), AnyStream::Simulated(there))
            }
        }
    }

    /// The links of a new world of the ranks `members`.
    pub(super) fn among(&self, members: &[usize]) -> Self {
        match self {
            Self::Memory(capacity) => Self::Memory(*capacity),
            Self::Simulated(network, ranks) => {
                let ranks = members.iter().map(|rank| ranks[*rank]).collect();
                Self::Simulated(Arc::clone(network), ranks)
            }
        }
    }
}

/// True if the rank of the calling thread was dropped by a simulation. Its peers see nothing of
/// what it does from then on.
pub(super) fn is_dropped() -> bool {
    simulated::current().is_some_and(|turns| turns.is_dropped())
}
