//! The transport of the streams between ranks that share no board.

use super::transport::RefusalReason;

/// The transport of the streams of a group. Equal on all of its ranks.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum StreamLinks {
    /// TCP, because verbs cannot be used for this reason.
    Tcp(RefusalReason),
    /// InfiniBand or RoCE between hosts, TCP within one.
    VerbsBetweenHosts,
    /// InfiniBand or RoCE.
    Verbs,
}

impl StreamLinks {
    /// The links of ranks that have not joined, whose machines are unknown.
    pub fn undecided() -> Self {
        Self::Tcp(RefusalReason::Undecided)
    }

    /// Why the stream between two ranks, on one host or not, does not use verbs; `None` if it does.
    pub fn verbs_refusal(&self, one_host: bool) -> Option<RefusalReason> {
        match self {
            Self::Tcp(why) => Some(why.clone()),
            _ if self.uses_verbs(one_host) => None,
            _ => Some(RefusalReason::Other(Self::BETWEEN_HOSTS.to_owned())),
        }
    }

    /// True if the stream between two ranks, on one host or not, uses verbs.
    pub fn uses_verbs(&self, one_host: bool) -> bool {
        match self {
            Self::Tcp(_) => false,
            Self::VerbsBetweenHosts => !one_host,
            Self::Verbs => true,
        }
    }

    /// Why ranks of one host do not use verbs.
    pub(crate) const BETWEEN_HOSTS: &str = "used between hosts only, unless the job asks for ib";
}
