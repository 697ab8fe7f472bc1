//! Parses the kernel's text files.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The soft limit in a line of `/proc/self/limits`, like `Max locked memory  8388608  8388608
/// bytes`; `Some(None)` means no limit.
pub(super) fn soft_limit(limits: &str, name: &str) -> Option<Option<u64>> {
    let words = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match words.split_whitespace().next()? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    }
}

/// The number of huge pages in `/proc/meminfo`: those that exist, and the bytes of each.
pub(super) fn huge_pages(meminfo: &str) -> Option<(u64, u64)> {
    let field = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some((field("HugePages_Total:")?, field("Hugepagesize:")? << 10))
}

/// The choice in brackets, in a text like `always [madvise] never`.
pub(super) fn chosen(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(chosen, _)| chosen)
}

/// This machine's addresses in `/proc/net/fib_trie`: the leaves of 32 bits that are `host LOCAL`,
/// each once.
pub(super) fn ipv4_addresses(trie: &str) -> Vec<Ipv4Addr> {
    let mut found = Vec::new();
    let mut leaf = None;
    for line in trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.parse().ok();
        } else if line.starts_with("/32 host LOCAL") {
            found.extend(leaf.filter(|address| !found.contains(address)));
        }
    }
    found
}

/// The addresses in `/proc/net/if_inet6`, with the interface of each.
pub(super) fn ipv6_addresses(text: &str) -> Vec<(String, Ipv6Addr)> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let bits = u128::from_str_radix(words.next()?, 16).ok()?;
        Some((words.next_back()?.to_owned(), Ipv6Addr::from_bits(bits)))
    };
    text.lines().filter_map(line).collect()
}

/// A network in `/proc/net/route`: the interface, the network and its mask.
pub(super) fn routes(text: &str) -> Vec<(String, Ipv4Addr, Ipv4Addr)> {
    let address = |word: &str| {
        u32::from_str_radix(word, 16).ok().map(|bits| Ipv4Addr::from_bits(bits.swap_bytes()))
    };
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        Some(((*words.first()?).to_owned(), address(words.get(1)?)?, address(words.get(7)?)?))
    };
    text.lines().skip(1).filter_map(line).collect()
}

/// The interface through which `address` is reached directly, by the longest mask.
pub(super) fn interface_of(
    address: Ipv4Addr,
    routes: &[(String, Ipv4Addr, Ipv4Addr)],
) -> Option<&str> {
    if address.is_loopback() {
        return Some("lo");
    }
    let direct = routes.iter().filter(|(_, network, mask)| {
        mask.to_bits() != 0 && address.to_bits() & mask.to_bits() == network.to_bits()
    });
    direct.max_by_key(|(_, _, mask)| mask.to_bits()).map(|(name, ..)| name.as_str())
}

/// True if other hosts could reach `address`.
pub(super) fn is_reachable(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !address.is_loopback() && !address.is_link_local(),
        IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read() {
        let text = "Limit                     Soft Limit    Hard Limit    Units     \n\
                    Max open files            1024          524288        files     \n\
                    Max locked memory         unlimited     unlimited     bytes     \n";
        assert_eq!(soft_limit(text, "Max open files"), Some(Some(1024)));
        assert_eq!(soft_limit(text, "Max locked memory"), Some(None));
        assert_eq!(soft_limit(text, "Max nice"), None);
        assert_eq!(soft_limit("Max open files   x", "Max open files"), None);
    }

    #[test]
    fn huge_pages_are_read() {
        let text = "MemTotal: 8 kB\nHugePages_Total:      16\nHugePages_Free: 2\n\
                    Hugepagesize:       2048 kB\n";
        assert_eq!(huge_pages(text), Some((16, 2 << 20)));
        assert_eq!(huge_pages("MemTotal: 8 kB\n"), None);
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen("none"), None);
    }

    #[test]
    fn addresses_are_found_and_their_interfaces() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     +-- 10.1.0.0/16 2 0 2\n        \
                    |-- 10.1.2.3\n           /32 host LOCAL\n\
                    |-- 10.1.255.255\n           /32 link BROADCAST\n     \
                    |-- 127.0.0.1\n        /32 host LOCAL\n\
                    Local:\n        |-- 10.1.2.3\n           /32 host LOCAL\n";
        let found = ipv4_addresses(trie);
        assert_eq!(found, [Ipv4Addr::new(10, 1, 2, 3), Ipv4Addr::LOCALHOST]);
        let table = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n\
                     eth0 00000000 0100010A 0003 0 0 0 00000000 0 0 0\n\
                     eth1 0000010A 00000000 0001 0 0 0 0000FFFF 0 0 0\nnonsense\n";
        let routes = routes(table);
        assert_eq!(routes.len(), 2);
        assert_eq!(interface_of(found[0], &routes), Some("eth1"));
        assert_eq!(interface_of(found[1], &routes), Some("lo"));
        assert_eq!(interface_of(Ipv4Addr::new(192, 0, 2, 1), &routes), None);
    }

    #[test]
    fn ipv6_addresses_are_found() {
        let text = "fe80000000000000021122fffe334455 02 40 20 80     eth0\n\
                    00000000000000000000000000000001 01 80 10 80       lo\nx\n";
        let found = ipv6_addresses(text);
        assert_eq!(found[1], ("lo".to_owned(), Ipv6Addr::LOCALHOST));
        assert_eq!((found.len(), found[0].0.as_str()), (2, "eth0"));
        assert!(!is_reachable(found[0].1.into()) && !is_reachable(Ipv4Addr::LOCALHOST.into()));
        assert!(is_reachable(Ipv4Addr::new(10, 0, 0, 1).into()));
    }
}
