//! The rendezvous address in the name of a group.

use crate::core::Id;
use crate::error::Failure;
use crate::variables;
use maypole_transports::interfaces::{InterfaceAddress, addresses};
use std::net::IpAddr;

/// A name for a new group whose rank 0 is on this host. Its address is that of `MAYPOLE_INTERFACE`, else of
/// `NCCL_SOCKET_IFNAME`, else one that other hosts reach.
pub(crate) fn new_id() -> Result<Id, Failure> {
    let family = variables::socket_family();
    let is_ours = std::env::var_os("MAYPOLE_INTERFACE").is_some_and(|value| !value.is_empty());
    let list = variables::interfaces().filter(|_| !is_ours);
    if list.is_none() && (is_ours || family.is_none()) {
        return Ok(Id::new()?);
    }
    let all = addresses().map_err(|error| Failure::system(format!("no interfaces: {error}")))?;
    match choose(&all, list.as_deref(), family) {
        Some(address) => Ok(Id::at(&address.to_string())?),
        None => {
            let names: Vec<_> =
                all.iter().map(|it| format!("{} on {}", it.address, it.name)).collect();
            let wanted = match (list, family) {
                (Some(list), _) => format!("NCCL_SOCKET_IFNAME={list}"),
                (None, _) => "NCCL_SOCKET_FAMILY".to_owned(),
            };
            Err(Failure::system(format!(
                "{wanted} selects no interface of this host, which has {}",
                names.join(", ")
            )))
        }
    }
}

/// The address of the best interface that `list` selects: not link-local, and IPv4 before IPv6. Without a
/// list, loopback comes last.
fn choose(all: &[InterfaceAddress], list: Option<&str>, family: Option<Family>) -> Option<IpAddr> {
    let suits = |it: &&InterfaceAddress| {
        let fits = match family {
            Some(Family::V4) => it.address.is_ipv4(),
            Some(Family::V6) => it.address.is_ipv6(),
            None => true,
        };
        fits && list.is_none_or(|list| selects(list, &it.name))
    };
    let rank = |it: &&InterfaceAddress| {
        let is_link_local = match it.address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        let is_last = list.is_none() && it.address.is_loopback();
        (is_last, is_link_local, it.address.is_ipv6())
    };
    all.iter().filter(suits).min_by_key(rank).map(|it| it.address)
}

/// The address family that `NCCL_SOCKET_FAMILY` selects.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Family {
    V4,
    V6,
}

/// True if a list in NCCL's format selects an interface: prefixes of names, or whole names after `=`; names
/// after `^` are excluded.
fn selects(list: &str, name: &str) -> bool {
    let (is_excluded, list) = match list.strip_prefix('^') {
        Some(list) => (true, list),
        None => (false, list),
    };
    let (is_exact, list) = match list.strip_prefix('=') {
        Some(list) => (true, list),
        None => (false, list),
    };
    let is_listed = list.split(',').filter(|part| !part.is_empty()).any(|part| {
        match (part.strip_prefix('='), is_exact) {
            (Some(part), _) => name == part,
            (None, true) => name == part,
            (None, false) => name.starts_with(part),
        }
    });
    is_listed != is_excluded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_interfaces_are_read_as_nccl_reads_them() {
        assert!(selects("eth", "eth0") && selects("eth0,ib", "ib1") && !selects("eth", "ib0"));
        assert!(selects("=eth1", "eth1") && !selects("=eth1", "eth10") && selects("eth1", "eth10"));
        assert!(selects("=a,b", "b") && !selects("=a,b", "b0"));
        assert!(!selects("^docker,lo", "lo") && selects("^docker", "eth0"));
        assert!(!selects("^=eth1", "eth1") && selects("^=eth1", "eth10"));
    }

    #[test]
    fn the_best_address_of_the_selected_interfaces_counts() {
        let of = |(name, address): (&str, &str)| InterfaceAddress {
            name: name.to_owned(),
            address: address.parse().unwrap(),
            index: 1,
        };
        let all = [
            ("lo", "127.0.0.1"),
            ("eth0", "fe80::1"),
            ("eth0", "fd00::1"),
            ("eth0", "10.0.0.1"),
            ("ib0", "10.1.0.1"),
        ]
        .map(of);
        let chosen = |list, family| choose(&all, list, family).map(|it| it.to_string());
        assert_eq!(chosen(Some("eth"), None).as_deref(), Some("10.0.0.1"));
        assert_eq!(chosen(Some("eth"), Some(Family::V6)).as_deref(), Some("fd00::1"));
        assert_eq!(chosen(Some("=ib0"), None).as_deref(), Some("10.1.0.1"));
        assert_eq!(chosen(Some("lo"), None).as_deref(), Some("127.0.0.1"));
        assert_eq!(chosen(None, Some(Family::V6)).as_deref(), Some("fd00::1"));
        assert_eq!(chosen(Some("nosuch"), None), None);
    }
}
