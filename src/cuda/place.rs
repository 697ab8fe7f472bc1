//! Where the mailboxes of a group are: in the memory of its GPUs, or in memory of their hosts.

use crate::schedule::hosts::{Boards, Hosts};

/// The variable by which a user decides.
const VARIABLE: &str = "MAYPOLE_CUDA_MAILBOXES";

/// Its values. A later one on some rank overrules an earlier one on another rank.
const VALUES: [&str; 3] = ["auto", "peer", "host"];
pub(super) const PEER: u32 = 1;
pub(super) const HOST: u32 = 2;

/// Where the mailboxes of a group are, equal on all ranks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum MailboxPlace {
    /// In the memory of each rank's GPU, which all others reach.
    Gpus,
    /// In memory of the host, because some GPUs do not reach one another.
    Host,
    /// In memory of each of several hosts, between which couriers carry what changes.
    Hosts,
}

impl MailboxPlace {
    /// The ranks by which algorithms tell near ones from far ones.
    pub(super) fn boards(self, hosts: &Hosts) -> Boards {
        match self {
            Self::Gpus | Self::Host => Boards::new(&vec![0; hosts.world()]),
            Self::Hosts => Boards::within(hosts),
        }
    }
}

/// The number of the value that the variable has in this process.
pub(super) fn wanted() -> Result<u32, String> {
    number(&std::env::var_os(VARIABLE).unwrap_or_default().to_string_lossy())
}

fn number(value: &str) -> Result<u32, String> {
    let value = if value.is_empty() { VALUES[0] } else { value };
    let found = VALUES.iter().position(|known| *known == value);
    let failed = || format!("{VARIABLE}: '{value}' is none of auto, peer and host");
    found.map(|number| number as u32).ok_or_else(failed)
}

/// The variable by which a user decides how couriers send.
const COURIERS: &str = "MAYPOLE_CUDA_COURIERS";

/// Whether couriers make direct writes where they can, by that variable.
pub(super) fn has_direct_couriers() -> Result<bool, String> {
    are_direct(&std::env::var_os(COURIERS).unwrap_or_default().to_string_lossy())
}

fn are_direct(value: &str) -> Result<bool, String> {
    match value {
        "" | "auto" => Ok(true),
        "stream" => Ok(false),
        other => Err(format!("{COURIERS}: '{other}' is neither auto nor stream")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_one_of_a_few() {
        for (value, expected) in [("", 0), ("auto", 0), ("peer", PEER), ("host", HOST)] {
            assert_eq!(number(value), Ok(expected));
        }
        assert_eq!(["", "auto", "stream"].map(are_direct), [Ok(true), Ok(true), Ok(false)]);
        let why = are_direct("tcp").unwrap_err();
        assert_eq!(why, "MAYPOLE_CUDA_COURIERS: 'tcp' is neither auto nor stream");
        let why = number("gpu").unwrap_err();
        assert_eq!(why, "MAYPOLE_CUDA_MAILBOXES: 'gpu' is none of auto, peer and host");
    }
}
