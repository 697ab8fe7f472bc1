//! The settings of a rank's service in every world of it.

use super::agreement::AgreedWorld;
use crate::world::VerbsAccess;
use crate::world::service::{Acceptor, ControlConnection, Service};
use maypole_transports::interfaces::listen_at_one_of;
use maypole_transports::secure::JobSecret;
use maypole_transports::watch::Watch;
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

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

impl ServiceSettings {
    /// A listener for a new world at `address`. The port is chosen anew.
    pub(super) fn listen(&self, address: SocketAddr) -> io::Result<TcpListener> {
        let ports: Vec<u16> = self.data_ports.clone().map_or(vec![0], Iterator::collect);
        listen_at_one_of(&[address], &ports)
    }

    /// The service of `rank` in `world`, which listens at `listener`.
    pub(crate) fn start(
        mut self,
        rank: usize,
        world: &AgreedWorld,
        listener: TcpListener,
        controls: BTreeMap<usize, ControlConnection>,
    ) -> io::Result<Service> {
        if world.peers.len() == 1 {
            return Service::alone(self.timeout);
        }
        self.secret.session = world.session;
        let watch = Watch::new()?;
        let acceptor = Acceptor::new(listener, self.secret.clone(), rank, &watch)?;
        let ranks = (rank, world.peers.clone());
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
