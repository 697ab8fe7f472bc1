//! The network interface of a rank: the address where it listens and the other ranks connect.
//!
//! By default it is the address on the route to rank 0, which usually reaches the other ranks too.
//! `MAYPOLE_INTERFACE` chooses another one.

use ipnet::IpNet;
use maypole_transports::interfaces::InterfaceAddress;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Selects a network interface, by its name (`eth0`) or by a network that its address is in
/// (`10.1.0.0/16`, `fd00::/8`).
///
/// ```
/// use maypole::world::bootstrap::interface::InterfaceSelector;
/// let by_network: InterfaceSelector = "10.1.0.0/16".parse()?;
/// assert_eq!(by_network.to_string(), "10.1.0.0/16");
/// assert!("10.1.0.0/40".parse::<InterfaceSelector>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum InterfaceSelector {
    /// The interface of this name.
    Name(String),
    /// Any interface with an address in this network.
    Network(IpNet),
}

impl FromStr for InterfaceSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('/') || text.parse::<IpAddr>().is_ok() {
            let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
            return network.map(|it: IpNet| Self::Network(it.trunc())).map_err(|_| {
                format!("'{text}' is no network; write for example 10.1.0.0/16 or fd00::/8")
            });
        }
        // The kernel's rule for names.
        let is_name = (1..16).contains(&text.len()) && !text.contains(char::is_whitespace);
        if is_name {
            Ok(Self::Name(text.to_owned()))
        } else {
            Err(format!(
                "'{text}' is neither the name of an interface, like eth0, nor a network, like \
                 10.1.0.0/16"
            ))
        }
    }
}

impl fmt::Display for InterfaceSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Network(network) => network.fmt(f),
        }
    }
}

impl InterfaceSelector {
    pub(super) fn selects(&self, interface: &InterfaceAddress) -> bool {
        match self {
            Self::Name(name) => *name == interface.name,
            Self::Network(network) => network.contains(&interface.address),
        }
    }
}

/// The interface that a rank uses, and those that it does not use.
///
/// ```
/// use maypole::world::bootstrap::interface::InterfaceChoice;
/// use maypole_transports::interfaces::InterfaceAddress;
/// let interface = |name: &str, address: &str| InterfaceAddress {
///     name: name.to_owned(),
///     address: address.parse().unwrap(),
///     index: 1,
/// };
/// let all = vec![interface("lo", "127.0.0.1"), interface("eth0", "10.0.0.2")];
/// let route = "10.0.0.2".parse().unwrap();
/// let choice = InterfaceChoice::new(all, None, route)?;
/// assert_eq!(
///     choice.to_string(),
///     "10.0.0.2 on eth0 (the route to rank 0); not used: 127.0.0.1 on lo"
/// );
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InterfaceChoice {
    /// The address that is used.
    pub chosen: InterfaceAddress,
    /// Why it is used.
    reason: String,
    /// All other addresses.
    rejected: Vec<InterfaceAddress>,
}

impl InterfaceChoice {
    /// Chooses among `all` addresses of this host. `route` is the address from which the route to
    /// rank 0 begins; on rank 0 it is its published address.
    ///
    /// Of several addresses that `selector` selects, one of the family of `route` is preferred, and
    /// one that is not link-local.
    ///
    /// # Errors
    /// If `selector` selects nothing; the message lists all interfaces.
    pub fn new(
        all: Vec<InterfaceAddress>,
        selector: Option<&InterfaceSelector>,
        route: IpAddr,
    ) -> Result<Self, String> {
        let is_selected = |it: &InterfaceAddress| match selector {
            None => it.address == route,
            Some(selector) => selector.selects(it),
        };
        let suits = |it: &&InterfaceAddress| {
            let same_family = it.address.is_ipv4() == route.is_ipv4();
            (it.address == route, same_family, !is_link_local(it.address))
        };
        // Of equally suitable addresses, the first counts.
        let chosen = all.iter().rev().filter(|it| is_selected(it)).max_by_key(suits);
        let Some(chosen) = chosen.cloned() else {
            let wanted = selector.map_or_else(|| route.to_string(), ToString::to_string);
            return Err(format!("no interface of this host has {wanted}; it has {}", listed(&all)));
        };
        let reason = match selector {
            Some(selector) => format!("MAYPOLE_INTERFACE={selector}"),
            None => "the route to rank 0".to_owned(),
        };
        let rejected = all.into_iter().filter(|it| *it != chosen).collect();
        Ok(Self { chosen, reason, rejected })
    }
}

impl fmt::Display for InterfaceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { chosen, reason, rejected } = self;
        let unused = listed(rejected);
        write!(f, "{} on {} ({reason}); not used: {unused}", chosen.address, chosen.name)
    }
}

/// `127.0.0.1 on lo, 10.0.0.2 on eth0`.
fn listed(all: &[InterfaceAddress]) -> String {
    let names = all.iter().map(|it| format!("{} on {}", it.address, it.name));
    let names: Vec<String> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

pub(super) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// The addresses of a host, for tests.
#[cfg(test)]
pub(super) fn sample_host() -> Vec<InterfaceAddress> {
    let of = |(name, address, index): (&str, &str, u32)| InterfaceAddress {
        name: name.to_owned(),
        address: address.parse().unwrap(),
        index,
    };
    [
        ("lo", "127.0.0.1", 1),
        ("eth0", "10.0.0.2", 2),
        ("eth1", "fe80::1", 3),
        ("eth1", "10.1.0.2", 3),
        ("eth1", "fd00::2", 3),
    ]
    .map(of)
    .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(selector: Option<&str>, route: &str) -> Result<String, String> {
        let selector = selector.map(|text| text.parse::<InterfaceSelector>().unwrap());
        let choice =
            InterfaceChoice::new(sample_host(), selector.as_ref(), route.parse().unwrap())?;
        Ok(choice.chosen.address.to_string())
    }

    #[test]
    fn the_route_to_rank_0_decides() {
        assert_eq!(choose(None, "10.0.0.2").unwrap(), "10.0.0.2");
        assert_eq!(choose(None, "fd00::2").unwrap(), "fd00::2");
        let error = choose(None, "10.9.9.9").unwrap_err();
        assert!(
            error.contains("has 10.9.9.9; it has 127.0.0.1 on lo, 10.0.0.2 on eth0"),
            "{error}"
        );
    }

    #[test]
    fn a_name_or_a_network_overrules_the_route() {
        assert_eq!(choose(Some("eth1"), "10.0.0.2").unwrap(), "10.1.0.2");
        assert_eq!(choose(Some("10.1.0.0/16"), "10.0.0.2").unwrap(), "10.1.0.2");
        assert_eq!(choose(Some("10.1.0.2"), "10.0.0.2").unwrap(), "10.1.0.2");
        // The family of rank 0, and no link-local address where there is another one.
        assert_eq!(choose(Some("eth1"), "fd01::9").unwrap(), "fd00::2");
        assert_eq!(choose(Some("fe80::/10"), "10.0.0.2").unwrap(), "fe80::1");
        let error = choose(Some("eth7"), "10.0.0.2").unwrap_err();
        assert!(error.contains("has eth7; it has 127.0.0.1 on lo"), "{error}");
    }

    #[test]
    fn the_other_interfaces_are_named() {
        let selector = "eth1".parse().unwrap();
        let choice =
            InterfaceChoice::new(sample_host(), Some(&selector), "10.0.0.2".parse().unwrap());
        assert_eq!(
            choice.unwrap().to_string(),
            "10.1.0.2 on eth1 (MAYPOLE_INTERFACE=eth1); not used: 127.0.0.1 on lo, 10.0.0.2 on eth0, \
             fe80::1 on eth1, fd00::2 on eth1"
        );
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "10.1.0.0/40", "eth 0", "a/b", "an-interface-of-long-name"] {
            assert!(text.parse::<InterfaceSelector>().is_err(), "{text}");
        }
    }
}
