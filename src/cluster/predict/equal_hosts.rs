//! Hosts that are equal, down to their cables: any two of them may change places.

use crate::search::lanes::Lane;
use maypole::topology::model::graph::{LinkKind, NodeKind, Topology};

/// The hosts of a topology, if they are equal.
pub(super) struct EqualHosts {
    count: usize,
    /// By link: the link of the first host that stands for it; `None` for a link of no host.
    stands_for: Vec<Option<usize>>,
    /// By node: its place among the nodes of its host.
    places: Vec<usize>,
}

/// An end of a link: the place of a node within the host, or a node that belongs to no host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum HostLinkEnd {
    Within(usize),
    Shared(usize),
}

/// What hosts have to have in common.
#[derive(Default, PartialEq)]
struct HostParts {
    nodes: Vec<NodeKind>,
    links: Vec<([HostLinkEnd; 2], LinkKind, f64)>,
}

impl EqualHosts {
    /// Compares the hosts of `topology`; `None` if there are not several, or if two differ in a node, in a
    /// link or in what their cables lead to.
    pub(super) fn new(topology: &Topology) -> Option<Self> {
        let nodes = topology.nodes();
        let mut parts: Vec<HostParts> = Vec::new();
        parts.resize_with(topology.hosts(), HostParts::default);
        let mut places = Vec::with_capacity(nodes.len());
        for node in nodes {
            places.push(node.host.map_or(0, |host| parts[host].nodes.len()));
            node.host.into_iter().for_each(|host| parts[host].nodes.push(node.kind));
        }
        let end = |node: usize| match nodes[node].host {
            Some(_) => HostLinkEnd::Within(places[node]),
            None => HostLinkEnd::Shared(node),
        };
        // By host, the numbers of its links.
        let mut numbers: Vec<Vec<usize>> = vec![Vec::new(); parts.len()];
        for (number, link) in topology.links().iter().enumerate() {
            let host = match [link.from, link.to].map(|node| nodes[node].host) {
                [Some(one), Some(other)] if one != other => return None,
                [Some(host), _] | [_, Some(host)] => host,
                [None, None] => continue,
            };
            numbers[host].push(number);
            parts[host].links.push(([end(link.from), end(link.to)], link.kind, link.bandwidth));
        }
        if parts.len() < 2 || parts.iter().any(|part| *part != parts[0]) {
            return None;
        }
        let mut stands_for = vec![None; topology.links().len()];
        for (first, number) in numbers.iter().flat_map(|own| numbers[0].iter().zip(own)) {
            stands_for[*number] = Some(*first);
        }
        Some(Self { count: parts.len(), stands_for, places })
    }

    /// How many there are.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// The link that stands for `link`, and how many of the corresponding messages of all hosts cross it for
    /// one that crosses `link`: each host has its own such link, or all share it.
    pub(super) fn crossed(&self, link: usize) -> (usize, usize) {
        self.stands_for[link].map_or((link, self.count), |first| (first, 1))
    }

    /// How many ranks of each host follow one another in `lane`, if its part on each host is that on the
    /// first.
    pub(super) fn width(&self, topology: &Topology, lane: &Lane) -> Option<usize> {
        let devices = topology.devices();
        let width = lane.order.len() / self.count;
        let host = |place: usize| topology.nodes()[devices[lane.order[place]]].host;
        let at = |place: usize| self.places[devices[lane.order[place]]];
        let links = |place: usize| lane.hops[place].links.iter().map(|link| self.crossed(*link));
        let is_like = |place: usize, first: usize| {
            host(place) == host(place - place % width)
                && at(place) == at(first)
                && links(place).eq(links(first))
        };
        let mut hosts: Vec<_> = (0..lane.order.len()).step_by(width.max(1)).map(host).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let is_regular = width > 0 && hosts.len() == self.count;
        (is_regular && (0..lane.order.len()).all(|place| is_like(place, place % width)))
            .then_some(width)
    }
}
