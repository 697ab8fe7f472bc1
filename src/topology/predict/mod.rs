//! How long collectives take on a topology, and which link keeps them from being faster.
//!
//! # The model
//!
//! Ranks go in step. In a *round* travel the messages that wait for equally many others; a round
//! ends when its busiest link has carried all that crosses it, whoever it is for. With `B` bytes,
//! `D` seconds along the longest chain of messages that wait for one another, and `c` seconds a
//! byte on the busiest link of each round,
//!
//! ```text
//! time = base + D + sum of c B
//! ```
//!
//! which is the formula of the literature for each algorithm alone on a network that shares
//! nothing. What a rank could send to several others in one round it sends at once or in turn, one
//! a round: whichever is faster. In `W` windows the first takes that with `B/W`, and each of the
//! others follows the one before it
//!
//! ```text
//! max(C B/W, the longest round of a window by itself)
//! ```
//!
//! later, `C` being the seconds a byte of the link that is busiest over all rounds: the
//! *bottleneck*. No link is ever asked for more than it carries, so `C B` is a lower bound for any
//! order of messages; that ranks go in step makes the sum an upper one where rounds are uneven.
//!
//! # What it assumes
//!
//! Combining is as fast as the links; nothing is lost to other traffic; switches carry whatever
//! their links bring; a path is as the topology says, and does not change. Latencies and what a
//! protocol costs are [those](crate::topology::predict::protocol) of a library with every protocol, the best of which
//! is taken.

pub mod lane_algorithm;
mod load;
pub mod protocol;
pub mod published;

use crate::algorithms::Algorithm;
use crate::algorithms::hierarchical::Levels;
use crate::schedule::Schedule;
use crate::schedule::collective::Collective;
use crate::schedule::walk::Stuck;
use crate::topology::model::graph::{Path, Topology};
use crate::topology::predict::lane_algorithm::LaneAlgorithm;
use crate::topology::predict::load::{LinkLoad, MessageRound, SendOrder};
use crate::topology::predict::protocol::{MOST, WireProtocol, protocols};
use crate::topology::search::lanes::{Lane, lanes};
use crate::topology::search::rails::{RoutingTable, Unreachable};
use std::collections::HashMap;

/// How long a collective takes in one algorithm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictedTime {
    /// From when all ranks begin until the last is done.
    pub seconds: f64,
    /// Into how many windows the whole is cut.
    pub windows: usize,
    /// By which protocol: see [`protocol`](crate::topology::predict::protocol).
    pub protocol: &'static str,
}

/// What algorithm bandwidth is multiplied with, so that the product can be compared with what a
/// link carries: the part of the whole that each rank must send or receive. These are the factors
/// of nccl-tests.
///
/// # Panics
/// If the world is empty.
pub fn bus_factor(collective: Collective, world: usize) -> f64 {
    let others = (world - 1) as f64 / world as f64;
    match collective {
        Collective::AllReduce => 2.0 * others,
        Collective::Broadcast { .. } | Collective::Reduce { .. } => 1.0,
        Collective::Scan | Collective::ExclusiveScan | Collective::Barrier => 1.0,
        _ => others,
    }
}

/// A topology with the rings that were found on it, ready for questions.
pub struct CostModel<'a> {
    topology: &'a Topology,
    routes: RoutingTable<'a>,
    hosts: Vec<usize>,
    lanes: Vec<Lane>,
}

/// What a collective in one algorithm asks of a topology, whatever its size.
#[derive(Clone, Debug)]
pub struct CollectiveCost {
    /// What is done.
    pub algorithm: LaneAlgorithm,
    /// On how many lanes.
    pub lanes: usize,
    /// The link that is busiest over all rounds; none if nothing is sent.
    pub bottleneck: Option<usize>,
    /// Seconds a byte of the whole of that link.
    pub busiest: f64,
    protocols: &'static [WireProtocol],
    latency: [f64; MOST],
    /// By pace.
    rounds: [Vec<RoundCost>; 2],
}

/// The busiest link of a round, in seconds a byte of the whole, and the longest time one of its
/// messages is under way.
#[derive(Clone, Copy, Debug)]
struct RoundCost {
    seconds: f64,
    latency: [f64; MOST],
}

/// Why there is no cost.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CostError {
    /// Two ranks have no way between them.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// The schedules cannot complete; none that this crate makes is such.
    #[error(transparent)]
    Stuck(#[from] Stuck),
}

/// No cut into more windows is tried.
const MOST_WINDOWS: usize = 4096;

impl<'a> CostModel<'a> {
    /// Finds the rings.
    ///
    /// # Errors
    /// [`Unreachable`] if two hosts have no way between them.
    pub fn new(topology: &'a Topology) -> Result<Self, Unreachable> {
        let routes = RoutingTable::new(topology);
        Ok(Self { topology, hosts: routes.hosts(), routes, lanes: lanes(topology)? })
    }

    /// How many ranks there are.
    pub fn world(&self) -> usize {
        self.hosts.len()
    }

    /// The rings.
    pub fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// Everything worth asking about: every algorithm that has an answer, and on several hosts the
    /// hierarchical ones with chains, trees and direct exchanges within.
    pub fn algorithms(&self, collective: Collective) -> Vec<LaneAlgorithm> {
        let flat = Algorithm::ALL
            .into_iter()
            .filter(|one| one.supports(collective))
            .map(LaneAlgorithm::Flat);
        let several = self.hosts.iter().any(|host| *host != self.hosts[0]);
        let across = Algorithm::ALL.into_iter().filter(|one| several && one.supports(collective));
        let locals = [Algorithm::Ring, Algorithm::Linear, Algorithm::Binomial];
        let levels = across
            .flat_map(|across| locals.map(|local| LaneAlgorithm::Levels(Levels { local, across })));
        let answers = |algorithm: &LaneAlgorithm| {
            let LaneAlgorithm::Levels(_) = algorithm else { return true };
            algorithm.at(collective, &self.by_place(), 0).is_some()
        };
        flat.chain(levels.filter(answers)).collect()
    }

    /// The host of each place of the first lane.
    fn by_place(&self) -> Vec<usize> {
        self.lanes
            .first()
            .map_or(Vec::new(), |lane| lane.order.iter().map(|&rank| self.hosts[rank]).collect())
    }

    /// What `collective` in `algorithm` asks of the topology; `None` if the algorithm has no answer. Takes
    /// longest: some hundred nanoseconds a message and link.
    ///
    /// ```
    /// use maypole::topology::build::cluster::{Fabric, named};
    /// use maypole::topology::predict::lane_algorithm::LaneAlgorithm;
    /// use maypole::topology::predict::CostModel;
    /// use maypole::{algorithms::Algorithm, schedule::collective::Collective};
    /// let host = named("dgx-a100", Fabric::Flat).unwrap();
    /// let model = CostModel::new(&host).unwrap();
    /// let ring = model.cost(Collective::AllReduce, LaneAlgorithm::Flat(Algorithm::Ring)).unwrap().unwrap();
    /// assert_eq!(host.describe(ring.bottleneck.unwrap()), "GPU0 -> NVSwitch (NVLink, 240.0 GB/s)");
    /// // A big vector goes at the speed of the links: 240 GB/s.
    /// let seconds = ring.predict(16e9).seconds;
    /// assert!((2.0 * 7.0 / 8.0 * 16e9 / seconds / 240e9 - 1.0).abs() < 0.001);
    /// ```
    ///
    /// # Errors
    /// [`CostError`] if there is no way between two ranks that talk.
    ///
    /// # Panics
    /// If the collective's root is no rank.
    pub fn cost(
        &self,
        collective: Collective,
        algorithm: LaneAlgorithm,
    ) -> Result<Option<CollectiveCost>, CostError> {
        let used = algorithm.lanes(collective, &self.lanes);
        let Some(first) = used.first().and_then(|lane| self.schedules(collective, lane, algorithm))
        else {
            return Ok(None);
        };
        let mut cost = CollectiveCost {
            algorithm,
            lanes: used.len(),
            bottleneck: None,
            busiest: 0.0,
            protocols: protocols(self.topology),
            latency: [0.0; MOST],
            rounds: Default::default(),
        };
        for (nth, pace) in [SendOrder::Concurrent, SendOrder::Sequential].into_iter().enumerate() {
            let mut load = LinkLoad::new(self.topology, cost.protocols, pace);
            for lane in used {
                let hops = self.hops(lane, algorithm);
                let path = |from, to| self.path(lane, &hops, from, to);
                let own =
                    collective.root().and_then(|_| self.schedules(collective, lane, algorithm));
                load.add(own.as_ref().unwrap_or(&first), 1.0 / used.len() as f64, path)?;
            }
            cost.latency = load.latency;
            cost.rounds[nth] = load.rounds.iter().map(|round| self.busy(round)).collect();
            (cost.bottleneck, cost.busiest) = self.busiest(&load.rounds);
        }
        Ok(Some(cost))
    }

    /// What is done at each place of a lane.
    fn schedules(
        &self,
        collective: Collective,
        lane: &Lane,
        algorithm: LaneAlgorithm,
    ) -> Option<Vec<Schedule>> {
        let place =
            |rank| lane.order.iter().position(|&other| other == rank).expect("a root is a rank");
        let there = collective.root().map_or(collective, |root| collective.with_root(place(root)));
        let hosts: Vec<usize> = lane.order.iter().map(|&rank| self.hosts[rank]).collect();
        (0..hosts.len()).map(|place| algorithm.at(there, &hosts, place)).collect()
    }

    /// The hops that a lane has ways of its own for: a ring's.
    fn hops<'b>(
        &self,
        lane: &'b Lane,
        algorithm: LaneAlgorithm,
    ) -> HashMap<(usize, usize), &'b Path> {
        let world = lane.order.len();
        let own = (0..world).map(|place| ((place, (place + 1) % world), &lane.hops[place]));
        if algorithm == LaneAlgorithm::Flat(Algorithm::Ring) {
            own.collect()
        } else {
            HashMap::new()
        }
    }

    fn path(
        &self,
        lane: &Lane,
        hops: &HashMap<(usize, usize), &Path>,
        from: usize,
        to: usize,
    ) -> Result<Path, CostError> {
        match hops.get(&(from, to)) {
            Some(path) => Ok((*path).clone()),
            None => Ok(self.routes.path(lane.order[from], lane.order[to])?),
        }
    }

    /// Seconds that a link takes for a byte.
    fn seconds_per_byte(&self, link: usize) -> f64 {
        1.0 / (self.topology.links()[link].bandwidth * 1e9)
    }

    fn busy(&self, round: &MessageRound) -> RoundCost {
        let seconds = round
            .crossing
            .iter()
            .enumerate()
            .map(|(link, crossing)| crossing * self.seconds_per_byte(link));
        RoundCost { seconds: seconds.fold(0.0, f64::max), latency: round.latency }
    }

    /// The link that is busiest over all rounds, and its seconds a byte.
    fn busiest(&self, rounds: &[MessageRound]) -> (Option<usize>, f64) {
        let mut all = vec![0.0; self.topology.links().len()];
        for (link, crossing) in rounds.iter().flat_map(|round| round.crossing.iter().enumerate()) {
            all[link] += crossing * self.seconds_per_byte(link);
        }
        let used = all.iter().copied().enumerate().filter(|(_, seconds)| *seconds > 0.0);
        // The first of equals.
        let worst = used.rev().max_by(|a, b| a.1.total_cmp(&b.1));
        (worst.map(|worst| worst.0), worst.map_or(0.0, |worst| worst.1))
    }
}

impl CollectiveCost {
    /// How long `bytes` take, in the windows and by the protocol that are fastest; of equals the
    /// fewest, and the first.
    ///
    /// `bytes` is the whole: of the vector, or of all blocks together.
    pub fn predict(&self, bytes: f64) -> PredictedTime {
        let windows = std::iter::successors(Some(1), |windows| Some(windows * 2))
            .take_while(|&w| w <= MOST_WINDOWS);
        fastest(windows.map(|windows| self.predict_in(windows, bytes)))
    }

    /// How long `bytes` take in so many windows, by the protocol that is fastest.
    pub fn predict_in(&self, windows: usize, bytes: f64) -> PredictedTime {
        fastest(self.protocols.iter().enumerate().map(|(nth, protocol)| PredictedTime {
            seconds: self.seconds(bytes, windows, nth),
            windows,
            protocol: protocol.name,
        }))
    }

    /// How long `bytes` take in so many windows, by the `protocol`-th.
    fn seconds(&self, bytes: f64, windows: usize, protocol: usize) -> f64 {
        let WireProtocol { base, share, .. } = self.protocols[protocol];
        let window = bytes / windows as f64 / share;
        let paces = self.rounds.iter().map(|rounds| {
            let first: f64 = rounds.iter().map(|round| round.seconds * window).sum();
            let alone = rounds.iter().map(|round| round.latency[protocol] + round.seconds * window);
            first + (windows - 1) as f64 * alone.fold(self.busiest * window, f64::max)
        });
        base + self.latency[protocol] + paces.fold(f64::INFINITY, f64::min)
    }
}

/// The first of the fastest.
fn fastest(all: impl Iterator<Item = PredictedTime>) -> PredictedTime {
    all.min_by(|a, b| a.seconds.total_cmp(&b.seconds)).expect("there is something to choose from")
}
