//! The addresses at which ranks listen and connect, and the settings of their services.

use super::interface::{InterfaceChoice, InterfaceSelector, is_link_local};
use super::{JoinConfig, JoinError};
use crate::world::VerbsAccess;
use crate::world::service::ServiceSettings;
use maypole_transports::interfaces::{self, InterfaceAddress, listen_at_one_of, with_scope};
use maypole_transports::secure::JobSecret;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;

/// The addresses at which rank 0 may listen, with port 0, in the order in which they are tried.
///
/// On many hosts the host's own name resolves to a loopback address. A process that reached rank 0
/// there would publish a loopback address to other hosts, so addresses that they reach come first.
pub(super) fn resolve(config: &JoinConfig) -> Result<Vec<SocketAddr>, JoinError> {
    let found = look_up(config)?;
    if !is_own_name(config, &found) {
        return Ok(found);
    }
    let own = own_addresses(config.interface.as_ref());
    let (loopback, others): (Vec<_>, Vec<_>) = found.into_iter().partition(is_loopback);
    let own = own.iter().map(|own| own.with_port(0)).filter(|own| !others.contains(own));
    let own: Vec<SocketAddr> = own.collect();
    Ok([others, own, loopback].concat())
}

/// The addresses that rank 0's name resolves to, with port 0, IPv4 before IPv6: a host name usually
/// means its IPv4 address.
fn look_up(config: &JoinConfig) -> Result<Vec<SocketAddr>, JoinError> {
    let Some(address) = config.address.as_deref() else {
        return Ok(vec![(Ipv4Addr::LOCALHOST, 0).into()]);
    };
    let unresolvable = |error: io::Error| {
        let text = format!("the address of rank 0, '{address}', cannot be resolved: {error}");
        JoinError::passing(text)
    };
    let found = (address, 0).to_socket_addrs().map_err(unresolvable)?;
    let mut found: Vec<SocketAddr> = found.collect();
    found.sort_by_key(SocketAddr::is_ipv6);
    found.dedup();
    if found.is_empty() {
        return Err(unresolvable(io::ErrorKind::NotFound.into()));
    }
    if !is_open(config) {
        found.retain(is_loopback);
        if found.is_empty() {
            return Err(JoinError::key_needed(address));
        }
    }
    found.into_iter().map(|address| scoped(config, address)).collect()
}

fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// True if other hosts may join.
fn is_open(config: &JoinConfig) -> bool {
    config.key.is_some() || config.insecure_without_key
}

/// True if rank 0 is at a name that other hosts may look up, and that is no name of loopback.
fn is_host_name(config: &JoinConfig) -> bool {
    config.address.as_deref().is_some_and(|name| {
        let plain = name.trim_end_matches('.').to_ascii_lowercase();
        let of_loopback = plain == "localhost"
            || plain.ends_with(".localhost")
            || plain.starts_with("localhost.")
            || ["ip6-localhost", "ip6-loopback"].contains(&&*plain);
        !of_loopback && !is_number(name)
    })
}

/// True for an address in digits, also with an interface suffix.
fn is_number(address: &str) -> bool {
    let address = address.split_once('%').map_or(address, |(address, _)| address);
    address.parse::<IpAddr>().is_ok()
}

/// True if rank 0's name is this host's own and resolves to loopback here, and other hosts may
/// join.
fn is_own_name(config: &JoinConfig, found: &[SocketAddr]) -> bool {
    is_open(config) && is_host_name(config) && found.iter().any(is_loopback)
}

/// Addresses of no host, to query the route to other hosts (RFC 5737, 3849).
const ELSEWHERE: [&str; 2] = ["192.0.2.1:9", "[2001:db8::1]:9"];

/// The addresses of this host that other hosts may reach, the most likely one first: those that
/// `selector` selects, not link-local, on the default route, of a network, of IPv4.
fn own_addresses(selector: Option<&InterfaceSelector>) -> Vec<InterfaceAddress> {
    let routes: Vec<IpAddr> =
        ELSEWHERE.iter().filter_map(|to| interfaces::route_source(to.parse().ok()?).ok()).collect();
    // In a sandbox that hides them, the name's addresses are used.
    by_reach(interfaces::addresses().unwrap_or_default(), selector, &routes)
}

fn by_reach(
    mut own: Vec<InterfaceAddress>,
    selector: Option<&InterfaceSelector>,
    routes: &[IpAddr],
) -> Vec<InterfaceAddress> {
    own.retain(|it| !it.address.is_loopback());
    own.sort_by_key(|it| {
        let selected = selector.is_some_and(|selector| selector.selects(it));
        let on_route = routes.contains(&it.address);
        let link_local = is_link_local(it.address);
        (!selected, link_local, !on_route, is_virtual(it), it.address.is_ipv6())
    });
    own
}

/// True for an interface to containers and virtual machines of this host: other hosts have the same
/// addresses.
fn is_virtual(interface: &InterfaceAddress) -> bool {
    ["docker", "br-", "veth", "virbr", "lxc"].iter().any(|name| interface.name.starts_with(name))
}

/// The address that rank 0 publishes, where no variable names it: the address of the selected
/// interface; the name of this host, if it resolves to an address of an interface here; else the
/// address that other hosts most likely reach, and `host_name` if there is none.
pub(crate) fn published_address(
    host_name: String,
    selector: Option<&InterfaceSelector>,
) -> Result<String, JoinError> {
    if selector.is_some() {
        let all = interfaces::addresses().unwrap_or_default();
        let choice = InterfaceChoice::new(all, selector, Ipv4Addr::UNSPECIFIED.into());
        let refused = |why| JoinError::setting(format!("rank 0 has no such address: {why}"));
        return choice.map(|choice| choice.chosen.address.to_string()).map_err(refused);
    }
    let own = own_addresses(None);
    let is_own = |address: SocketAddr| own.iter().any(|own| own.address == address.ip());
    if (&*host_name, 0).to_socket_addrs().into_iter().flatten().any(is_own) {
        return Ok(host_name);
    }
    let best = own.first().filter(|it| !is_link_local(it.address));
    Ok(best.map_or(host_name, |best| best.address.to_string()))
}

/// `address` with the interface that it is reached through, if it is link-local.
fn scoped(config: &JoinConfig, address: SocketAddr) -> Result<SocketAddr, JoinError> {
    let needs_scope = with_scope(address, 1) != address;
    if !needs_scope {
        return Ok(address);
    }
    if config.interface.is_none() {
        return Err(JoinError::setting(format!(
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
        JoinError::setting(format!("rank {} has no interface to listen at: {why}", config.rank))
    })
}

/// The variable that names the port where ranks join.
pub(super) const PORT: &str = "MAYPOLE_PORT";

/// The listener of rank 0, on the first address and port that are free.
pub(super) fn listen_as_root(config: &JoinConfig) -> Result<TcpListener, JoinError> {
    let addresses = root_addresses(config)?;
    listen_at_one_of(&addresses, &config.ports).map_err(|error| {
        let address = config.address.clone().unwrap_or_else(|| addresses[0].ip().to_string());
        match error.kind() {
            io::ErrorKind::AddrNotAvailable => JoinError::not_this_host(&address, &addresses),
            _ => JoinError::ports_taken((0, &address), &config.ports, &error, PORT),
        }
    })
}

/// The addresses where rank 0 may listen: those that its name resolves to and, if an interface is
/// selected, that interface's alone. Where the name may resolve to another address on other hosts,
/// it listens at all.
fn root_addresses(config: &JoinConfig) -> Result<Vec<SocketAddr>, JoinError> {
    let found = look_up(config)?;
    let is_own_name = is_own_name(config, &found);
    if config.interface.is_none() {
        if !is_open(config) || !is_host_name(config) || found.len() == 1 && !is_own_name {
            return Ok(found);
        }
        let here = interfaces::addresses().unwrap_or_default();
        let is_here = |it: &SocketAddr| here.iter().any(|own| own.address == it.ip());
        return match is_own_name || here.is_empty() || found.iter().any(is_here) {
            true => Ok(vec![(Ipv6Addr::UNSPECIFIED, 0).into(), (Ipv4Addr::UNSPECIFIED, 0).into()]),
            false => {
                let address = config.address.as_deref().unwrap_or_default();
                Err(JoinError::not_this_host(address, &found))
            }
        };
    }
    let choices = found.iter().map(|address| choose(config, address.ip()));
    let chosen: Vec<SocketAddr> = choices
        .map(|choice| choice.map(|choice| choice.chosen.with_port(0)))
        .collect::<Result<_, _>>()?;
    // Then all ranks are on this host. The interface must exist all the same.
    if !is_own_name && found.iter().any(is_loopback) {
        return Ok(found);
    }
    let common: Vec<SocketAddr> =
        chosen.iter().copied().filter(|address| found.contains(address)).collect();
    let is_fixed = config.address.as_deref().is_some_and(is_number)
        && !found.iter().all(|address| address.ip().is_unspecified());
    match (common.is_empty(), is_fixed) {
        (false, _) => Ok(common),
        // The other ranks look up the name, and may find the selected address.
        (true, false) => Ok(chosen),
        (true, true) => Err(JoinError::setting(format!(
            "MAYPOLE_INTERFACE selects {} on rank 0, but the others are told that rank 0 is at {}: \
             change one of the two",
            chosen[0].ip(),
            found[0].ip()
        ))),
    }
}

/// The most likely address at which other hosts reach `listener`.
pub(super) fn reached_at(
    config: &JoinConfig,
    listener: &TcpListener,
) -> Result<SocketAddr, JoinError> {
    let address = listener.local_addr()?;
    if !address.ip().is_unspecified() {
        return Ok(address);
    }
    let own = own_addresses(config.interface.as_ref());
    let own = own.iter().find(|own| address.is_ipv6() || own.address.is_ipv4());
    let loopback = (Ipv4Addr::LOCALHOST, address.port()).into();
    Ok(own.map_or(loopback, |own| own.with_port(address.port())))
}

/// The listener of any other rank. `route` is this rank's end of its connection to rank 0.
pub(super) fn listen_at(config: &JoinConfig, route: SocketAddr) -> Result<TcpListener, JoinError> {
    let selected = config.interface.as_ref().map(|_| choose(config, route.ip())).transpose()?;
    let address = match selected {
        Some(choice) if !route.ip().is_loopback() => choice.chosen.with_port(0),
        _ => route,
    };
    let ports: Vec<u16> = config.data_ports.clone().map_or(vec![0], Iterator::collect);
    listen_at_one_of(&[address], &ports).map_err(|error| {
        let place = (config.rank, &*address.ip().to_string());
        JoinError::ports_taken(place, &ports, &error, "MAYPOLE_DATA_PORTS")
    })
}

/// The settings of this process's service. Without a job key the key is all zeros, which is no
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

#[cfg(test)]
mod tests {
    use super::super::interface::sample_host;
    use super::*;

    #[test]
    fn other_hosts_reach_an_address_of_the_default_route_first() {
        let first = |selector: Option<&str>, route: &str| {
            let selector = selector.map(|text| text.parse::<InterfaceSelector>().unwrap());
            let own = by_reach(sample_host(), selector.as_ref(), &[route.parse().unwrap()]);
            own[0].address.to_string()
        };
        assert_eq!(first(None, "127.0.0.1"), "10.0.0.2");
        assert_eq!(first(None, "10.1.0.2"), "10.1.0.2");
        assert_eq!(first(None, "fd00::2"), "fd00::2");
        assert_eq!(first(Some("eth1"), "10.0.0.2"), "10.1.0.2");
        let bridge = |name: &str| {
            let bridge = InterfaceAddress { name: name.to_owned(), ..sample_host()[1].clone() };
            by_reach([vec![bridge], sample_host()].concat(), None, &[]).swap_remove(0).name
        };
        assert_eq!([bridge("docker0"), bridge("ib0")], ["eth0", "ib0"]);
    }

    #[test]
    fn a_selected_interface_is_published_and_one_that_is_missing_is_an_error() {
        let published = |selector: &str| {
            let selector: InterfaceSelector = selector.parse().unwrap();
            published_address("node7".to_owned(), Some(&selector)).map_err(|it| it.to_string())
        };
        assert_eq!(published("127.0.0.1").unwrap(), "127.0.0.1");
        assert!(published("eth77").unwrap_err().contains("no interface of this host has eth77"));
    }
}
