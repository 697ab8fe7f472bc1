//! The addresses at which ranks listen and connect, and what their services are made of.

use super::interface::InterfaceChoice;
use super::{JoinConfig, JoinError};
use crate::world::VerbsAccess;
use crate::world::service::ServiceSettings;
use maypole_transports::interfaces::{self, with_scope};
use maypole_transports::secure::JobSecret;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;

/// The addresses of rank 0, with port 0. IPv4 comes before IPv6, because a host name usually stands
/// for its IPv4 address.
pub(super) fn resolve(config: &JoinConfig) -> Result<Vec<SocketAddr>, JoinError> {
    let Some(address) = config.address.as_deref() else {
        return Ok(vec![(Ipv4Addr::LOCALHOST, 0).into()]);
    };
    let unresolvable = |source| JoinError::Unresolvable { address: address.to_owned(), source };
    let found = (address, 0).to_socket_addrs().map_err(unresolvable)?;
    let mut found: Vec<SocketAddr> = found.collect();
    found.sort_by_key(SocketAddr::is_ipv6);
    found.dedup();
    if found.is_empty() {
        return Err(unresolvable(io::ErrorKind::NotFound.into()));
    }
    if config.key.is_none() && !config.insecure_without_key {
        found.retain(|address| address.ip().is_loopback());
        if found.is_empty() {
            return Err(JoinError::KeyNeeded { address: address.to_owned() });
        }
    }
    found.into_iter().map(|address| scoped(config, address)).collect()
}

/// `address` with the interface that it is reached through, if it is link-local.
fn scoped(config: &JoinConfig, address: SocketAddr) -> Result<SocketAddr, JoinError> {
    let needs_scope = with_scope(address, 1) != address;
    if !needs_scope {
        return Ok(address);
    }
    if config.interface.is_none() {
        return Err(JoinError::Config(format!(
            "the address of rank 0, {}, is link-local, so it needs an interface: write \
             {}%INTERFACE, or name the interface of each host with MAYPOLE_INTERFACE",
            address.ip(),
            address.ip()
        )));
    }
    Ok(with_scope(address, choose(config, address.ip())?.chosen.index))
}

/// The interface of this process, by the address from which the route to rank 0 begins.
fn choose(config: &JoinConfig, route: IpAddr) -> Result<InterfaceChoice, JoinError> {
    let all = interfaces::addresses()?;
    InterfaceChoice::new(all, config.interface.as_ref(), route).map_err(|why| {
        JoinError::Config(format!("rank {} has no interface to listen at: {why}", config.rank))
    })
}

/// The variable that names the port where ranks join.
pub(super) const PORT: &str = "MAYPOLE_PORT";
/// The variable that names the port where processes join ranks that run.
pub(super) const ADMISSION_PORT: &str = "MAYPOLE_ADMISSION_PORT";

/// The listener of rank 0, on the first address and port that are free. `variable` names the port.
pub(super) fn listen_as_root(
    config: &JoinConfig,
    variable: &'static str,
) -> Result<TcpListener, JoinError> {
    let addresses = root_addresses(config)?;
    let ports = config.ports.iter().copied();
    let of = |address: &SocketAddr| ports.clone().map(|port| at_port(*address, port)).collect();
    let candidates: Vec<Vec<SocketAddr>> = addresses.iter().map(of).collect();
    TcpListener::bind(&candidates.concat()[..]).map_err(|source| JoinError::PortsTaken {
        rank: 0,
        address: config.address.clone().unwrap_or_else(|| addresses[0].ip().to_string()),
        ports: config.ports.clone(),
        source,
        variable,
    })
}

/// The addresses where rank 0 may listen: those that its name stands for and, if an interface is
/// selected, that interface's alone.
fn root_addresses(config: &JoinConfig) -> Result<Vec<SocketAddr>, JoinError> {
    let addresses = resolve(config)?;
    if config.interface.is_none() {
        return Ok(addresses);
    }
    let choices = addresses.iter().map(|address| choose(config, address.ip()));
    let chosen: Vec<SocketAddr> = choices
        .map(|choice| choice.map(|choice| choice.chosen.with_port(0)))
        .collect::<Result<_, _>>()?;
    // Then all ranks are on this host. The interface must exist all the same.
    if addresses.iter().any(|address| address.ip().is_loopback()) {
        return Ok(addresses);
    }
    let common: Vec<SocketAddr> =
        chosen.iter().copied().filter(|address| addresses.contains(address)).collect();
    let is_literal = config.address.as_deref().is_some_and(|address| {
        let address = address.split_once('%').map_or(address, |(address, _)| address);
        address.parse::<IpAddr>().is_ok()
    });
    match (common.is_empty(), is_literal) {
        (false, _) => Ok(common),
        // The other ranks look up the name, and may find the selected address.
        (true, false) => Ok(chosen),
        (true, true) => Err(JoinError::Config(format!(
            "MAYPOLE_INTERFACE selects {} on rank 0, but the others are told that rank 0 is at {}: \
             change one of the two",
            chosen[0].ip(),
            addresses[0].ip()
        ))),
    }
}

fn at_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// The listener of any other rank. `route` is this rank's end of its connection to rank 0.
pub(super) fn listen_at(config: &JoinConfig, route: SocketAddr) -> Result<TcpListener, JoinError> {
    let selected = config.interface.as_ref().map(|_| choose(config, route.ip())).transpose()?;
    let address = match selected {
        Some(choice) if !route.ip().is_loopback() => choice.chosen.with_port(0),
        _ => route,
    };
    let ports: Vec<u16> = config.data_ports.clone().map_or(vec![0], Iterator::collect);
    let candidates: Vec<_> = ports.iter().map(|port| at_port(address, *port)).collect();
    TcpListener::bind(&candidates[..]).map_err(|source| JoinError::PortsTaken {
        rank: config.rank,
        address: address.ip().to_string(),
        ports,
        source,
        variable: "MAYPOLE_DATA_PORTS",
    })
}

/// What the service of this process is made of. Without a job key the key is all zeros, which is no
/// secret.
pub(super) fn settings(config: &JoinConfig, session: [u8; 16]) -> ServiceSettings {
    let key = config.key.unwrap_or([0; 32]);
    ServiceSettings {
        secret: JobSecret { key, job: config.job.clone(), session },
        timeout: config.timeout,
        encrypt: config.encrypt,
        data_ports: config.data_ports.clone(),
        verbs: Arc::new(VerbsAccess::new(config.verbs.clone())),
    }
}
