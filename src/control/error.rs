//! Why the ranks of a group could exchange nothing, or could not be connected.

use crate::world::service::ServiceError;
use std::fmt;

/// The result of a request to the control plane.
pub(super) type Result<T, E = ControlError> = std::result::Result<T, E>;

/// Why a request to the control plane failed. Ranks are numbered as in the group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum ControlError {
    /// The group has failed, for the reason in this sentence.
    Failed(String),
    /// This rank, which the request needs, has left.
    Left(usize),
    /// The deadline passed. These ranks are missing, as far as the control plane has seen.
    TimedOut {
        /// What was waited for.
        what: &'static str,
        missing: Vec<usize>,
    },
    /// Anything else, in words.
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

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(why) | Self::Other(why) => f.write_str(why),
            Self::Left(rank) => write!(f, "rank {rank} has left"),
            Self::TimedOut { what, missing } => {
                write!(f, "{what} did not end in time; missing:")?;
                missing.iter().try_for_each(|rank| write!(f, " rank {rank}"))
            }
        }
    }
}
