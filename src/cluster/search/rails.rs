//! The network card of each rank, and the path from any rank to any other.
//!
//! Every rank has one card: the nearest. Among equally near cards, it is the card that the fewest
//! lower ranks have. The n-th cards of all hosts are a *rail*. Traffic between hosts leaves by one
//! card and arrives by a card that the network joins to it. On isolated rails, these two cards are
//! on one rail.
//!
//! A card may be far from a rank, but near to a GPU that the rank has direct links to. Then the
//! path to the card passes through that GPU. NCCL calls this PXN.

use maypole::topology::model::class::PathClass;
use maypole::topology::model::graph::Paths;
use maypole::topology::model::graph::{Link, LinkKind, NodeKind, Path, Topology};
use std::cell::OnceCell;
use std::collections::HashMap;

/// The paths between ranks. Rank `r` runs on the `r`-th of [`Topology::devices`].
pub struct RoutingTable<'a> {
    topology: &'a Topology,
    /// By rank: its device, and the paths from it that stay on its host.
    ranks: Vec<(usize, Paths<'a>)>,
    /// The network cards, each with its paths within the host.
    cards: Vec<NicPaths<'a>>,
    /// By host: its ranks, and the indices of its cards in `cards`.
    of_host: HashMap<usize, (Vec<usize>, Vec<usize>)>,
    /// By rank: the index of its card in `cards`.
    own: Vec<Option<usize>>,
}

struct NicPaths<'a> {
    node: usize,
    host: usize,
    within: Paths<'a>,
    /// The cables that arrive at it. None if it is not joined to a network.
    arriving: Vec<usize>,
    /// The paths from it to switches of the network, once one is asked for.
    cables: OnceCell<Paths<'a>>,
}

/// No path joins two ranks.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "no path joins {from} and {to}: traffic that leaves by one rail arrives by another only if \
     the network joins the rails"
)]
pub struct Unreachable {
    /// The label of the sender: a rank or a network card.
    pub from: String,
    /// The label of the receiver.
    pub to: String,
}

const fn is_cable(link: &Link) -> bool {
    matches!(link.kind, LinkKind::Network)
}

impl<'a> RoutingTable<'a> {
    /// Assigns a network card to every rank.
    pub fn new(topology: &'a Topology) -> Self {
        let within = |node| topology.paths_over(node, |link| !is_cable(link));
        let ranks: Vec<_> =
            topology.devices().into_iter().map(|device| (device, within(device))).collect();
        let host = |node: usize| topology.nodes()[node].host.unwrap_or(0);
        let mut arriving: HashMap<usize, Vec<usize>> = HashMap::new();
        let cables = topology.links().iter().enumerate().filter(|(_, link)| is_cable(link));
        cables.for_each(|(number, link)| arriving.entry(link.to).or_default().push(number));
        let card = |node| NicPaths {
            node,
            host: host(node),
            within: within(node),
            arriving: arriving.remove(&node).unwrap_or_default(),
            cables: OnceCell::new(),
        };
        let cards: Vec<_> = topology.nodes_of(NodeKind::Nic).into_iter().map(card).collect();
        let mut of_host: HashMap<usize, (Vec<usize>, Vec<usize>)> = HashMap::new();
        for (rank, (device, _)) in ranks.iter().enumerate() {
            of_host.entry(host(*device)).or_default().0.push(rank);
        }
        for (number, card) in cards.iter().enumerate() {
            of_host.entry(card.host).or_default().1.push(number);
        }
        let mut routes = Self { topology, ranks, cards, of_host, own: Vec::new() };
        let mut users = vec![0; routes.cards.len()];
        for rank in 0..routes.ranks.len() {
            // `min_by_key` takes the first of several minima.
            let near = routes.nearest(rank).into_iter().min_by_key(|&card| users[card]);
            near.into_iter().for_each(|card| users[card] += 1);
            routes.own.push(near);
        }
        routes
    }

    /// Returns the number of ranks.
    pub fn world(&self) -> usize {
        self.ranks.len()
    }

    /// Returns the host of each rank.
    pub fn hosts(&self) -> Vec<usize> {
        (0..self.world()).map(|rank| self.host(rank)).collect()
    }

    fn host(&self, rank: usize) -> usize {
        self.topology.nodes()[self.ranks[rank].0].host.unwrap_or(0)
    }

    /// Returns the numbers of the nearest cards on the rank's host. If any card is joined to a
    /// network, only such cards count.
    pub fn nearest(&self, rank: usize) -> Vec<usize> {
        let near = |card: &usize| {
            self.ranks[rank].1.to(self.cards[*card].node).map(|path| (path.class, path.bandwidth))
        };
        let here = self.of_host[&self.host(rank)].1.iter();
        let mut all: Vec<_> = here.filter_map(|card| Some((*card, near(card)?))).collect();
        let is_wired = |card: usize| !self.cards[card].arriving.is_empty();
        if all.iter().any(|(card, _)| is_wired(*card)) {
            all.retain(|(card, _)| is_wired(*card));
        }
        let order =
            |a: &(PathClass, f64), b: &(PathClass, f64)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1));
        let best = all.iter().map(|(_, near)| *near).max_by(order);
        all.into_iter().filter(|(_, near)| Some(*near) == best).map(|(card, _)| card).collect()
    }

    /// Returns the number of the rank's card, and its node.
    pub fn card(&self, rank: usize) -> Option<(usize, usize)> {
        self.own[rank].map(|card| (card, self.cards[card].node))
    }

    /// Returns the path from a rank to a card of its host: the nearest one, or the path through a
    /// GPU that the rank has direct links to and that is nearer to the card.
    pub fn out(&self, rank: usize, card: usize) -> Option<Path> {
        let straight = self.ranks[rank].1.to(self.cards[card].node)?;
        let through = |peer: usize| self.through(rank, peer, card);
        let mut peers = self.of_host[&self.host(rank)].0.iter().filter(|peer| **peer != rank);
        Some(if straight.class >= PathClass::Pxb {
            straight
        } else {
            peers.find_map(|peer| through(*peer)).unwrap_or(straight)
        })
    }

    /// The path over direct links to `peer` and from there to a card that is near to it.
    fn through(&self, rank: usize, peer: usize, card: usize) -> Option<Path> {
        let direct =
            self.ranks[rank].1.to(self.ranks[peer].0).filter(|path| path.class > PathClass::Pix)?;
        let last = self.ranks[peer]
            .1
            .to(self.cards[card].node)
            .filter(|path| path.class >= PathClass::Pxb)?;
        Some(self.topology.path_over([direct.links, last.links].concat()))
    }

    /// Returns the path from a card to a rank of its host.
    pub fn into(&self, card: usize, rank: usize) -> Option<Path> {
        self.cards[card].within.to(self.ranks[rank].0)
    }

    /// Returns the path over the network from one card to another.
    ///
    /// # Errors
    /// [`Unreachable`] if the network does not join them.
    pub fn cables(&self, from: usize, to: usize) -> Result<Path, Unreachable> {
        let label = |card: usize| self.topology.label(self.cards[card].node);
        let unreachable = || Unreachable { from: label(from), to: label(to) };
        if from == to {
            return Ok(self.topology.path_over(Vec::new()));
        }
        let nodes = self.topology.nodes();
        let is_between =
            |link: &Link| is_cable(link) && nodes[link.to].kind == NodeKind::NetworkSwitch;
        let start = self.cards[from].node;
        let switches =
            self.cards[from].cables.get_or_init(|| self.topology.paths_over(start, is_between));
        // All cables are alike: the nearest switch is the one after the fewest of them.
        let last = |&cable: &usize| {
            let before = self.topology.links()[cable].from;
            Some((switches.to(before)?.links, before, cable))
        };
        let arriving = self.cards[to].arriving.iter().filter_map(last);
        let nearest = arriving.min_by_key(|(links, before, cable)| (links.len(), *before, *cable));
        let (links, _, cable) = nearest.ok_or_else(unreachable)?;
        Ok(self.topology.path_over([links, vec![cable]].concat()))
    }

    /// Returns the path from one rank to another over these two cards.
    ///
    /// # Errors
    /// [`Unreachable`] if the cards are not joined: on different isolated rails, for example.
    pub fn crossing(
        &self,
        from: usize,
        cards: (usize, usize),
        to: usize,
    ) -> Result<Path, Unreachable> {
        let ends = || Unreachable { from: self.label(from), to: self.label(to) };
        let out = self.out(from, cards.0).ok_or_else(ends)?;
        let cables = self.cables(cards.0, cards.1)?;
        let into = self.into(cards.1, to).ok_or_else(ends)?;
        Ok(self.topology.path_over([out.links, cables.links, into.links].concat()))
    }

    /// Returns the default path from one rank to another. Within a host it is the nearest path.
    /// Between hosts it goes from card to card. If these are on isolated rails, it uses the rail of
    /// the receiver, or else the rail of the sender.
    ///
    /// # Errors
    /// [`Unreachable`] if no path joins them.
    pub fn path(&self, from: usize, to: usize) -> Result<Path, Unreachable> {
        let ends = || Unreachable { from: self.label(from), to: self.label(to) };
        if self.host(from) == self.host(to) {
            return self.ranks[from].1.to(self.ranks[to].0).ok_or_else(ends);
        }
        let out = self.own[from].ok_or_else(ends)?;
        let into = self.own[to].ok_or_else(ends)?;
        let of = |rank: usize| self.of_host[&self.host(rank)].1.iter().copied();
        let theirs = of(from).map(|card| (card, into));
        let ours = of(to).map(|card| (out, card));
        let mut pairs = [(out, into)].into_iter().chain(theirs).chain(ours);
        let joined = pairs.find(|&(out, into)| self.cables(out, into).is_ok());
        self.crossing(from, joined.ok_or_else(ends)?, to)
    }

    fn label(&self, rank: usize) -> String {
        self.topology.label(self.ranks[rank].0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::cluster::{Fabric, named};

    #[test]
    fn every_gpu_has_a_near_card_of_its_own() {
        for name in ["dgx-a100", "dgx-h100", "mi300x"] {
            let host = named(name, Fabric::Flat).unwrap();
            let routes = RoutingTable::new(&host);
            let cards: Vec<_> = (0..8).map(|rank| routes.card(rank).unwrap().0).collect();
            assert_eq!(cards, [0, 1, 2, 3, 4, 5, 6, 7], "{name}");
        }
    }

    #[test]
    fn a_slow_far_card_is_not_used() {
        let mut host = Topology::new();
        let numa = [0, 1].map(|nth| host.add(NodeKind::Numa, Some(0), format!("NUMA{nth}")));
        host.join(numa[0], numa[1], LinkKind::Sockets, 10.0);
        let bridges = numa.map(|numa| {
            let bridge = host.add(NodeKind::HostBridge, Some(0), "bridge");
            host.join(numa, bridge, LinkKind::Local, 24.0);
            bridge
        });
        let gpu = host.add(NodeKind::Gpu, Some(0), "GPU0");
        let far = host.add(NodeKind::Nic, Some(0), "NET0");
        let near = host.add(NodeKind::Nic, Some(0), "NET1");
        for (device, bridge) in [(gpu, bridges[1]), (far, bridges[0]), (near, bridges[1])] {
            host.join(device, bridge, LinkKind::Pci, 24.0);
        }
        assert_eq!(RoutingTable::new(&host).card(0), Some((1, near)));
    }

    #[test]
    fn a_far_card_is_reached_through_the_gpu_beside_it() {
        let host = named("dgx-h100", Fabric::Flat).unwrap();
        let path = RoutingTable::new(&host).out(0, 5).unwrap();
        let passed: Vec<_> = path
            .links
            .iter()
            .map(|&link| host.nodes()[host.links()[link].to].name.as_str())
            .collect();
        assert_eq!(passed, ["NVSwitch", "GPU5", "switch5", "NIC5"]);
        let host = named("cpu:2x2", Fabric::Flat).unwrap();
        assert_eq!(RoutingTable::new(&host).out(3, 0).unwrap().class, PathClass::Sys);
    }

    #[test]
    fn traffic_changes_the_rail_only_where_the_network_joins_the_rails() {
        let crossing = |fabric, cards| {
            let cluster = named("2xdgx-a100", fabric).unwrap();
            RoutingTable::new(&cluster).crossing(0, cards, 8).map(|path| path.bandwidth)
        };
        for fabric in [Fabric::Flat, Fabric::Rails, Fabric::IsolatedRails] {
            assert_eq!(crossing(fabric, (0, 8)), Ok(24.0));
        }
        assert!(crossing(Fabric::Flat, (0, 9)).is_ok() && crossing(Fabric::Rails, (0, 9)).is_ok());
        let refused = crossing(Fabric::IsolatedRails, (0, 9)).unwrap_err();
        assert_eq!((refused.from.as_str(), refused.to.as_str()), ("host0/NIC0", "host1/NIC1"));
    }

    #[test]
    fn every_rank_reaches_every_other_over_any_rails() {
        for fabric in [Fabric::Flat, Fabric::Rails, Fabric::IsolatedRails] {
            let cluster = named("2xdgx-h100", fabric).unwrap();
            let routes = RoutingTable::new(&cluster);
            for (from, to) in (0..16).flat_map(|from| (0..16).map(move |to| (from, to))) {
                let path = routes.path(from, to).unwrap();
                assert_eq!(path.class == PathClass::Net, from / 8 != to / 8);
                // Over NVLink to the GPU next to the card of the receiver's rail, never from socket
                // to socket.
                assert!(path.bandwidth > 22.0);
            }
        }
    }
}
