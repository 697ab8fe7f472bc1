//! From what a search found to schedules.

use crate::algorithms::hierarchical::{self, Levels};
use crate::algorithms::{Algorithm, reordered};
use crate::schedule::Schedule;
use crate::schedule::collective::Collective;
use crate::topology::search::lanes::Lane;
use std::fmt;

/// What is done along the lanes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum LaneAlgorithm {
    /// One algorithm among all ranks. A ring uses every lane where the vector can be cut; all else
    /// stands in the order of the first.
    Flat(Algorithm),
    /// One among the ranks of each host, another across hosts, in the order of the first lane.
    /// Every rank of a host leads a slice, and so every rail is used.
    Levels(Levels),
}

impl fmt::Display for LaneAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flat(algorithm) => f.pad(algorithm.name()),
            Self::Levels(Levels { local, across }) => f.pad(&format!("{local}+{across}")),
        }
    }
}

impl LaneAlgorithm {
    /// The lanes that it uses for `collective`.
    pub fn lanes(self, collective: Collective, lanes: &[Lane]) -> &[Lane] {
        let cut = matches!(
            collective,
            Collective::AllReduce | Collective::Broadcast { .. } | Collective::Reduce { .. }
        );
        match self {
            Self::Flat(Algorithm::Ring) if cut => lanes,
            _ => &lanes[..lanes.len().min(1)],
        }
    }

    /// What is done at a place of a lane, whose ranks are on `hosts`. `None` if there is no answer.
    pub fn at(self, collective: Collective, hosts: &[usize], place: usize) -> Option<Schedule> {
        match self {
            Self::Flat(algorithm) => algorithm.schedule(collective, hosts.len(), place),
            Self::Levels(levels) => hierarchical::schedule(collective, hosts, place, levels),
        }
    }
}

/// What `rank` does, or `None` if the algorithm has no answer. `hosts` is the host of each rank.
///
/// ```
/// use maypole::topology::predict::lane_algorithm::{LaneAlgorithm, schedule};
/// use maypole::topology::build::cluster;
/// use maypole::topology::search::lanes::lanes;
/// use maypole::topology::search::rails::RoutingTable;
/// use maypole::{algorithms::Algorithm, schedule::collective::Collective, schedule::Placement, schedule::verify::verify};
/// let mesh = cluster::named("mi300x", cluster::Fabric::Flat).unwrap();
/// let lanes = lanes(&mesh).unwrap();
/// let hosts = RoutingTable::new(&mesh).hosts();
/// let ring = |rank| schedule(Collective::AllReduce, &lanes, &hosts, rank, LaneAlgorithm::Flat(Algorithm::Ring)).unwrap();
/// let all: Vec<_> = (0..8).map(ring).collect();
/// assert_eq!(all[0].chunks, 7 * 8);
/// assert!(verify(Collective::AllReduce, &all, Placement::InPlace).is_ok());
/// ```
///
/// # Panics
/// If there is no lane, or the lanes do not hold every rank once.
pub fn schedule(
    collective: Collective,
    lanes: &[Lane],
    hosts: &[usize],
    rank: usize,
    algorithm: LaneAlgorithm,
) -> Option<Schedule> {
    let used = algorithm.lanes(collective, lanes);
    let orders: Vec<Vec<usize>> = used.iter().map(|lane| lane.order.clone()).collect();
    let by_place: Vec<usize> = orders[0].iter().map(|&rank| hosts[rank]).collect();
    reordered::lanes(collective, &orders, rank, |collective, place| {
        algorithm.at(collective, &by_place, place)
    })
}
