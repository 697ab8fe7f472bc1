//! Where the mailboxes of a group are: in the memory of its GPUs, or in memory of their hosts.

use crate::schedule::hosts::{Boards, Hosts};
use serde::{Deserialize, Serialize};

/// The variable by which a user decides, and its values. A later one on some rank overrules an earlier one on
/// another rank.
const MAILBOXES: (&str, &[&str]) = ("MAYPOLE_CUDA_MAILBOXES", &["auto", "peer", "host"]);
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
    number(MAILBOXES, &set(MAILBOXES.0)).map(|number| number as u32)
}

fn set(variable: &str) -> String {
    std::env::var_os(variable).unwrap_or_default().to_string_lossy().into_owned()
}

/// The number of this value among those of a variable, of which the first is the default.
fn number((variable, values): (&str, &[&str]), value: &str) -> Result<usize, String> {
    let value = if value.is_empty() { values[0] } else { value };
    let [all @ .., last] = values else { return Ok(0) };
    let failed = || format!("{variable}: '{value}' is none of {} and {last}", all.join(", "));
    values.iter().position(|known| *known == value).ok_or_else(failed)
}

/// The variable by which a user decides how couriers send, and its values.
const COURIERS: (&str, &[&str]) =
    ("MAYPOLE_CUDA_COURIERS", &["auto", "gpudirect", "host", "stream"]);

/// How bytes of publications reach other hosts, at best.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub(super) enum CourierWays {
    /// By adapters, between the memory of GPUs if all can.
    Auto,
    /// Between the memory of GPUs.
    GpuDirect,
    /// By adapters, between memory of the hosts.
    Host,
    /// By streams.
    Stream,
}

/// Those that the user allows by that variable.
pub(super) fn courier_ways() -> Result<CourierWays, String> {
    ways(&set(COURIERS.0))
}

fn ways(value: &str) -> Result<CourierWays, String> {
    use CourierWays::{Auto, GpuDirect, Host, Stream};
    Ok([Auto, GpuDirect, Host, Stream][number(COURIERS, value)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_one_of_a_few() {
        for (value, expected) in [("", 0), ("auto", 0), ("peer", PEER), ("host", HOST)] {
            assert_eq!(number(MAILBOXES, value), Ok(expected as usize));
        }
        let of = ["", "auto", "gpudirect", "host", "stream"].map(|value| ways(value).unwrap());
        let [auto, direct] = [CourierWays::Auto, CourierWays::GpuDirect];
        assert_eq!(of, [auto, auto, direct, CourierWays::Host, CourierWays::Stream]);
        let why = ways("tcp").unwrap_err();
        assert_eq!(why, "MAYPOLE_CUDA_COURIERS: 'tcp' is none of auto, gpudirect, host and stream");
        let why = number(MAILBOXES, "gpu").unwrap_err();
        assert_eq!(why, "MAYPOLE_CUDA_MAILBOXES: 'gpu' is none of auto, peer and host");
    }
}
