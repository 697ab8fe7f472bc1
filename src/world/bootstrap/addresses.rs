//! The addresses at which ranks listen and connect, and the secret that they share.

use super::{JoinConfig, JoinError};
use maypole_transports::secure::JobSecret;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};

/// The addresses of rank 0, IPv4 before IPv6, because a host name usually stands for its IPv4
/// address.
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

/// The listener of rank 0, on the first address and port that are free.
pub(super) fn listen_as_root(config: &JoinConfig) -> Result<TcpListener, JoinError> {
    let addresses = resolve(config)?;
    let ports = config.ports.iter().copied();
    let candidates = addresses
        .iter()
        .flat_map(|address| ports.clone().map(move |port| SocketAddr::new(*address, port)));
    first_free(candidates).map_err(|source| JoinError::PortsTaken {
        rank: 0,
        address: config.address.clone().unwrap_or_else(|| addresses[0].to_string()),
        ports: config.ports.clone(),
        source,
        variable: "MAYPOLE_PORT",
    })
}

/// The listener of any other rank, on the network interface that leads to rank 0.
pub(super) fn listen_at(config: &JoinConfig, address: IpAddr) -> Result<TcpListener, JoinError> {
    let ports: Vec<u16> = config.data_ports.clone().map_or(vec![0], Iterator::collect);
    first_free(ports.iter().map(|port| SocketAddr::new(address, *port))).map_err(|source| {
        JoinError::PortsTaken {
            rank: config.rank,
            address: address.to_string(),
            ports,
            source,
            variable: "MAYPOLE_DATA_PORTS",
        }
    })
}

fn first_free(candidates: impl Iterator<Item = SocketAddr>) -> io::Result<TcpListener> {
    let mut last = io::ErrorKind::InvalidInput.into();
    for candidate in candidates {
        match TcpListener::bind(candidate) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The secret of this job's handshakes. Without a job key the key is all zeros, which is no
/// secret.
pub(super) fn secret(config: &JoinConfig, session: [u8; 16]) -> JobSecret {
    JobSecret { key: config.key.unwrap_or([0; 32]), job: config.job.clone(), session }
}
