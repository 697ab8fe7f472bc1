//! Parses the kernel's text files.

use std::net::IpAddr;

/// The soft limit in a line of `/proc/self/limits`, like `Max locked memory  8388608  8388608
/// bytes`; `Some(None)` means no limit.
pub(crate) fn soft_limit(limits: &str, name: &str) -> Option<Option<u64>> {
    let words = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match words.split_whitespace().next()? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    }
}

/// The number in the line of `text` that begins with `name`.
pub(crate) fn number(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
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
    fn addresses_of_one_link_or_one_host_are_not_reachable() {
        let reachable = |address: &str| is_reachable(address.parse().unwrap());
        assert!(reachable("10.0.0.1") && reachable("fd00::1"));
        assert!(!["127.0.0.1", "169.254.0.1", "::1", "fe80::1"].into_iter().any(reachable));
    }
}
