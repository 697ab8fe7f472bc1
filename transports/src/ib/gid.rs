//! GIDs: the addresses of a port.

use super::abi::{GID_ROCE_V1, GID_ROCE_V2, IbvGidEntry};
use std::fmt;
use std::net::Ipv6Addr;

/// The wire format of packets to a GID.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum GidKind {
    /// InfiniBand.
    InfiniBand,
    /// RoCE version 1: frames of Ethernet, which no router forwards.
    RoceV1,
    /// RoCE version 2: datagrams of UDP.
    RoceV2,
}

impl fmt::Display for GidKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InfiniBand => "InfiniBand",
            Self::RoceV1 => "RoCE v1",
            Self::RoceV2 => "RoCE v2",
        })
    }
}

/// An entry of a port's table of GIDs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Gid {
    /// The place in the port's table. Tables have holes: it is no position in a list of entries.
    pub index: u32,
    /// The 16 bytes of the address.
    pub bytes: [u8; 16],
    /// The wire format of its packets.
    pub kind: GidKind,
}

impl Gid {
    pub(super) fn new(entry: &IbvGidEntry) -> Self {
        let kind = match entry.gid_type {
            GID_ROCE_V1 => GidKind::RoceV1,
            GID_ROCE_V2 => GidKind::RoceV2,
            _ => GidKind::InfiniBand,
        };
        Self { index: entry.gid_index, bytes: entry.gid, kind }
    }

    fn address(&self) -> Ipv6Addr {
        Ipv6Addr::from(self.bytes)
    }

    /// The network of the address, in words. Ports of different networks cannot reach each other.
    pub(super) fn network(&self) -> &'static str {
        let address = self.address();
        match self.kind {
            GidKind::InfiniBand => "InfiniBand",
            GidKind::RoceV1 => "RoCE v1",
            GidKind::RoceV2 if address.to_ipv4_mapped().is_some() => "RoCE v2 over IPv4",
            GidKind::RoceV2 if address.is_unicast_link_local() => "RoCE v2 within a link",
            GidKind::RoceV2 => "RoCE v2 over IPv6",
        }
    }

    /// A lower rank is preferred: an IPv4 address over RoCE version 2, then any other address that
    /// a router forwards, then one of the link alone, then RoCE version 1.
    fn preference(&self) -> (bool, bool, bool) {
        let address = self.address();
        let is_of_link = self.kind != GidKind::InfiniBand && address.is_unicast_link_local();
        let is_mapped = address.to_ipv4_mapped().is_some();
        (self.kind == GidKind::RoceV1, is_of_link, !is_mapped)
    }
}

impl fmt::Display for Gid {
    /// The index, the address and the kind: `1 10.77.0.1 (RoCE v2)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.address();
        match address.to_ipv4_mapped() {
            Some(ipv4) => write!(f, "{} {ipv4} ({})", self.index, self.kind),
            None => write!(f, "{} {address} ({})", self.index, self.kind),
        }
    }
}

/// Chooses the GID that connections use; `None` if there is none. An entry of zeros is no address,
/// and requests name an entry by 8 bits.
pub(super) fn choose(gids: &[Gid]) -> Option<Gid> {
    let used = gids.iter().filter(|gid| gid.bytes != [0; 16] && gid.index <= 255);
    used.copied().min_by_key(|gid| (gid.preference(), gid.index))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn gid(index: u32, address: &str, kind: GidKind) -> Gid {
        let mapped = |ipv4: Ipv4Addr| ipv4.to_ipv6_mapped();
        let address = address.parse().map_or_else(|_| address.parse().unwrap(), mapped);
        Gid { index, bytes: address.octets(), kind }
    }

    #[test]
    fn ipv4_over_the_routed_protocol_comes_first() {
        let link = gid(0, "fe80::1", GidKind::RoceV2);
        let old = gid(2, "10.0.0.1", GidKind::RoceV1);
        let routed = gid(7, "2001:db8::1", GidKind::RoceV2);
        let best = gid(9, "10.0.0.1", GidKind::RoceV2);
        let empty = gid(1, "::", GidKind::RoceV2);
        let from_best = [best, routed, link, old];
        for first in 0..from_best.len() {
            let mut gids = from_best[first..].to_vec();
            gids.push(empty);
            assert_eq!(choose(&gids), Some(from_best[first]));
            gids.reverse();
            assert_eq!(choose(&gids), Some(from_best[first]));
        }
        assert_eq!(choose(&[empty]), None);
        assert_eq!(choose(&[gid(256, "10.0.0.1", GidKind::RoceV2)]), None);
    }

    /// An InfiniBand port has a link-local GID, which its subnet manager made. It is a full address.
    #[test]
    fn the_first_of_an_infiniband_port_serves() {
        let gids = [gid(0, "fe80::2:c903:1", GidKind::InfiniBand)];
        assert_eq!(choose(&gids), Some(gids[0]));
    }

    #[test]
    fn addresses_that_do_not_reach_each_other_are_of_different_networks() {
        let gids = [
            gid(0, "fe80::1", GidKind::InfiniBand),
            gid(0, "10.0.0.1", GidKind::RoceV1),
            gid(0, "10.0.0.1", GidKind::RoceV2),
            gid(0, "2001:db8::1", GidKind::RoceV2),
            gid(0, "fe80::1", GidKind::RoceV2),
        ];
        let networks: std::collections::BTreeSet<_> = gids.iter().map(Gid::network).collect();
        assert_eq!(networks.len(), gids.len());
        let other = gid(5, "10.99.0.7", GidKind::RoceV2);
        assert_eq!(other.network(), gids[2].network());
    }

    #[test]
    fn a_gid_reads_as_its_address() {
        assert_eq!(gid(1, "10.77.0.1", GidKind::RoceV2).to_string(), "1 10.77.0.1 (RoCE v2)");
        assert_eq!(gid(0, "fe80::1", GidKind::RoceV1).to_string(), "0 fe80::1 (RoCE v1)");
    }
}
