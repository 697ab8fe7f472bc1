//! The transport of two ranks of a machine that has not joined, by what each of them can use.

use maypole::topology::transport::{RefusalReason, TransportChoice, TransportKind};
use std::collections::BTreeMap;

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

/// Chooses the best transport that both ranks can use.
///
/// ```
/// use maypole::topology::transport::{RefusalReason, TransportKind};
/// use maypole_cluster::build::offers::{TransportOffer, choose};
///
/// // Whether InfiniBand can be used is decided when the ranks join: all of them need a port.
/// let [here, there] = ["a", "b"].map(|host| {
///     TransportOffer::new(host).without(TransportKind::InfiniBand, RefusalReason::Undecided)
/// });
/// assert_eq!(choose(&here, &here).transport, TransportKind::SharedMemory);
///
/// let choice = choose(&here, &there);
/// assert_eq!(choice.transport, TransportKind::Tcp);
/// assert_eq!(choice.refused.len(), 3);
/// assert_eq!(choice.refused[1].1.to_string(), "on another host");
/// assert_eq!(choice.refused[2].1.to_string(), "decided when the ranks join");
/// ```
pub fn choose(a: &TransportOffer, b: &TransportOffer) -> TransportChoice {
    TransportChoice::best(|transport| refusal(transport, a, b))
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
            TransportChoice { transport: TransportKind::CudaPeer, refused: vec![] }
        );
        let two_hosts = choose(&gpu("a", "0"), &gpu("b", "0"));
        assert_eq!(two_hosts.transport, TransportKind::InfiniBand);
        assert_eq!(
            two_hosts.refused,
            [
                (TransportKind::CudaPeer, RefusalReason::OtherHost),
                (TransportKind::SharedMemory, RefusalReason::OtherHost)
            ]
        );
        let host_memory = choose(&TransportOffer::new("a"), &gpu("a", "0"));
        assert_eq!(host_memory.transport, TransportKind::SharedMemory);
        assert_eq!(host_memory.refused.len(), 1);
    }

    #[test]
    fn both_ends_choose_the_same() {
        let denied_peers = [("1".to_owned(), "ACS".to_owned())].into();
        let isolated_gpu = TransportOffer { denied_peers, ..gpu("a", "0") };
        let refusals = [(TransportKind::SharedMemory, RefusalReason::Forbidden)].into();
        let no_memory = TransportOffer { refusals, ..gpu("a", "1") };
        let choice = choose(&isolated_gpu, &no_memory);
        assert_eq!(choice, choose(&no_memory, &isolated_gpu));
        assert_eq!(choice.transport, TransportKind::InfiniBand);
        let reasons: Vec<String> =
            choice.refused.iter().map(|(_, reason)| reason.to_string()).collect();
        assert_eq!(reasons, ["no access from GPU to GPU: ACS", "excluded by the job's settings"]);
    }

    #[test]
    fn ranks_without_gpus_say_that_their_buffers_are_in_host_memory() {
        let host = TransportOffer::new("a");
        let refused = choose(&host, &gpu("a", "0")).refused;
        assert_eq!(refused, [(TransportKind::CudaPeer, RefusalReason::HostMemory)]);
        assert_eq!(refused[0].1.to_string(), "the buffers are in host memory, not on GPUs");
    }
}
