//! Errors of requests to the control plane.

use super::Cause;
use crate::world::sentence::list_ranks;

/// Why a request to the control plane failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// The world has failed, and with it all requests.
    #[error("the world has failed: {cause}")]
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
    /// The arguments are wrong.
    #[error("{0}")]
    Invalid(String),
    /// The control plane has ended.
    #[error("the control plane has ended: {why}")]
    Closed {
        /// Why it has ended.
        why: String,
    },
    /// The operating system or a peer refused the request.
    #[error("{what} failed: {why}")]
    Failed {
        /// What failed.
        what: &'static str,
        /// Why it failed.
        why: String,
    },
}
