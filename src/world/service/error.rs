//! Errors of requests to the control plane.

use super::Cause;
use crate::world::sentence::{RankSentence, list_ranks};

/// Why a request to the control plane failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// The world or the group has failed, and with it all requests.
    #[error("{cause}")]
    Aborted {
        /// The first cause.
        cause: Cause,
    },
    /// A peer that the request needs has left.
    #[error("rank {rank} has left")]
    Left {
        /// The peer.
        rank: usize,
    },
    /// The deadline passed.
    #[error("{what} did not end in time; missing: rank {}", list_ranks(missing))]
    TimedOut {
        /// The request.
        what: &'static str,
        /// The ranks whose part is missing, by the last report.
        missing: Vec<usize>,
    },
    /// The request is refused by the control plane, which may have ended, by the operating system or
    /// by a peer, for the reason in this sentence.
    #[error("{0}")]
    Refused(String),
}

impl ServiceError {
    /// `what` has failed, for the reason `why`.
    pub(crate) fn failed(what: &str, why: impl ToString) -> Self {
        Self::Refused(format!("{what} failed: {}", why.to_string()))
    }

    /// The same error with the numbers that ranks have in the group of the ranks `members` of the
    /// world.
    pub(crate) fn in_group(self, members: &[usize]) -> Self {
        let member = |world: usize| members.iter().position(|member| *member == world);
        match self {
            Self::Aborted { mut cause } => {
                cause.text = RankSentence::default().words(cause.text.in_group(members));
                Self::Aborted { cause }
            }
            Self::TimedOut { what, missing } => {
                Self::TimedOut { what, missing: missing.into_iter().filter_map(member).collect() }
            }
            Self::Left { rank } => match member(rank) {
                Some(rank) => Self::Left { rank },
                None => Self::Refused(format!("rank {rank} of the world has left")),
            },
            other => other,
        }
    }
}
