//! What options choose among.

use crate::perf::messages::MessageTest;
use clap::ValueEnum;
use maypole::schedule::collective::Collective;

impl<T: PartialEq> Selected<T> {
    /// True if this is the one choice `value`.
    pub(crate) fn is(&self, value: &T) -> bool {
        matches!(self, Self::One(one) if one == value)
    }
}

/// What is measured: collectives, or messages. Of messages, all are those of two ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Subject {
    Collectives(Selected<Collective>),
    Messages(Selected<MessageTest>),
}

/// The pairs of ranks between which messages are measured.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum PairSelection {
    Half,
    All,
}

/// One choice, or all that exist.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Selected<T> {
    All,
    One(T),
}

/// The transports to measure.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum TransportSelection {
    /// Shared memory; all ranks must be on one host.
    Shm,
    /// TCP between any two ranks, also on one host.
    Tcp,
    /// InfiniBand or RoCE between any two ranks, also on one host.
    Ib,
    /// Memory of GPUs: rank r is on GPU r, or shares one. Ranks that are threads (--threads) and share
    /// a GPU run at the same time; processes that share one take turns, which is slow.
    #[cfg(feature = "cuda")]
    Cuda,
    /// The library's default: shared memory within a host; between hosts InfiniBand or RoCE if all
    /// ranks have a port, else TCP.
    Auto,
    /// Every transport that joins these ranks, one after the other.
    All,
}
