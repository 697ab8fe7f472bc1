//! Checks the network interfaces, the launcher's variables, the ports and the job key.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};

use maypole::world::bootstrap::interface::{InterfaceChoice, InterfaceSelector};
use maypole::world::launch::{
    KeySource, Launch, LaunchDescription, LaunchError, unknown_variables,
};
use maypole_transports::descriptor::open_private;
use maypole_transports::interfaces::{self, InterfaceAddress};

use super::{Finding, kernel_text};

pub(super) fn check(described: &Result<LaunchDescription, LaunchError>) -> Vec<Finding> {
    let launch = described.as_ref().ok().map(|described| &described.launch);
    let mut findings = vec![interfaces(launch)];
    match described {
        Ok(described) => {
            let launch = &described.launch;
            let address =
                launch.address.as_deref().unwrap_or("an address from the process manager");
            let text = format!("rank {} of {}, rank 0 at {address}", launch.rank, launch.world);
            findings.push(Finding::ok("environment", text));
            findings.extend(named(launch, &described.key));
            findings.push(ports(&launch.ports, launch.rank, is_free));
            findings.push(key(&described.key, launch.local_world.unwrap_or(1) < launch.world));
        }
        Err(error) => {
            let fix = "correct the variable, or unset it to run as a world of one rank";
            findings.push(Finding::problem("environment", error.to_string(), fix));
        }
    }
    findings
}

/// A problem for each variable that looks like one of maypole's and does not exist.
pub(super) fn unknown(names: impl Iterator<Item = String>) -> Vec<Finding> {
    let told = |(name, nearest): (String, Option<&str>)| {
        let fix = match nearest {
            Some(nearest) => format!("did you mean {nearest}?"),
            None => format!("unset {name}; the README lists the variables"),
        };
        Finding::problem("variables", format!("there is no {name}; it is ignored"), fix)
    };
    unknown_variables(names).into_iter().map(told).collect()
}

/// A problem if the name of rank 0's host is unknown here, and a note if it resolves to loopback.
/// Not for one rank alone.
fn named(launch: &Launch, key: &KeySource) -> Option<Finding> {
    let name = launch.address.as_deref().filter(|_| launch.world > 1)?;
    let found: Vec<SocketAddr> = match (name, launch.ports[0]).to_socket_addrs() {
        Ok(found) => found.collect(),
        Err(error) => {
            let fix = "set MAYPOLE_ADDRESS (or the launcher's MASTER_ADDR) to a name or an address \
                       that this host can resolve, or add the name to /etc/hosts";
            return Some(Finding::problem("address", format!("of rank 0: {name}: {error}"), fix));
        }
    };
    let is_plain = name.parse::<IpAddr>().is_ok() || name == "localhost";
    let loopback = found.iter().find(|address| address.ip().is_loopback() && !is_plain)?;
    let text = format!("{name} is {} on this host, where no other host reaches it", loopback.ip());
    Some(match key {
        KeySource::None => Finding::warning(
            "address",
            text,
            "for a job on several hosts, set a job key ('maypole key new FILE'): then rank 0 listens \
             at all addresses of its host",
        ),
        _ => Finding::ok("address", format!("{text}; rank 0 listens at all addresses of its host")),
    })
}

/// The interface that a job would use and the others with the reasons, if rank 0's address is set;
/// else all interfaces.
fn interfaces(launch: Option<&Launch>) -> Finding {
    let all = interfaces::addresses().unwrap_or_default();
    let selector = std::env::var("MAYPOLE_INTERFACE").ok().filter(|text| !text.is_empty());
    let selector = match selector.map(|text| text.parse::<InterfaceSelector>()).transpose() {
        Ok(selector) => selector,
        Err(why) => {
            let text = format!("MAYPOLE_INTERFACE: {why}");
            return Finding::problem("interfaces", text, "correct the variable, or unset it");
        }
    };
    let route = launch.filter(|launch| launch.world > 1).and_then(route_to_root);
    match route.filter(|route| !route.is_loopback()) {
        Some(route) => assess_choice(InterfaceChoice::new(all, selector.as_ref(), route)),
        None => assess_interfaces(&all),
    }
}

/// The address from which the route to rank 0 begins; `None` if its name is unknown here.
fn route_to_root(launch: &Launch) -> Option<IpAddr> {
    let addresses = (launch.address.as_deref()?, launch.ports[0]).to_socket_addrs().ok()?;
    let mut addresses: Vec<SocketAddr> = addresses.collect();
    // As ranks do when they join.
    addresses.sort_by_key(SocketAddr::is_ipv6);
    addresses.into_iter().find_map(|address| interfaces::route_source(address).ok())
}

fn assess_choice(choice: Result<InterfaceChoice, String>) -> Finding {
    match choice {
        Ok(choice) => Finding::ok("interfaces", choice.to_string()),
        Err(why) => {
            let fix =
                "set MAYPOLE_INTERFACE to the name or the network of one of them, or unset it";
            Finding::problem("interfaces", why, fix)
        }
    }
}

fn assess_interfaces(all: &[InterfaceAddress]) -> Finding {
    let list = all
        .iter()
        .map(|interface| format!("{} {}", interface.name, interface.address))
        .collect::<Vec<_>>()
        .join(", ");
    if all.iter().any(|interface| kernel_text::is_reachable(interface.address)) {
        return Finding::ok("interfaces", list);
    }
    let text = if list.is_empty() {
        "none found".to_owned()
    } else {
        format!("no address that other hosts reach: {list}")
    };
    Finding::warning(
        "interfaces",
        text,
        "for a job on several hosts, configure a network interface",
    )
}

fn is_free(port: u16) -> Result<(), ErrorKind> {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).map(drop).map_err(|error| error.kind())
}

/// Only rank 0 listens on these ports, so for other ranks a taken port is only a warning.
fn ports(
    candidates: &[u16],
    rank: usize,
    is_free: impl Fn(u16) -> Result<(), ErrorKind>,
) -> Finding {
    let taken: Vec<u16> =
        candidates.iter().copied().filter(|port| is_free(*port).is_err()).collect();
    let first = candidates[0];
    let last = candidates[candidates.len() - 1];
    let count = candidates.len();
    let range = if count == 1 { format!("{first}") } else { format!("{first} to {last}") };
    if taken.is_empty() {
        return Finding::ok("ports", format!("{range}: free"));
    }
    let list = taken.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    if taken.len() < count {
        return Finding::ok("ports", format!("{range}: free but for {list}"));
    }
    let text = format!("{range}: all taken");
    let fix = "set MAYPOLE_PORT to a free port for all ranks";
    if rank == 0 {
        Finding::problem("ports", text, fix)
    } else {
        Finding::warning("ports", text, fix)
    }
}

/// The remedy without a key that can be used.
const NEW_KEY: &str =
    "make one with `maypole key new FILE` and set MAYPOLE_JOB_KEY_FILE=FILE for all ranks";

/// Says where the key is; never prints the key.
fn key(source: &KeySource, several_hosts: bool) -> Finding {
    match source {
        KeySource::None if several_hosts => {
            Finding::problem("key", "none, so only processes of this host can join", NEW_KEY)
        }
        KeySource::None => Finding::ok("key", "none: only processes of this host can join"),
        KeySource::Descriptor(number) => {
            Finding::ok("key", format!("in the inherited descriptor {number}"))
        }
        KeySource::Value(_) => {
            let fix = "write it to a private file and set MAYPOLE_JOB_KEY_FILE to its path";
            Finding::warning(
                "key",
                "in MAYPOLE_JOB_KEY, which other processes of this user can read",
                fix,
            )
        }
        KeySource::File(path) => match open_private(path) {
            Ok(_) => {
                Finding::ok("key", format!("in {}, readable by this user only", path.display()))
            }
            // The error names the remedy for this file.
            Err(error) => Finding::problem("key", format!("{}: {error}", path.display()), NEW_KEY),
        },
        _ => Finding::ok("key", "present"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn ports_are_a_problem_if_none_is_left_for_rank_0() {
        let taken = |_| Err(ErrorKind::AddrInUse);
        assert_eq!(ports(&[7, 8], 0, |_| Ok(())), Finding::ok("ports", "7 to 8: free"));
        let one = |port| if port == 7 { Err(ErrorKind::AddrInUse) } else { Ok(()) };
        assert_eq!(ports(&[7, 8], 0, one), Finding::ok("ports", "7 to 8: free but for 7"));
        assert_eq!(ports(&[7], 0, taken).severity, Severity::Problem);
        assert_eq!(ports(&[7], 1, taken).severity, Severity::Warning);
    }

    #[test]
    fn a_key_is_needed_between_hosts() {
        assert_eq!(key(&KeySource::None, true).severity, Severity::Problem);
        assert_eq!(key(&KeySource::None, false).severity, Severity::Ok);
        assert_eq!(key(&KeySource::File("/no/such/key".into()), false).severity, Severity::Problem);
    }

    #[test]
    fn loopback_alone_is_a_warning() {
        let of = |name: &str, address: &str| InterfaceAddress {
            name: name.to_owned(),
            address: address.parse().unwrap(),
            index: 1,
        };
        let lo = of("lo", "127.0.0.1");
        assert_eq!(assess_interfaces(std::slice::from_ref(&lo)).severity, Severity::Warning);
        let eth = of("eth0", "10.0.0.1");
        assert_eq!(
            assess_interfaces(&[lo, eth]),
            Finding::ok("interfaces", "lo 127.0.0.1, eth0 10.0.0.1")
        );
    }
}
