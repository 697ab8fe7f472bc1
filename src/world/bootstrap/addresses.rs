//! Where to listen, and where to knock.

use super::{JoinConfig, JoinError};
use maypole_transports::secure::JobSecret;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};

/// The addresses of rank 0, IPv4 first: that is what a name's other users mostly mean.
pub(super) fn resolve(config: &JoinConfig) -> Result<Vec<IpAddr>, JoinError> {
    let Some(address) = config.address.as_deref() else {
        return Ok(vec![Ipv4Addr::LOCALHOST.into()]);
    };
    let unresolvable = |source| JoinError::Unresolvable { address: address.to_owned(), source };
    let found = (address, 0).to_socket_addrs().map_err(unresolvable)?;
    let mut found: Vec<IpAddr> = found.map(|address| address.ip()).collect();
    found.sort_by_key(IpAddr::is_ipv6);
    found.dedup();
    if found.is_empty() {
        return Err(unresolvable(io::ErrorKind::NotFound.into()));
    }
    if config.key.is_none() && !config.insecure_without_key {
        found.retain(IpAddr::is_loopback);
        if found.is_empty() {
            return Err(JoinError::KeyNeeded { address: address.to_owned() });
        }
    }
    Ok(found)
}

/// Rank 0's listener: the first address and port that can be had.
pub(super) fn listen_as_root(config: &JoinConfig) -> Result<TcpListener, JoinError> {
    let addresses = resolve(config)?;
    let ports = config.ports.iter().copied();
    let places = addresses
        .iter()
        .flat_map(|address| ports.clone().map(move |port| SocketAddr::new(*address, port)));
    first(places).map_err(|source| JoinError::PortsTaken {
        rank: 0,
        address: config.address.clone().unwrap_or_else(|| addresses[0].to_string()),
        ports: config.ports.clone(),
        source,
        variable: "MAYPOLE_PORT",
    })
}

/// Any other rank's listener, on the interface that leads to rank 0.
pub(super) fn listen_at(config: &JoinConfig, address: IpAddr) -> Result<TcpListener, JoinError> {
    let ports: Vec<u16> = config.data_ports.clone().map_or(vec![0], Iterator::collect);
    first(ports.iter().map(|port| SocketAddr::new(address, *port))).map_err(|source| {
        JoinError::PortsTaken {
            rank: config.rank,
            address: address.to_string(),
            ports,
            source,
            variable: "MAYPOLE_DATA_PORTS",
        }
    })
}

fn first(places: impl Iterator<Item = SocketAddr>) -> io::Result<TcpListener> {
    let mut last = io::ErrorKind::InvalidInput.into();
    for place in places {
        match TcpListener::bind(place) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// What the handshakes of this job are made with. Without a key it is one that everybody knows.
pub(super) fn secret(config: &JoinConfig, session: [u8; 16]) -> JobSecret {
    JobSecret { key: config.key.unwrap_or([0; 32]), job: config.job.clone(), session }
}
