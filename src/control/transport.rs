//! The transports between ranks, and the offers of a rank.

use crate::schedule::hosts::{Boards, Hosts};
use crate::world::VerbsPortOffer;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Why a rank does not search for a port unless verbs are set by name.
pub(crate) const NO_DEVICES: &str =
    "the kernel offers programs no RDMA devices (there is no /dev/infiniband)";

/// The offer of one rank: the port that it has opened, or the reason against.
pub(crate) type VerbsOffer = Result<VerbsPortOffer, String>;

/// What may carry bytes between ranks.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[non_exhaustive]
pub enum Transport {
    /// Shared memory within a host, or TCP if a rank of the host may not make any. Between hosts
    /// InfiniBand or RoCE if every rank has an active port
    /// of the same kind of network that reaches the other hosts, else TCP.
    #[default]
    Auto,
    /// Shared memory alone: an error if the ranks are not all on one host.
    Shm,
    /// TCP alone, also within a host.
    Tcp,
    /// InfiniBand or RoCE alone, also within a host: an error if a rank has no port that can be
    /// used.
    Ib,
}

impl Transport {
    /// Every transport.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Shm, Self::Tcp, Self::Ib];

    /// The name on the command line and in `MAYPOLE_TRANSPORT`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::Ib => "ib",
        }
    }

    /// The boards by which this transport joins the ranks of `hosts`. `unshared`: by rank, why it cannot
    /// share memory, if it cannot. Ranks of a host with such a rank have no board.
    pub(crate) fn boards(
        self,
        hosts: &Hosts,
        unshared: &[Option<&str>],
    ) -> std::result::Result<Boards, String> {
        let mut lacking = unshared.iter().enumerate();
        let lacking = lacking.find_map(|(rank, why)| Some((rank, (*why)?)));
        match (self, lacking) {
            (Self::Auto, _) => {
                let lacks = |host| {
                    (0..hosts.world()).any(|it| hosts.of(it) == host && unshared[it].is_some())
                };
                Ok(Boards::within_but(hosts, lacks))
            }
            (Self::Tcp | Self::Ib, _) => Ok(Boards::separate(hosts.world())),
            (Self::Shm, Some((rank, why))) => Err(format!(
                "shm was asked for, but rank {rank} cannot share memory ({why}); use auto or tcp"
            )),
            (Self::Shm, None) if hosts.is_one() => Ok(Boards::within(hosts)),
            (Self::Shm, None) => {
                let elsewhere = |rank: &usize| !hosts.together(0, *rank);
                let other = (0..hosts.world()).find(elsewhere).expect("there are several hosts");
                Err(format!(
                    "shm was asked for, but rank {other} is not on rank 0's host; use auto or tcp"
                ))
            }
        }
    }

    /// True if ranks on `hosts` search for RDMA ports when they choose this transport.
    pub(crate) fn looks_for_verbs(self, hosts: &Hosts) -> bool {
        match self {
            Self::Auto => !hosts.is_one(),
            Self::Shm | Self::Tcp => false,
            Self::Ib => true,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that means no transport.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("'{0}' is no transport; use auto, shm, tcp or ib")]
pub struct UnknownTransport(String);

impl FromStr for Transport {
    type Err = UnknownTransport;

    fn from_str(name: &str) -> std::result::Result<Self, UnknownTransport> {
        Self::ALL
            .into_iter()
            .find(|it| it.name() == name)
            .ok_or_else(|| UnknownTransport(name.to_owned()))
    }
}
