//! Errors of exchanges and connections between the ranks of a group.

use crate::world::list_ranks;
use crate::world::service::ServiceError;

/// The result of a request to the control plane.
pub(super) type Result<T, E = ControlError> = std::result::Result<T, E>;

/// Why a request to the control plane failed. Ranks are numbered as in the group.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum ControlError {
    /// The group has failed, for the reason in this sentence.
    #[error("{0}")]
    Failed(String),
    /// This rank, which the request needs, has left.
    #[error("rank {0} has left")]
    Left(usize),
    /// The deadline passed. These ranks are missing, by the last report of the control plane.
    #[error("{what} did not end in time; missing: rank {}", list_ranks(missing))]
    TimedOut {
        /// The request.
        what: &'static str,
        missing: Vec<usize>,
    },
    /// Any other error, in words.
    #[error("{0}")]
    Other(String),
}

impl ControlError {
    /// The same error in the group of the ranks `members` of the world.
    pub(super) fn in_group(error: ServiceError, members: &[usize]) -> Self {
        let member = |world: usize| members.iter().position(|member| *member == world);
        match error {
            ServiceError::Aborted { cause } => Self::Failed(cause.text.in_group(members)),
            ServiceError::TimedOut { what, missing } => {
                Self::TimedOut { what, missing: missing.into_iter().filter_map(member).collect() }
            }
            ServiceError::Left { rank } => match member(rank) {
                Some(rank) => Self::Left(rank),
                None => Self::Other(format!("rank {rank} of the world has left")),
            },
            other => Self::Other(other.to_string()),
        }
    }
}
