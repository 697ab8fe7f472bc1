//! The addresses of this host's network interfaces, and the source address of a route.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, UdpSocket};

/// One address of a network interface of this host.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct InterfaceAddress {
    /// The name of the interface, such as `eth0`.
    pub name: String,
    /// The address.
    pub address: IpAddr,
    /// The number of the interface on this host. A link-local IPv6 address is valid only together
    /// with it.
    pub index: u32,
}

impl InterfaceAddress {
    /// Returns the address with a port, to listen at or to connect to.
    pub fn with_port(&self, port: u16) -> SocketAddr {
        with_scope(SocketAddr::new(self.address, port), self.index)
    }
}

/// Returns `address` with the interface number `index`, if it is a link-local IPv6 address without
/// one; any other address as it is.
pub fn with_scope(address: SocketAddr, index: u32) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0 => {
            SocketAddrV6::new(*v6.ip(), v6.port(), v6.flowinfo(), index).into()
        }
        other => other,
    }
}

/// Returns the addresses of all interfaces of this host (of this network namespace), in the order
/// of the kernel.
///
/// # Errors
/// Errors of the kernel.
///
/// # Examples
///
/// ```
/// let all = maypole_transports::interfaces::addresses()?;
/// let loopback = all.iter().find(|it| it.address.is_loopback());
/// assert!(loopback.is_none_or(|it| it.name.starts_with("lo")));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn addresses() -> io::Result<Vec<InterfaceAddress>> {
    let found = if_addrs::get_if_addrs()?.into_iter().map(|interface| InterfaceAddress {
        address: interface.ip(),
        index: interface.index.unwrap_or(0),
        name: interface.name,
    });
    Ok(found.collect())
}

/// Returns the source address of the route to `to`. Sends nothing.
///
/// # Errors
/// If there is no route.
///
/// # Examples
///
/// ```
/// let source = maypole_transports::interfaces::route_source("127.0.0.1:7".parse().unwrap())?;
/// assert!(source.is_loopback());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn route_source(to: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr =
        if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    // To connect a datagram socket only chooses a route. Port 0 cannot be connected to.
    let mut to = to;
    to.set_port(if to.port() == 0 { 9 } else { to.port() });
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip())
}

/// Listens at the first of `addresses`, each with all of `ports` in turn, that is free.
///
/// ```
/// use maypole_transports::interfaces::listen_at_one_of;
/// let taken = listen_at_one_of(&["127.0.0.1:0".parse().unwrap()], &[0])?;
/// let other = listen_at_one_of(&[taken.local_addr()?], &[taken.local_addr()?.port(), 0])?;
/// assert_ne!(taken.local_addr()?, other.local_addr()?);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// That of the last attempt.
pub fn listen_at_one_of(addresses: &[SocketAddr], ports: &[u16]) -> io::Result<TcpListener> {
    let mut candidates = Vec::new();
    for mut address in addresses.iter().copied() {
        for port in ports {
            address.set_port(*port);
            candidates.push(address);
        }
    }
    TcpListener::bind(&candidates[..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_added_where_it_is_missing_and_means_something() {
        let scoped = |text: &str| with_scope(text.parse().unwrap(), 3).to_string();
        assert_eq!(scoped("[fe80::1]:7"), "[fe80::1%3]:7");
        assert_eq!(scoped("[fe80::1%9]:7"), "[fe80::1%9]:7");
        assert_eq!(scoped("[fd00::1]:7"), "[fd00::1]:7");
        assert_eq!(scoped("10.0.0.1:7"), "10.0.0.1:7");
    }
}
