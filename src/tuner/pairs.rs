//! The transport between each pair of ranks, and why no better one is used.

use crate::schedule::hosts::{Boards, Hosts};
use crate::topology::StreamLinks;
use crate::topology::transport::{RefusalReason, TransportChoice, TransportKind};
use std::fmt;

/// Pairs of ranks that are joined by the same transport for the same reasons.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct PairGroup {
    /// How many pairs.
    pub pairs: usize,
    /// The first of them.
    pub first: (usize, usize),
    /// The transport between them.
    pub transport: TransportKind,
    /// Better transports, the best first, and why each is not used.
    pub refused: Vec<(TransportKind, RefusalReason)>,
}

/// Counts pairs of ranks by the transport that joins them. Equal arguments give equal results on
/// all ranks.
///
/// ```
/// use maypole::schedule::hosts::{Boards, Hosts};
/// use maypole::topology::{StreamLinks, transport::TransportKind};
/// let (boards, hosts) = (Boards::new(&[0, 0, 1]), Hosts::new(&[0, 0, 0]));
/// let edges = maypole::tuner::pair_groups(&boards, &hosts, &StreamLinks::undecided());
/// assert_eq!((edges[0].pairs, edges[0].transport), (1, TransportKind::SharedMemory));
/// assert_eq!((edges[1].pairs, edges[1].transport), (2, TransportKind::Tcp));
/// ```
///
/// # Panics
/// If `boards` and `hosts` do not have equally many ranks.
pub fn pair_groups(boards: &Boards, hosts: &Hosts, links: &StreamLinks) -> Vec<PairGroup> {
    assert_eq!(boards.world(), hosts.world(), "one board and one host for each rank");
    // The kinds differ in their reasons, so no two have one group.
    let mut kinds: Vec<((bool, bool), PairGroup)> = Vec::new();
    for a in 0..boards.world() {
        for b in a + 1..boards.world() {
            let key = (hosts.together(a, b), boards.together(a, b));
            if let Some((_, group)) = kinds.iter_mut().find(|(kind, _)| *kind == key) {
                group.pairs += 1;
                continue;
            }
            let TransportChoice { transport, refused } = join(key.0, key.1, links);
            kinds.push((key, PairGroup { pairs: 1, first: (a, b), transport, refused }));
        }
    }
    kinds.into_iter().map(|(_, group)| group).collect()
}

fn join(one_host: bool, share_a_board: bool, links: &StreamLinks) -> TransportChoice {
    TransportChoice::best(|kind| match kind {
        TransportKind::CudaPeer if one_host => Some(RefusalReason::HostMemory),
        TransportKind::SharedMemory if share_a_board => None,
        TransportKind::SharedMemory if one_host => Some(RefusalReason::Other(
            "excluded by the job's settings, or more ranks are on the host than a board serves"
                .to_owned(),
        )),
        TransportKind::CudaPeer | TransportKind::SharedMemory => Some(RefusalReason::OtherHost),
        TransportKind::InfiniBand => links.verbs_refusal(one_host),
        TransportKind::Tcp => None,
    })
}

impl fmt::Display for PairGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pairs, first: (a, b), transport, refused } = self;
        write!(f, "{pairs} pairs by {transport}, first {a}-{b}")?;
        refused.iter().try_for_each(|(better, why)| write!(f, "; {}: {why}", better.title()))
    }
}
