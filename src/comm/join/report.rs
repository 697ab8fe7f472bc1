//! Reports: each rank sends one to all others when it joins. Every rank derives the same world from the
//! same reports.

use crate::control::transport::Transport;
use crate::engine::conditions::RunConditions;
use crate::schedule::hosts::{Boards, Hosts};
use crate::topology::StreamLinks;
use crate::tuner::{CostTable, Network};
use crate::wire;
use crate::world::Peer;
use crate::world::service::AgreedWorld;
use maypole_transports::Waiting;
use maypole_transports::cores::UsableCores;
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct JoinReport {
    /// The bytes of its [`UsableCores`].
    pub(crate) cores: Vec<u8>,
    /// The text of the table of costs, by which all ranks choose algorithms: that of rank 0 alone.
    pub(crate) costs: Option<String>,
    /// That of rank 0 is used.
    pub(crate) transport: Transport,
    /// Why the rank cannot share memory with others, if it cannot.
    pub(crate) unshared: Option<String>,
}

impl JoinReport {
    /// The properties of this process, independent of its world.
    pub(super) fn of_this_process() -> Self {
        let (cores, unshared) = (UsableCores::of_this_thread().to_bytes(), super::unshared());
        Self { cores, unshared, ..Self::default() }
    }

    /// Reads the report of rank `rank`.
    ///
    /// # Errors
    /// The error in `bytes`, in words.
    pub(crate) fn from_bytes(rank: usize, bytes: &[u8]) -> Result<Self, String> {
        wire::decode(bytes).map_err(|why| refused(rank, why))
    }
}

fn refused(rank: usize, why: impl std::fmt::Display) -> String {
    format!(
        "rank {rank} sent no valid report when it joined: {why}; run one version of maypole on all \
         ranks"
    )
}

/// A world, equal on all of its ranks.
pub(crate) struct JoinedWorld {
    pub(super) hosts: Hosts,
    /// Ranks by machine, whose cores they share. Containers of one machine are several hosts.
    machines: Hosts,
    pub(super) transport: Transport,
    pub(super) boards: Boards,
    reports: Vec<JoinReport>,
    costs: CostTable,
}

impl JoinedWorld {
    /// # Errors
    /// The error in a report, or the reason why the transport cannot serve the ranks, in words.
    pub(crate) fn of(world: &AgreedWorld) -> Result<Self, String> {
        let peers = &world.peers;
        let read = |(rank, it): (usize, &Peer)| JoinReport::from_bytes(rank, &it.report);
        let reports = peers.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
        let hosts: Vec<&str> = peers.iter().map(|it| &*it.host).collect();
        let machines: Vec<&str> = peers.iter().map(|it| it.machine()).collect();
        let (hosts, machines) = (Hosts::new(&hosts), Hosts::new(&machines));
        let transport = reports[0].transport;
        let costs = reports[0].costs.as_deref().unwrap_or_default().parse::<CostTable>();
        let mut costs = costs.map_err(|error| refused(0, error))?;
        if costs.network.is_near() {
            costs.network = measured(&hosts, peers);
        }
        costs.network = costs.network.on_machines(hosts.count(), machines.count());
        let unshared: Vec<_> = reports.iter().map(|report| report.unshared.as_deref()).collect();
        let boards = transport.boards(&hosts, &unshared)?;
        Ok(Self { hosts, machines, transport, boards, reports, costs })
    }

    /// In words, that ranks of a host use TCP because one of them cannot share memory; `None` if no rank
    /// lacks what its transport would use.
    pub(super) fn unshared(&self) -> Option<String> {
        let mut lacking = self.reports.iter().map(|report| &report.unshared).enumerate();
        let (rank, why) = lacking.find_map(|(rank, why)| Some((rank, why.as_ref()?)))?;
        (self.transport == Transport::Auto).then(|| {
            format!("rank {rank} cannot share memory ({why}), so the ranks of its host use TCP")
        })
    }

    /// The conditions of `rank`.
    pub(super) fn conditions(
        &self,
        rank: usize,
        (timeout, encrypts): (Duration, bool),
        links: StreamLinks,
    ) -> RunConditions {
        let loads = MachineLoad::of_all(&self.machines, &self.reports);
        let MachineLoad { ranks, cores } = loads[self.machines.of(rank)];
        RunConditions {
            waiting: Waiting::new(ranks, cores, timeout),
            crowding: loads.iter().map(|load| load.crowding()).max().unwrap_or(1),
            costs: self.costs,
            encrypts,
            links,
        }
    }
}

/// The network by what the ranks of other hosts measured when they joined through rank 0.
fn measured(hosts: &Hosts, peers: &[Peer]) -> Network {
    let elsewhere = || (0..peers.len()).filter(|rank| !hosts.together(0, *rank));
    let round_trips: Vec<_> = elsewhere().filter_map(|rank| peers[rank].round_trip).collect();
    let bandwidths: Vec<_> = elsewhere().filter_map(|rank| peers[rank].bandwidth).collect();
    Network::measured(&round_trips, &bandwidths)
}

/// The number of ranks and of their cores on one machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct MachineLoad {
    pub(crate) ranks: usize,
    pub(crate) cores: usize,
}

impl MachineLoad {
    /// The load of each machine.
    pub(crate) fn of_all(machines: &Hosts, reports: &[JoinReport]) -> Vec<Self> {
        let load = |machine| {
            let ranks = (0..machines.world()).filter(|rank| machines.of(*rank) == machine);
            let cores = ranks.map(|rank| UsableCores::from_bytes(&reports[rank].cores));
            let cores: Vec<_> = cores.collect();
            Self { ranks: cores.len(), cores: UsableCores::count(&cores) }
        };
        (0..machines.count()).map(load).collect()
    }

    /// Ranks to a core, rounded up.
    pub(crate) fn crowding(self) -> usize {
        self.ranks.div_ceil(self.cores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::transport::RefusalReason;
    use proptest::prelude::*;

    fn report(costs: Option<CostTable>, transport: Transport) -> JoinReport {
        let cores = UsableCores::of_this_thread().to_bytes();
        let costs = costs.map(|costs| costs.to_string());
        JoinReport { cores, costs, transport, unshared: None }
    }

    #[test]
    fn reports_are_read_back() {
        let known = report(Some(CostTable::BUILT_IN), Transport::Ib);
        for report in [report(None, Transport::Auto), known] {
            assert_eq!(JoinReport::from_bytes(1, &wire::encode(&report)), Ok(report));
        }
    }

    /// A world of processes on these hosts, with these reports.
    fn world(of: Vec<(&str, Vec<u8>)>) -> AgreedWorld {
        let mut agreed = AgreedWorld::alone(&[]);
        let peer = |(host, report): (&str, Vec<u8>)| {
            let mut peer = agreed.peers[0].clone();
            peer.host = host.to_owned();
            Peer { report, ..peer }
        };
        agreed.peers = of.into_iter().map(peer).collect();
        agreed
    }

    #[test]
    fn a_world_takes_transport_and_costs_from_rank_0() {
        let other = wire::encode(&report(None, Transport::Auto));
        let root = wire::encode(&report(Some(CostTable::BUILT_IN), Transport::Tcp));
        let joined = |reports: &[&Vec<u8>]| {
            JoinedWorld::of(&world(reports.iter().map(|it| ("a", (*it).clone())).collect()))
        };
        let world = joined(&[&root, &other]).unwrap();
        assert_eq!(world.transport, Transport::Tcp);
        assert_eq!(world.boards.numbers(), [0, 1]);
        assert!(joined(&[&other, &root]).is_err());
        assert!(joined(&[&root, &vec![7]]).is_err());
    }

    /// Two cores on each host.
    fn report_of_two_cores() -> JoinReport {
        let cores = [0, 0, 1].map(u32::to_le_bytes).concat();
        JoinReport { cores, ..report(Some(CostTable::BUILT_IN), Transport::Tcp) }
    }

    #[test]
    fn a_rank_waits_by_the_load_of_its_own_machine() {
        // The first two are containers of one machine.
        let reports =
            ["a 1", "a 2", "b 1"].map(|host| (host, wire::encode(&report_of_two_cores())));
        let world = JoinedWorld::of(&world(reports.to_vec()));
        let limit = Duration::from_secs(1);
        let links = StreamLinks::Tcp(RefusalReason::Forbidden);
        let waiting = world.unwrap().conditions(1, (limit, false), links).waiting;
        assert_eq!(format!("{waiting:?}"), format!("{:?}", Waiting::new(2, 2, limit)));
    }

    /// The bandwidth is measured just where a network has a class.
    #[test]
    fn the_tuner_and_the_sockets_mean_the_same_by_near() {
        use crate::tuner::Network;
        let near = maypole_transports::sockets::NEAR;
        let is_near = |round_trip| Network::measured(&[round_trip], &[]).is_near();
        assert!(is_near(near - Duration::from_micros(1)) && !is_near(near));
    }

    #[test]
    fn a_report_that_cannot_be_read_names_its_rank() {
        let error = JoinReport::from_bytes(3, &[200, 1]).unwrap_err();
        assert!(error.starts_with("rank 3 sent no valid report"), "{error}");
    }

    proptest! {
        #[test]
        fn other_bytes_are_an_error_or_a_report(bytes: Vec<u8>) {
            if let Ok(report) = JoinReport::from_bytes(0, &bytes) {
                prop_assert_eq!(JoinReport::from_bytes(0, &wire::encode(&report)), Ok(report));
            }
        }
    }

    #[test]
    fn ranks_and_cores_are_counted_by_host() {
        let report = JoinReport::default();
        let loads = MachineLoad::of_all(&Hosts::new(&[0, 0, 0, 1]), &vec![report; 4]);
        assert_eq!(loads, [MachineLoad { ranks: 3, cores: 1 }, MachineLoad { ranks: 1, cores: 1 }]);
        assert_eq!(loads[0].crowding(), 3);
    }
}
