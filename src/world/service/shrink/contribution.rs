//! What a rank brings to an agreement, and what its service in the new world is made of.

use super::agreement::{Attendee, Proposal};
use crate::world::VerbsAccess;
use crate::world::peer::Peer;
use crate::world::service::{Acceptor, ControlConnection, Service, ServiceStart, number_hosts};
use maypole_transports::secure::JobSecret;
use maypole_transports::watch::Watch;
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// A world with newcomers, as it was agreed on.
#[derive(Clone, Debug)]
pub struct GrownWorld {
    /// By rank: the number of its host.
    pub hosts: Vec<usize>,
    /// By rank: what it told all others.
    pub reports: Vec<Vec<u8>>,
    /// The ranks of this world that still existed when it was tried, in order.
    pub kept: Vec<usize>,
}

/// What one rank brings to an agreement.
#[derive(Debug, Default)]
pub struct Contribution {
    /// What this rank tells all others if there are newcomers.
    pub report: Vec<u8>,
    /// Processes that want to join, on the rank at which they wait.
    pub(crate) newcomers: Option<Newcomers>,
}

/// Processes that want to join, and what a rank needs to be reached by them that was alone before.
#[derive(Debug)]
pub(crate) struct Newcomers {
    pub(crate) waiting: Vec<(ControlConnection, Attendee)>,
    pub(crate) base: ServiceBase,
}

/// What the service of a rank is made of, but for the world that it belongs to.
#[derive(Clone, Debug)]
pub(crate) struct ServiceBase {
    /// How this rank is reached. The port is chosen anew for each world.
    pub(crate) own: Peer,
    /// The job's key and name.
    pub(crate) secret: JobSecret,
    pub(crate) timeout: Duration,
    pub(crate) encrypt: bool,
    pub(crate) data_ports: Option<RangeInclusive<u16>>,
    pub(crate) verbs: Arc<VerbsAccess>,
}

impl GrownWorld {
    pub(super) fn of(proposal: &Proposal) -> Self {
        let peers: Vec<Peer> = proposal.attendees.iter().map(|it| it.peer.clone()).collect();
        let reports = proposal.attendees.iter().map(|it| it.report.clone()).collect();
        Self { hosts: number_hosts(&peers), reports, kept: (0..peers.len()).collect() }
    }

    /// The same world, of which these ranks of those that were kept are left.
    pub(super) fn without(self, places: &[usize]) -> Self {
        let kept = places.iter().map(|place| self.kept[*place]).collect();
        Self { kept, ..self }
    }
}

impl ServiceBase {
    /// A listener for a new world, where this rank listens already.
    pub(super) fn listen_again(&self) -> io::Result<TcpListener> {
        let mut address = self.own.listen;
        let ports = self.data_ports.clone().map_or(vec![0], Iterator::collect);
        let mut last = io::ErrorKind::InvalidInput.into();
        for port in ports {
            address.set_port(port);
            match TcpListener::bind(address) {
                Ok(listener) => return Ok(listener),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The service of `rank` in the world of `proposal`.
    pub(super) fn start(
        self,
        rank: usize,
        proposal: Proposal,
        listener: TcpListener,
        controls: BTreeMap<usize, ControlConnection>,
    ) -> io::Result<Service> {
        if proposal.attendees.len() == 1 {
            return Service::alone(self.timeout);
        }
        let scope = scope_of(listener.local_addr()?);
        let secret = JobSecret { session: proposal.session, ..self.secret };
        let watch = Watch::new()?;
        let peers = proposal.attendees.into_iter().map(|it| it.peer.within(scope)).collect();
        Service::start(ServiceStart {
            rank,
            acceptor: Acceptor::new(listener, secret.clone(), rank, &watch)?,
            secret,
            peers,
            timeout: self.timeout,
            encrypt: self.encrypt,
            data_ports: self.data_ports,
            verbs: self.verbs,
            watch,
            controls,
            late_answer: None,
        })
    }
}

/// The number of the interface in a link-local address; 0 for any other address.
fn scope_of(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(address) => address.scope_id(),
    }
}
