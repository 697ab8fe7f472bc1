//! The transport between each pair of ranks, and why no better one is used.

use crate::schedule::hosts::{Boards, Hosts};
use crate::topology::StreamLinks;
use crate::topology::transport::{self, RefusalReason, TransportKind, TransportOffer};
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
    let mut kinds: Vec<PairGroup> = Vec::new();
    // The transport between two ranks depends only on whether they share a host and a board.
    let mut alike = [[None; 2]; 2];
    for a in 0..boards.world() {
        for b in a + 1..boards.world() {
            let here = usize::from(hosts.of(a) == hosts.of(b));
            let known = &mut alike[here][usize::from(boards.together(a, b))];
            if let Some(kind) = *known {
                let kind: &mut PairGroup = &mut kinds[kind];
                kind.pairs += 1;
                continue;
            }
            let joined = join([hosts.of(a), hosts.of(b)], boards.together(a, b), links);
            let same = |kind: &PairGroup| {
                (kind.transport, &kind.refused) == (joined.transport, &joined.refused)
            };
            let found = kinds.iter().position(same);
            *known = Some(found.unwrap_or(kinds.len()));
            match found {
                Some(kind) => kinds[kind].pairs += 1,
                None => kinds.push(PairGroup {
                    pairs: 1,
                    first: (a, b),
                    transport: joined.transport,
                    refused: joined.refused,
                }),
            }
        }
    }
    kinds
}

fn join(
    [here, there]: [usize; 2],
    share_a_board: bool,
    links: &StreamLinks,
) -> transport::TransportChoice {
    let mut mine = TransportOffer::new(here.to_string());
    let theirs = TransportOffer::new(there.to_string());
    if let Some(why) = links.verbs_refusal(here == there) {
        mine = mine.without(TransportKind::InfiniBand, why);
    }
    if here == there && !share_a_board {
        let why =
            "excluded by the job's settings, or more ranks are on the host than a board serves";
        mine = mine.without(TransportKind::SharedMemory, RefusalReason::Other(why.to_owned()));
    }
    transport::choose(&mine, &theirs).expect("TCP joins any two ranks")
}

impl fmt::Display for PairGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pairs, first: (a, b), transport, refused } = self;
        write!(f, "{pairs} pairs by {transport}, first {a}-{b}")?;
        refused.iter().try_for_each(|(better, why)| write!(f, "; {}: {why}", better.title()))
    }
}
