//! The algorithm that runs along lanes, and its schedules.

use crate::search::lanes::Lane;
use maypole::algorithms::hierarchical::{self, Levels};
use maypole::algorithms::{Algorithm, reordered};
use maypole::schedule::collective::Collective;
use maypole::schedule::hosts::Boards;
use maypole::schedule::{Buffer, Schedule, Span, Symmetry, scratch};
use std::fmt;

/// An algorithm along the lanes of a topology.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum LaneAlgorithm {
    /// One algorithm among all ranks. A ring uses all lanes if the collective's vector can be cut.
    /// Any other algorithm uses the order of the first lane.
    Flat(Algorithm),
    /// One algorithm among the ranks of each host and another across hosts, in the order of the
    /// first lane. Every rank of a host leads one slice, so all rails are used.
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
    /// Returns whether it is `algorithm`, or has it among the ranks of a host or across hosts.
    pub fn has(self, algorithm: Algorithm) -> bool {
        match self {
            Self::Flat(own) => own == algorithm,
            Self::Levels(Levels { local, across }) => local == algorithm || across == algorithm,
        }
    }

    /// Returns the lanes that the algorithm uses for `collective`.
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

    /// Returns the schedule of the rank at position `place` of a lane. `hosts` is the host of each
    /// position. `None` if the algorithm does not implement the collective.
    pub fn at(self, collective: Collective, hosts: &[usize], place: usize) -> Option<Schedule> {
        match self {
            Self::Flat(algorithm) => algorithm.schedule(collective, hosts.len(), place),
            Self::Levels(levels) => hierarchical::schedule(collective, hosts, place, levels),
        }
    }

    /// How the messages of all hosts follow from those of one, if they do. Each of `hosts` hosts has
    /// `width` consecutive places.
    ///
    /// As [`Algorithm::symmetry`]. The order in which a rank combines what it receives may also follow the
    /// ranks, because that changes no message.
    pub(super) fn symmetry(
        self,
        collective: Collective,
        (hosts, width): (usize, usize),
    ) -> Option<Symmetry> {
        let (algorithm, boards, part) = match self {
            Self::Flat(algorithm) => (algorithm, (hosts, width), collective),
            // A barrier may be an all-reduce of its token across hosts.
            Self::Levels(levels) if !levels.across.supports(collective) => {
                (levels.across, (hosts, 1), Collective::AllReduce)
            }
            Self::Levels(levels) => (levels.across, (hosts, 1), collective),
        };
        let folds = matches!(
            (algorithm, part),
            (Algorithm::OneShot | Algorithm::TwoShot, _)
                | (Algorithm::Direct, Collective::ReduceScatter)
        );
        if folds {
            return Some(Symmetry::Rotation);
        }
        let labels: Vec<_> = (0..boards.0 * boards.1).map(|place| place / boards.1).collect();
        algorithm.symmetry(part, &Boards::new(&labels))
    }
}

/// Returns the schedule of `rank`, or `None` if the algorithm does not implement the collective.
/// `hosts` is the host of each rank.
///
/// ```
/// use maypole_cluster::predict::lane_algorithm::{LaneAlgorithm, schedule};
/// use maypole_cluster::build::cluster;
/// use maypole_cluster::search::lanes::lanes;
/// use maypole_cluster::search::rails::RoutingTable;
/// use maypole::algorithms::Algorithm;
/// use maypole::schedule::{Placement, collective::Collective, verify::verify};
/// let mesh = cluster::named("mi300x", cluster::Fabric::Flat).unwrap();
/// let lanes = lanes(&mesh).unwrap();
/// let hosts = RoutingTable::new(&mesh).hosts();
/// let ring = LaneAlgorithm::Flat(Algorithm::Ring);
/// let of = |rank| schedule(Collective::AllReduce, &lanes, &hosts, rank, ring).unwrap();
/// let all: Vec<_> = (0..8).map(of).collect();
/// assert_eq!(all[0].chunks, 7 * 8);
/// assert!(verify(Collective::AllReduce, &all, Placement::InPlace).is_ok());
/// ```
///
/// # Panics
/// If there is no lane, or a lane does not have every rank once.
pub fn schedule(
    collective: Collective,
    lanes: &[Lane],
    hosts: &[usize],
    rank: usize,
    algorithm: LaneAlgorithm,
) -> Option<Schedule> {
    let used = algorithm.lanes(collective, lanes);
    let by_place: Vec<usize> = used[0].order.iter().map(|&rank| hosts[rank]).collect();
    let at = |collective, place| algorithm.at(collective, &by_place, place);
    let of = |lane: &Lane| reordered::schedule(collective, &lane.order, rank, at);
    Some(side_by_side(&used.iter().map(of).collect::<Option<Vec<_>>>()?))
}

/// One schedule that runs each of `parts` on an equal slice of the vector. The lanes follow one another in
/// the list. They have no span in common, so executors run them side by side.
fn side_by_side(parts: &[Schedule]) -> Schedule {
    let pieces = parts[0].chunks;
    let chunks = parts.len() * pieces;
    let mut rows = 0;
    let mut steps = Vec::new();
    for (lane, part) in parts.iter().enumerate() {
        let place = |span: Span| {
            let piece = lane * pieces + span.chunk % pieces;
            match span.buffer {
                Buffer::Scratch => scratch((rows + span.chunk / pieces) * chunks + piece),
                Buffer::Input | Buffer::Output => Span { chunk: piece, ..span },
            }
        };
        steps.extend(part.steps.iter().map(|step| step.map(place, |peer| peer)));
        rows += part.scratch.div_ceil(pieces);
    }
    Schedule::new(chunks, steps)
}
