//! The port that a launcher chooses for the ranks that it starts.

use maypole_transports::random;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};

/// The ports that are tried. Below 32768 the system allocates no ports for outgoing connections, so
/// no connection takes the port between the launcher's choice and rank 0's call of `listen`.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// How many ports are tried.
const ATTEMPTS: u64 = 1000;

/// Listens at `address` on a free port from 20000 to 31999. A launcher drops the listener and names
/// the port in `MAYPOLE_PORT`. The search begins at a random port, so that two launchers seldom
/// choose the same one.
///
/// # Errors
/// If none of a thousand ports is free, or the system returns no random number.
pub fn free_port(address: IpAddr) -> io::Result<TcpListener> {
    let start = u64::from_ne_bytes(random::bytes()?);
    let span = u64::from(PORTS.end - PORTS.start);
    let port = |step: u64| PORTS.start + (start.wrapping_add(step) % span) as u16;
    let candidates: Vec<SocketAddr> =
        (0..ATTEMPTS).map(|step| (address, port(step)).into()).collect();
    TcpListener::bind(&candidates[..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    /// The system allocates higher ports to any program that connects.
    #[test]
    fn ports_are_below_those_of_outgoing_connections() {
        let held: Vec<_> =
            (0..50).map(|_| free_port(Ipv4Addr::LOCALHOST.into()).unwrap()).collect();
        let mut ports: Vec<u16> = held.iter().map(|it| it.local_addr().unwrap().port()).collect();
        assert!(ports.iter().all(|port| PORTS.contains(port)), "{ports:?}");
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 50);
    }
}
