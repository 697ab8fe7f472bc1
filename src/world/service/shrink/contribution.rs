//! A rank's contribution to an agreement, and the settings of its service in the new world.

use super::agreement::{AgreedWorld, Attendee};
use crate::labels;
use crate::world::VerbsAccess;
use crate::world::peer::Peer;
use crate::world::service::{Acceptor, ControlConnection, Service, number_hosts};
use maypole_transports::interfaces::listen_at_one_of;
use maypole_transports::secure::JobSecret;
use maypole_transports::watch::Watch;
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// A world that ranks or newcomers have joined, as it was agreed on.
#[derive(Clone, Debug)]
pub struct GrownWorld {
    /// By rank: the number of its host.
    pub hosts: Vec<usize>,
    /// By rank: the number of the machine. Ranks in different containers share its cores.
    pub machines: Vec<usize>,
    /// By rank: its report to all others.
    pub reports: Vec<Vec<u8>>,
    /// The ranks of other hosts than the first one's, and their paths there.
    pub paths: Vec<(usize, PathToFirst)>,
    /// The ranks of this world that were alive at its trial, in order.
    pub kept: Vec<usize>,
}

/// The path of a rank to the host of rank 0, as measured while joining.
#[derive(Clone, Copy, Debug)]
pub struct PathToFirst {
    pub round_trip: Option<Duration>,
    /// Bytes a second.
    pub bandwidth: Option<u64>,
    /// The subnet of this end's address.
    pub subnet: u64,
}

/// One rank's contribution to an agreement.
#[derive(Debug, Default)]
pub struct Contribution {
    /// The report to all others if there are newcomers.
    pub report: Vec<u8>,
    /// Waiting newcomers, on the rank of the waiting room.
    pub(crate) newcomers: Option<Newcomers>,
}

/// Waiting newcomers, and the settings of a service for a rank that was alone before.
#[derive(Debug)]
pub(crate) struct Newcomers {
    pub(crate) waiting: Vec<(ControlConnection, Attendee)>,
    pub(crate) base: ServiceBase,
}

/// The part of a rank's service that every world of it shares.
#[derive(Clone, Debug)]
pub(crate) struct ServiceBase {
    /// This rank's address, host and process. The port is chosen anew for each world.
    pub(crate) own: Peer,
    pub(crate) settings: ServiceSettings,
}

/// The settings of a rank's service, without the ranks of its world.
#[derive(Clone, Debug)]
pub(crate) struct ServiceSettings {
    /// The job's key and name, and the session of the world.
    pub(crate) secret: JobSecret,
    pub(crate) timeout: Duration,
    /// Data connections are encrypted.
    pub(crate) encrypt: bool,
    /// The ports that this rank may listen on; `None` lets the kernel choose.
    pub(crate) data_ports: Option<RangeInclusive<u16>>,
    pub(crate) verbs: Arc<VerbsAccess>,
}

impl GrownWorld {
    pub(crate) fn of(world: &AgreedWorld) -> Self {
        let reports = world.attendees.iter().map(|it| it.report.clone()).collect();
        let peers = world.peers();
        let hosts = number_hosts(&peers);
        let machines = labels::numbers(peers.iter().map(Peer::machine));
        let kept = (0..hosts.len()).collect();
        let path = |(rank, peer): (usize, &Peer)| {
            let Peer { round_trip, bandwidth, .. } = *peer;
            (rank, PathToFirst { round_trip, bandwidth, subnet: peer.subnet() })
        };
        let elsewhere = |peer: &(usize, &Peer)| peer.1.host != peers[0].host;
        let paths = peers.iter().enumerate().filter(elsewhere).map(path).collect();
        Self { hosts, machines, reports, paths, kept }
    }

    /// A world of one rank with this `report`.
    pub(crate) fn alone(report: &[u8]) -> Self {
        Self {
            hosts: vec![0],
            machines: vec![0],
            reports: vec![report.to_vec()],
            paths: Vec::new(),
            kept: vec![0],
        }
    }

    /// The same world with only these of the kept ranks.
    pub(super) fn without(self, places: &[usize]) -> Self {
        let kept = places.iter().map(|place| self.kept[*place]).collect();
        Self { kept, ..self }
    }
}

impl ServiceBase {
    /// A listener for a new world, where this rank listens already.
    pub(super) fn listen_again(&self) -> io::Result<TcpListener> {
        let ports: Vec<u16> = self.settings.data_ports.clone().map_or(vec![0], Iterator::collect);
        listen_at_one_of(&[self.own.listen], &ports)
    }
}

impl ServiceSettings {
    /// The service of `rank` in `world`, which listens at `listener`.
    pub(crate) fn start(
        mut self,
        rank: usize,
        world: AgreedWorld,
        listener: TcpListener,
        controls: BTreeMap<usize, ControlConnection>,
    ) -> io::Result<Service> {
        if world.attendees.len() == 1 {
            return Service::alone(self.timeout);
        }
        self.secret.session = world.session;
        let watch = Watch::new()?;
        let acceptor = Acceptor::new(listener, self.secret.clone(), rank, &watch)?;
        let ranks = (rank, world.peers());
        Service::start(self, ranks, (watch, acceptor), controls, None)
    }
}

/// The number of the interface in a link-local address; 0 for any other address.
pub(crate) fn scope_of(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(address) => address.scope_id(),
    }
}
