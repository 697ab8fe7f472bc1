//! The transport between two ranks, and why no better one.
//!
//! From best to worst: CUDA peer access, shared memory, InfiniBand, TCP. Each rank offers its
//! usable transports. Every transport that is better than the chosen one is listed with the reason
//! why it is not used.

use std::collections::BTreeMap;
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
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The transport moves bytes between GPUs, and a rank's buffers are in the host's memory.
    HostMemory,
    /// The ranks are on different hosts.
    OtherHost,
    /// The driver does not let one GPU access the other's memory.
    NoPeerAccess {
        /// The driver's reason.
        why: String,
    },
    /// The ranks have not joined, so their machines are unknown.
    Undecided,
    /// The job's settings exclude the transport.
    Forbidden,
    /// Any other reason, as a sentence.
    Other(String),
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::HostMemory => out.write_str("the buffers are in host memory, not on GPUs"),
            Self::OtherHost => out.write_str("on another host"),
            Self::NoPeerAccess { why } => write!(out, "no access from GPU to GPU: {why}"),
            Self::Undecided => out.write_str("decided when the ranks join"),
            Self::Forbidden => out.write_str("excluded by the job's settings"),
            Self::Other(why) => out.write_str(why),
        }
    }
}

/// The transports that one rank can use. A transport without an entry in `refusals` is offered.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TransportOffer {
    /// The rank's host. Ranks with equal text are on one host.
    pub host: String,
    /// A unique name of the rank's GPU. `None` if its buffers are in the host's memory.
    pub gpu: Option<String>,
    /// The GPUs that this rank's GPU cannot access, by name, each with the driver's reason.
    pub denied_peers: BTreeMap<String, String>,
    /// The transports that this rank cannot use, each with the reason.
    pub refusals: BTreeMap<TransportKind, RefusalReason>,
}

impl TransportOffer {
    /// Makes the offer of a rank on `host` that can use every transport.
    pub fn new(host: impl Into<String>) -> Self {
        Self { host: host.into(), ..Self::default() }
    }

    /// Takes `transport` out of the offer, for the reason `why`.
    #[must_use]
    pub fn without(mut self, transport: TransportKind, why: RefusalReason) -> Self {
        self.refusals.insert(transport, why);
        self
    }
}

/// The transport that two ranks use, and why they use no better one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TransportChoice {
    /// The transport in use.
    pub transport: TransportKind,
    /// The better transports, best first, each with the reason why it is not used.
    pub refused: Vec<(TransportKind, RefusalReason)>,
}

/// Two ranks have no transport in common, or cannot use the required one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NoTransport {
    /// The transports that were tried, each with the reason why it cannot be used.
    pub refused: Vec<(TransportKind, RefusalReason)>,
}

/// `no cuda (on another host), no shm (on another host)`.
impl fmt::Display for NoTransport {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let refusals: Vec<String> =
            self.refused.iter().map(|(transport, why)| format!("no {transport} ({why})")).collect();
        out.write_str(&refusals.join(", "))
    }
}

impl std::error::Error for NoTransport {}

/// Chooses the best transport that both ranks can use.
///
/// ```
/// use maypole::topology::transport::{RefusalReason, TransportKind, TransportOffer, choose};
///
/// // Whether InfiniBand can be used is decided when the ranks join: all of them need a port.
/// let [here, there] = ["a", "b"].map(|host| {
///     TransportOffer::new(host).without(TransportKind::InfiniBand, RefusalReason::Undecided)
/// });
/// assert_eq!(choose(&here, &here).unwrap().transport, TransportKind::SharedMemory);
///
/// let choice = choose(&here, &there).unwrap();
/// assert_eq!(choice.transport, TransportKind::Tcp);
/// assert_eq!(choice.refused.len(), 3);
/// assert_eq!(choice.refused[1].1.to_string(), "on another host");
/// assert_eq!(choice.refused[2].1.to_string(), "decided when the ranks join");
/// ```
///
/// # Errors
/// [`NoTransport`] if every transport is refused, TCP too.
pub fn choose(a: &TransportOffer, b: &TransportOffer) -> Result<TransportChoice, NoTransport> {
    let mut refused = Vec::new();
    for transport in TransportKind::ALL {
        match refusal(transport, a, b) {
            None => return Ok(TransportChoice { transport, refused }),
            Some(reason) => refused.push((transport, reason)),
        }
    }
    Err(NoTransport { refused })
}

/// The first reason against a transport: first a rank's missing capability, then the places of the
/// two ranks.
fn refusal(
    transport: TransportKind,
    a: &TransportOffer,
    b: &TransportOffer,
) -> Option<RefusalReason> {
    let lacking = [a, b].into_iter().find_map(|rank| rank.refusals.get(&transport).cloned());
    let different_hosts = || (a.host != b.host).then_some(RefusalReason::OtherHost);
    lacking.or_else(|| match transport {
        TransportKind::CudaPeer => different_hosts().or_else(|| denied_peer(a, b)),
        TransportKind::SharedMemory => different_hosts(),
        _ => None,
    })
}

fn denied_peer(a: &TransportOffer, b: &TransportOffer) -> Option<RefusalReason> {
    let (Some(a_gpu), Some(b_gpu)) = (&a.gpu, &b.gpu) else {
        return Some(RefusalReason::HostMemory);
    };
    let why = a.denied_peers.get(b_gpu).or_else(|| b.denied_peers.get(a_gpu))?;
    Some(RefusalReason::NoPeerAccess { why: why.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(host: &str, name: &str) -> TransportOffer {
        TransportOffer { gpu: Some(name.to_owned()), ..TransportOffer::new(host) }
    }

    #[test]
    fn the_best_transport_that_both_offer_is_chosen() {
        assert_eq!(
            choose(&gpu("a", "0"), &gpu("a", "1")),
            Ok(TransportChoice { transport: TransportKind::CudaPeer, refused: vec![] })
        );
        let two_hosts = choose(&gpu("a", "0"), &gpu("b", "0")).unwrap();
        assert_eq!(two_hosts.transport, TransportKind::InfiniBand);
        assert_eq!(
            two_hosts.refused,
            [
                (TransportKind::CudaPeer, RefusalReason::OtherHost),
                (TransportKind::SharedMemory, RefusalReason::OtherHost)
            ]
        );
        let host_memory = choose(&TransportOffer::new("a"), &gpu("a", "0")).unwrap();
        assert_eq!(host_memory.transport, TransportKind::SharedMemory);
        assert_eq!(host_memory.refused.len(), 1);
    }

    #[test]
    fn both_ends_choose_the_same() {
        let denied_peers = [("1".to_owned(), "ACS".to_owned())].into();
        let isolated_gpu = TransportOffer { denied_peers, ..gpu("a", "0") };
        let refusals = [(TransportKind::SharedMemory, RefusalReason::Forbidden)].into();
        let no_memory = TransportOffer { refusals, ..gpu("a", "1") };
        let choice = choose(&isolated_gpu, &no_memory).unwrap();
        assert_eq!(Ok(&choice), choose(&no_memory, &isolated_gpu).as_ref());
        assert_eq!(choice.transport, TransportKind::InfiniBand);
        let reasons: Vec<String> =
            choice.refused.iter().map(|(_, reason)| reason.to_string()).collect();
        assert_eq!(reasons, ["no access from GPU to GPU: ACS", "excluded by the job's settings"]);
    }

    #[test]
    fn ranks_without_gpus_say_that_their_buffers_are_in_host_memory() {
        let host = TransportOffer::new("a");
        let refused = choose(&host, &gpu("a", "0")).unwrap().refused;
        assert_eq!(refused, [(TransportKind::CudaPeer, RefusalReason::HostMemory)]);
        assert_eq!(refused[0].1.to_string(), "the buffers are in host memory, not on GPUs");
    }
}
