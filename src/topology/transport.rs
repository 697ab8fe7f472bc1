//! The transport between two ranks, and why no better one; the transport of a group's streams.
//!
//! From best to worst: CUDA peer access, shared memory, InfiniBand, TCP. Every transport that is
//! better than the chosen one is listed with the reason why it is not used.

use std::fmt;

/// A transport between two ranks. The better transport is the lesser value.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum TransportKind {
    /// One GPU reads and writes the memory of another GPU of the same host.
    CudaPeer,
    /// Memory of the host that both ranks have mapped.
    SharedMemory,
    /// InfiniBand or RoCE, by verbs.
    InfiniBand,
    /// TCP sockets.
    Tcp,
}

impl TransportKind {
    /// Every transport, best first.
    pub const ALL: [Self; 4] = [Self::CudaPeer, Self::SharedMemory, Self::InfiniBand, Self::Tcp];

    /// The short name, for tables and JSON: `cuda`, `shm`, `ib` or `tcp`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CudaPeer => "cuda",
            Self::SharedMemory => "shm",
            Self::InfiniBand => "ib",
            Self::Tcp => "tcp",
        }
    }

    /// The full name, for sentences: `CUDA`, `shared memory`, `InfiniBand` or `TCP`.
    pub const fn title(self) -> &'static str {
        match self {
            Self::CudaPeer => "CUDA",
            Self::SharedMemory => "shared memory",
            Self::InfiniBand => "InfiniBand",
            Self::Tcp => "TCP",
        }
    }
}

impl fmt::Display for TransportKind {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.pad(self.name())
    }
}

/// Why two ranks do not use a transport.
#[derive(Clone, Debug, Eq, Hash, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The transport moves bytes between GPUs, and a rank's buffers are in the host's memory.
    #[error("the buffers are in host memory, not on GPUs")]
    HostMemory,
    /// The ranks are on different hosts.
    #[error("on another host")]
    OtherHost,
    /// The driver does not let one GPU access the other's memory.
    #[error("no access from GPU to GPU: {why}")]
    NoPeerAccess {
        /// The driver's reason.
        why: String,
    },
    /// The ranks have not joined, so their machines are unknown.
    #[error("decided when the ranks join")]
    Undecided,
    /// The job's settings exclude the transport.
    #[error("excluded by the job's settings")]
    Forbidden,
    /// Any other reason, as a sentence.
    #[error("{0}")]
    Other(String),
}

/// The transport that two ranks use, and why they use no better one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TransportChoice {
    /// The transport in use.
    pub transport: TransportKind,
    /// The better transports, best first, each with the reason why it is not used.
    pub refused: Vec<(TransportKind, RefusalReason)>,
}

impl TransportChoice {
    /// The best transport against which `refusal` has no reason: TCP, if it has one against every
    /// other.
    ///
    /// ```
    /// use maypole::topology::transport::{RefusalReason, TransportChoice, TransportKind};
    /// let undecided = |kind| (kind != TransportKind::Tcp).then_some(RefusalReason::Undecided);
    /// let choice = TransportChoice::best(undecided);
    /// assert_eq!((choice.transport, choice.refused.len()), (TransportKind::Tcp, 3));
    /// ```
    pub fn best(refusal: impl Fn(TransportKind) -> Option<RefusalReason>) -> Self {
        let refused = TransportKind::ALL.into_iter().map_while(|kind| Some((kind, refusal(kind)?)));
        let refused: Vec<_> = refused.take(TransportKind::ALL.len() - 1).collect();
        Self { transport: TransportKind::ALL[refused.len()], refused }
    }
}

/// The transport of the streams of a group. Equal on all of its ranks.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum StreamLinks {
    /// TCP, because verbs cannot be used for this reason.
    Tcp(RefusalReason),
    /// InfiniBand or RoCE between hosts, TCP within one.
    VerbsBetweenHosts,
    /// InfiniBand or RoCE.
    Verbs,
}

impl StreamLinks {
    /// The links of ranks that have not joined, whose machines are unknown.
    pub fn undecided() -> Self {
        Self::Tcp(RefusalReason::Undecided)
    }

    /// Why the stream between two ranks, on one host or not, does not use verbs; `None` if it does.
    pub fn verbs_refusal(&self, one_host: bool) -> Option<RefusalReason> {
        match self {
            Self::Tcp(why) => Some(why.clone()),
            _ if self.uses_verbs(one_host) => None,
            _ => Some(RefusalReason::Other(Self::BETWEEN_HOSTS.to_owned())),
        }
    }

    /// True if the stream between two ranks, on one host or not, uses verbs.
    pub fn uses_verbs(&self, one_host: bool) -> bool {
        match self {
            Self::Tcp(_) => false,
            Self::VerbsBetweenHosts => !one_host,
            Self::Verbs => true,
        }
    }

    /// Why ranks of one host do not use verbs.
    pub(crate) const BETWEEN_HOSTS: &str = "used between hosts only, unless the job asks for ib";
}
