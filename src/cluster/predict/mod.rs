//! Predicts the time of a collective on a topology, and the link that limits its bandwidth.
//!
//! # The model
//!
//! Ranks proceed in rounds. A *round* has the messages that wait for equally many others. It ends
//! when its busiest link has carried all its traffic. Let `B` be the bytes of the vector, `D` the
//! latency of the longest chain of messages that wait for one another, in seconds, and `c` the
//! seconds a byte on the busiest link of a round:
//!
//! ```text
//! time = base + D + sum of c B
//! ```
//!
//! On a network without shared links this is the formula of the literature for each algorithm. A
//! rank that has messages for several others sends them in one round, or one a round. The model
//! takes the faster of the two.
//!
//! In `W` windows, the first window takes the time of `B/W` bytes. Each further window ends
//!
//! ```text
//! max(C B/W, the longest round of one window)
//! ```
//!
//! after the window before it. `C` is the seconds a byte on the link that is busiest over all
//! rounds: the *bottleneck*. No link carries more than its bandwidth, so `C B` is a lower bound
//! for any order of messages. Where rounds are uneven, the sum is an upper bound, because ranks
//! wait for each round to end.
//!
//! # Assumptions
//!
//! * Reduction is as fast as the links.
//! * There is no other traffic.
//! * A switch carries the full bandwidth of all its links.
//! * A path is the one that the topology gives, and does not change.
//! * The best of all [protocols](crate::predict::protocol) is used.
//!
//! # Many hosts
//!
//! Where hosts are equal and all do the same, each with others of its own, the steps of one host tell those of
//! all: a cluster of 512 hosts takes as long as its longest schedule. So do rings, exchanges, halving and
//! doubling among a power of two of ranks, and any of them across hosts. Trees and whatever has a root have
//! few steps a rank, and are followed on all ranks. An algorithm with neither property is
//! [too long](CostError::TooLong) for thousands of ranks.

mod equal_hosts;
pub mod lane_algorithm;
mod load;
pub mod protocol;
pub mod published;
mod seconds;

use crate::predict::equal_hosts::EqualHosts;
use crate::predict::lane_algorithm::LaneAlgorithm;
use crate::predict::load::{LinkLoad, MessageRound, SendOrder};
use crate::predict::protocol::{MOST, WireProtocol, protocols};
use crate::search::lanes::{Lane, lanes_on};
use crate::search::rails::{RoutingTable, Unreachable};
use maypole::algorithms::Algorithm;
use maypole::algorithms::hierarchical::Levels;
use maypole::schedule::collective::Collective;
use maypole::schedule::walk::Stuck;
use maypole::schedule::{Schedule, Symmetry};
use maypole::topology::model::graph::{Path, Topology};
use std::collections::HashMap;

/// The predicted time of a collective by one algorithm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictedTime {
    /// The time from the common start of all ranks to the end of the last one, in seconds.
    pub seconds: f64,
    /// The number of windows in the vector.
    pub windows: usize,
    /// The name of the protocol, see [`protocol`].
    pub protocol: &'static str,
}

/// Returns the ratio of bus bandwidth to algorithm bandwidth, as nccl-tests defines it: the part of
/// the whole that each rank must send or receive. Bus bandwidth can be compared with the bandwidth
/// of a link.
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

/// A topology with its lanes and routes, ready to predict the cost of collectives.
pub struct CostModel<'a> {
    topology: &'a Topology,
    routes: RoutingTable<'a>,
    hosts: Vec<usize>,
    lanes: Vec<Lane>,
    /// The hosts, if they are equal and the lanes run through all of them alike.
    equal: Option<(EqualHosts, usize)>,
}

/// The cost of a collective by one algorithm on a topology, for any number of bytes.
#[derive(Clone, Debug)]
pub struct CollectiveCost {
    /// The algorithm.
    pub algorithm: LaneAlgorithm,
    /// The number of lanes that it uses.
    pub lanes: usize,
    /// The link that is busiest over all rounds; `None` if nothing is sent.
    pub bottleneck: Option<usize>,
    /// The time of that link, in seconds a byte of the whole.
    pub busiest: f64,
    protocols: &'static [WireProtocol],
    latency: [f64; MOST],
    /// By [`SendOrder`]: the cost of each round.
    rounds: [Vec<RoundCost>; 2],
}

/// The time of the busiest link of a round, in seconds a byte of the whole, and by protocol the
/// longest latency of one of its messages.
#[derive(Clone, Copy, Debug)]
struct RoundCost {
    seconds: f64,
    latency: [f64; MOST],
}

/// The reason why a cost cannot be predicted.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CostError {
    /// No path joins two ranks.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// The schedules cannot complete. Schedules of this crate's algorithms always complete.
    #[error(transparent)]
    Stuck(#[from] Stuck),
    /// The schedules of all ranks have too many steps, and they do not follow from those of one host.
    #[error(
        "{algorithm} on {ranks} ranks has more than {MOST_STEPS} steps, which do not follow from those of \
         one host"
    )]
    TooLong {
        /// The algorithm.
        algorithm: LaneAlgorithm,
        /// The number of ranks.
        ranks: usize,
    },
}

/// The most steps of all schedules together that are followed: a few seconds, and a few hundred megabytes.
const MOST_STEPS: usize = 1 << 22;

/// The largest number of windows that is tried.
const MOST_WINDOWS: usize = 4096;

impl<'a> CostModel<'a> {
    /// Finds the lanes of `topology`.
    ///
    /// # Errors
    /// [`Unreachable`] if no path joins two hosts.
    pub fn new(topology: &'a Topology) -> Result<Self, Unreachable> {
        let routes = RoutingTable::new(topology);
        let lanes = lanes_on(topology, &routes)?;
        let equal = EqualHosts::new(topology).and_then(|hosts| {
            let widths = lanes.iter().map(|lane| hosts.width(topology, lane));
            let widths = widths.collect::<Option<Vec<usize>>>()?;
            Some((hosts, *widths.first()?))
        });
        Ok(Self { topology, hosts: routes.hosts(), routes, lanes, equal })
    }

    /// Returns the number of ranks.
    pub fn world(&self) -> usize {
        self.hosts.len()
    }

    /// Returns the lanes.
    pub fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// Returns the algorithms to compare: all that implement the collective, and on several hosts
    /// the hierarchical ones with a ring, a linear exchange or a binomial tree within each host.
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

    /// Returns the cost of the algorithm that is fastest for `bytes`, and its time; `None` if no algorithm
    /// implements the collective here.
    ///
    /// # Errors
    /// As [`cost`](Self::cost). An algorithm that has too many steps is left out.
    ///
    /// # Panics
    /// As [`cost`](Self::cost).
    pub fn fastest(
        &self,
        collective: Collective,
        bytes: f64,
    ) -> Result<Option<(CollectiveCost, PredictedTime)>, CostError> {
        let mut best: Option<(CollectiveCost, PredictedTime)> = None;
        for algorithm in self.algorithms(collective) {
            let cost = match self.cost(collective, algorithm) {
                Err(CostError::TooLong { .. }) | Ok(None) => continue,
                Ok(Some(cost)) => cost,
                Err(error) => return Err(error),
            };
            let time = cost.predict(bytes);
            if best.as_ref().is_none_or(|(_, best)| time.seconds < best.seconds) {
                best = Some((cost, time));
            }
        }
        Ok(best)
    }

    /// The host of each position of the first lane.
    fn by_place(&self) -> Vec<usize> {
        self.lanes
            .first()
            .map_or(Vec::new(), |lane| lane.order.iter().map(|&rank| self.hosts[rank]).collect())
    }

    /// Returns the cost of `collective` by `algorithm`; `None` if the algorithm does not implement
    /// the collective. Takes some hundred nanoseconds for each message and link; where equal hosts do the
    /// same, for those of one host.
    ///
    /// ```
    /// use maypole_cluster::build::cluster::{Fabric, named};
    /// use maypole_cluster::build::link::describe;
    /// use maypole_cluster::predict::lane_algorithm::LaneAlgorithm;
    /// use maypole_cluster::predict::CostModel;
    /// use maypole::{algorithms::Algorithm, schedule::collective::Collective};
    /// let host = named("dgx-a100", Fabric::Flat).unwrap();
    /// let model = CostModel::new(&host).unwrap();
    /// let ring = LaneAlgorithm::Flat(Algorithm::Ring);
    /// let ring = model.cost(Collective::AllReduce, ring).unwrap().unwrap();
    /// let bottleneck = describe(&host, ring.bottleneck.unwrap());
    /// assert_eq!(bottleneck, "GPU0 -> NVSwitch (NVLink, 240.0 GB/s)");
    /// // The bus bandwidth of a large vector is the bandwidth of the links: 240 GB/s.
    /// let seconds = ring.predict(16e9).seconds;
    /// assert!((2.0 * 7.0 / 8.0 * 16e9 / seconds / 240e9 - 1.0).abs() < 0.001);
    /// ```
    ///
    /// # Errors
    /// [`CostError`] if no path joins two ranks that communicate, or if the algorithm has too many steps.
    ///
    /// # Panics
    /// If the collective's root is no rank.
    pub fn cost(
        &self,
        collective: Collective,
        algorithm: LaneAlgorithm,
    ) -> Result<Option<CollectiveCost>, CostError> {
        self.cost_by(collective, algorithm, self.symmetry(collective, algorithm))
    }

    /// The equal hosts, if their schedules follow from those of the first.
    fn symmetry(
        &self,
        collective: Collective,
        algorithm: LaneAlgorithm,
    ) -> Option<(&EqualHosts, Symmetry)> {
        let (hosts, width) = self.equal.as_ref()?;
        Some((hosts, algorithm.symmetry(collective, (hosts.count(), *width))?))
    }

    /// The cost by the schedules of the first of `hosts`, or of all ranks.
    fn cost_by(
        &self,
        collective: Collective,
        algorithm: LaneAlgorithm,
        hosts: Option<(&EqualHosts, Symmetry)>,
    ) -> Result<Option<CollectiveCost>, CostError> {
        let used = algorithm.lanes(collective, &self.lanes);
        let schedules = |lane| self.schedules(collective, lane, algorithm, hosts);
        let Some(first) = used.first().map(schedules).transpose()?.flatten() else {
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
            let mut load = LinkLoad::new(cost.protocols, pace, hosts);
            for lane in used {
                let hops = self.hops(lane, algorithm);
                let path = |from, to| self.path(lane, &hops, from, to);
                let own = collective.root().map(|_| schedules(lane)).transpose()?.flatten();
                load.add(own.as_ref().unwrap_or(&first), 1.0 / used.len() as f64, path)?;
            }
            cost.latency = load.latency;
            cost.rounds[nth] =
                load.rounds.iter().map(|round| self.busy(round, load.chunk)).collect();
            (cost.bottleneck, cost.busiest) = self.busiest(&load.rounds, load.chunk);
        }
        Ok(Some(cost))
    }

    /// The schedules of all positions of a lane, or with `hosts` those on its first host.
    fn schedules(
        &self,
        collective: Collective,
        lane: &Lane,
        algorithm: LaneAlgorithm,
        hosts: Option<(&EqualHosts, Symmetry)>,
    ) -> Result<Option<Vec<Schedule>>, CostError> {
        let place =
            |rank| lane.order.iter().position(|&other| other == rank).expect("a root is a rank");
        let there = collective.root().map_or(collective, |root| collective.with_root(place(root)));
        let by_place: Vec<usize> = lane.order.iter().map(|&rank| self.hosts[rank]).collect();
        let places = by_place.len() / hosts.map_or(1, |(hosts, _)| hosts.count());
        let mut steps = 0;
        let mut all = Vec::new();
        for place in 0..places {
            let Some(schedule) = algorithm.at(there, &by_place, place) else { return Ok(None) };
            steps += schedule.steps.len();
            if steps > MOST_STEPS {
                return Err(CostError::TooLong { algorithm, ranks: by_place.len() });
            }
            all.push(schedule);
        }
        Ok(Some(all))
    }

    /// The paths of the lane's own hops, which a ring uses.
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

    /// The time of a link for one byte, in seconds.
    fn seconds_per_byte(&self, link: usize) -> f64 {
        1.0 / (self.topology.links()[link].bandwidth * 1e9)
    }

    /// The cost of a round whose chunks are each this part of the whole.
    fn busy(&self, round: &MessageRound, chunk: f64) -> RoundCost {
        let seconds = round
            .crossing
            .iter()
            .map(|(link, chunks)| *chunks as f64 * chunk * self.seconds_per_byte(*link));
        RoundCost { seconds: seconds.fold(0.0, f64::max), latency: round.latency }
    }

    /// The link that is busiest over all rounds, and its time in seconds a byte.
    fn busiest(&self, rounds: &[MessageRound], chunk: f64) -> (Option<usize>, f64) {
        let mut all = vec![0.0; self.topology.links().len()];
        for (link, chunks) in rounds.iter().flat_map(|round| &round.crossing) {
            all[*link] += *chunks as f64 * chunk * self.seconds_per_byte(*link);
        }
        let used = all.iter().copied().enumerate().filter(|(_, seconds)| *seconds > 0.0);
        // `max_by` takes the last of several maxima: here the link with the lowest number.
        let worst = used.rev().max_by(|a, b| a.1.total_cmp(&b.1));
        (worst.map(|worst| worst.0), worst.map_or(0.0, |worst| worst.1))
    }
}

#[cfg(test)]
mod tests;
