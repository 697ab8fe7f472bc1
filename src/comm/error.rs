//! What can go wrong, said so that the reader knows what, where and what to do.

use crate::algorithms::Algorithm;
use std::time::Duration;

/// Why a call failed. After any of these but [`Error::Invalid`], [`Error::Unsupported`] and
/// [`Error::Value`] the communicator has failed: every later call says so at once.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller's arguments cannot be right; nothing was sent. Mend the call.
    #[error("rank {rank}: {operation}: {why}")]
    Invalid {
        /// Who called.
        rank: usize,
        /// What was called.
        operation: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A value that was to be sent could not be written down, or what came is no value of the type
    /// that was asked for. The communicator is as good as before. Give all ranks the same type.
    #[error("rank {rank}: {operation}: rank {peer} {why}")]
    Value {
        /// Who noticed.
        rank: usize,
        /// What was called.
        operation: &'static str,
        /// Whose value it is.
        peer: usize,
        /// What is wrong with it.
        why: String,
    },
    /// The algorithm that was asked for by name has no answer to the collective. Ask for `auto`, or
    /// another one.
    #[error("algorithm '{}' has no answer to {operation}; leave the choice to 'auto' or name another", algorithm.name())]
    Unsupported {
        /// What was asked for.
        algorithm: Algorithm,
        /// What it was asked for.
        operation: &'static str,
    },
    /// Ranks called different things. Make every rank of the communicator call the same
    /// collectives, in the same order, with the same type, count, operation and root.
    #[error(
        "ranks do not match: rank {rank} calls {operation} as operation {sequence}, but rank {peer} {}",
        theirs.as_deref().unwrap_or("does something else")
    )]
    Mismatch {
        /// Who noticed.
        rank: usize,
        /// Whose call is another one.
        peer: usize,
        /// What `rank` called.
        operation: String,
        /// Operations before it on this communicator.
        sequence: u64,
        /// What `peer` says it does.
        theirs: Option<String>,
    },
    /// A peer did not do its part in time. Look at what it does instead; raise `MAYPOLE_TIMEOUT` if
    /// it is only slow.
    #[error(
        "rank {rank} waited {} s for rank {peer} in step {step} of {operation} (operation {sequence}){}",
        after.as_secs_f64(), detail.as_deref().map(|d| format!("; {d}")).unwrap_or_default()
    )]
    TimedOut {
        /// Who waited.
        rank: usize,
        /// For whom.
        peer: usize,
        /// In what.
        operation: String,
        /// Operations before it on this communicator.
        sequence: u64,
        /// Which fold of the program, or which message of a group.
        step: usize,
        /// How long.
        after: Duration,
        /// What is known of the peer.
        detail: Option<String>,
    },
    /// No rank sent a message in time to one that receives from whoever does. Look at who should
    /// have sent.
    #[error(
        "rank {rank} waited {} s for a message of any rank in {operation} (operation {sequence})",
        after.as_secs_f64()
    )]
    NoMessage {
        /// Who waited.
        rank: usize,
        /// In what.
        operation: String,
        /// Operations before it on this communicator.
        sequence: u64,
        /// How long.
        after: Duration,
    },
    /// A peer is gone: its process ended, or the network to it is lost.
    #[error("rank {rank} lost rank {peer} in {operation} (operation {sequence}): {why}")]
    PeerLost {
        /// Who noticed.
        rank: usize,
        /// Who is gone.
        peer: usize,
        /// In what.
        operation: String,
        /// Operations before it on this communicator.
        sequence: u64,
        /// How it showed.
        why: String,
    },
    /// Somebody else failed first; every rank names the same cause.
    #[error("rank {rank} gives up {operation} (operation {sequence}), because {cause}")]
    Aborted {
        /// Who gives up.
        rank: usize,
        /// What.
        operation: String,
        /// Operations before it on this communicator.
        sequence: u64,
        /// What happened first, and where.
        cause: String,
        /// Whether that may pass: see [`Error::is_retryable`].
        retryable: bool,
    },
    /// The communicator failed earlier. Make a new one.
    #[error("this communicator has failed already: {first}")]
    Failed {
        /// The first failure.
        first: String,
        /// Whether that may pass: see [`Error::is_retryable`].
        retryable: bool,
    },
    /// Ranks could not be connected.
    #[error("rank {rank} cannot connect to its peers for {operation}: {why}")]
    Connect {
        /// Who.
        rank: usize,
        /// For what.
        operation: String,
        /// Why not.
        why: String,
    },
    /// The environment does not say who this process is, or the ranks did not find one another.
    #[error("{0}")]
    Join(String),
}

impl Error {
    /// True if the communicator is as good as before: the call was refused before anything was
    /// sent, or what came is no value of the type that was asked for.
    pub fn is_harmless(&self) -> bool {
        matches!(self, Self::Invalid { .. } | Self::Unsupported { .. } | Self::Value { .. })
    }

    /// True if the same program may do better another time, on a new communicator: a peer died or
    /// was late, or the ranks did not find one another. False if the program or its arguments must
    /// change first, and of a panic in it. Where somebody else failed first, what counts is why.
    ///
    /// | | retryable | [harmless](Self::is_harmless) |
    /// |---|---|---|
    /// | `Invalid`, `Unsupported`, `Value` | no | yes |
    /// | `Mismatch` | no | no |
    /// | `TimedOut`, `NoMessage`, `PeerLost`, `Connect`, `Join` | yes | no |
    /// | `Aborted`, `Failed` | if the first failure was | no |
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Invalid { .. }
            | Self::Unsupported { .. }
            | Self::Value { .. }
            | Self::Mismatch { .. } => false,
            Self::TimedOut { .. } | Self::NoMessage { .. } | Self::PeerLost { .. } => true,
            Self::Connect { .. } | Self::Join(_) => true,
            Self::Aborted { retryable, .. } | Self::Failed { retryable, .. } => *retryable,
        }
    }

    /// The rank that reports the error; `None` if the error is the same wherever it happens.
    pub fn rank(&self) -> Option<usize> {
        match self {
            Self::Invalid { rank, .. }
            | Self::Value { rank, .. }
            | Self::Mismatch { rank, .. }
            | Self::TimedOut { rank, .. }
            | Self::NoMessage { rank, .. }
            | Self::PeerLost { rank, .. }
            | Self::Aborted { rank, .. }
            | Self::Connect { rank, .. } => Some(*rank),
            Self::Unsupported { .. } | Self::Failed { .. } | Self::Join(_) => None,
        }
    }

    /// The call that failed; `None` if no call did.
    pub fn operation(&self) -> Option<&str> {
        match self {
            Self::Invalid { operation, .. }
            | Self::Unsupported { operation, .. }
            | Self::Value { operation, .. } => Some(operation),
            Self::Mismatch { operation, .. }
            | Self::TimedOut { operation, .. }
            | Self::NoMessage { operation, .. }
            | Self::PeerLost { operation, .. }
            | Self::Aborted { operation, .. }
            | Self::Connect { operation, .. } => Some(operation),
            Self::Failed { .. } | Self::Join(_) => None,
        }
    }
}

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kind, with what is said of it: its rank, its operation, whether it may pass, whether
    /// it did any harm.
    #[test]
    fn what_is_said_of_every_kind() {
        let (rank, peer, sequence, after) = (1, 2, 7, Duration::from_secs(3));
        let (operation, why) = ("scan(1 x u8, sum)".to_owned(), "so".to_owned());
        let of = |operation: &String| operation.clone();
        let aborted = |retryable| Error::Aborted {
            rank,
            operation: of(&operation),
            sequence,
            cause: of(&why),
            retryable,
        };
        let failed = |retryable| Error::Failed { first: of(&why), retryable };
        let call = Some(operation.as_str());
        let kinds = [
            (
                Error::Invalid { rank, operation: "scan", why: of(&why) },
                Some(1),
                Some("scan"),
                false,
                true,
            ),
            (
                Error::Unsupported { algorithm: Algorithm::Ring, operation: "scan" },
                None,
                Some("scan"),
                false,
                true,
            ),
            (
                Error::Mismatch { rank, peer, operation: of(&operation), sequence, theirs: None },
                Some(1),
                call,
                false,
                false,
            ),
            (
                Error::TimedOut {
                    rank,
                    peer,
                    operation: of(&operation),
                    sequence,
                    step: 0,
                    after,
                    detail: None,
                },
                Some(1),
                call,
                true,
                false,
            ),
            (
                Error::NoMessage { rank, operation: of(&operation), sequence, after },
                Some(1),
                call,
                true,
                false,
            ),
            (
                Error::PeerLost { rank, peer, operation: of(&operation), sequence, why: of(&why) },
                Some(1),
                call,
                true,
                false,
            ),
            (aborted(true), Some(1), call, true, false),
            (aborted(false), Some(1), call, false, false),
            (failed(true), None, None, true, false),
            (failed(false), None, None, false, false),
            (
                Error::Connect { rank, operation: of(&operation), why: of(&why) },
                Some(1),
                call,
                true,
                false,
            ),
            (Error::Join(of(&why)), None, None, true, false),
        ];
        for (error, rank, operation, retryable, harmless) in kinds {
            assert_eq!((error.rank(), error.operation()), (rank, operation), "{error}");
            assert_eq!(
                (error.is_retryable(), error.is_harmless()),
                (retryable, harmless),
                "{error}"
            );
            assert_eq!(error.clone().to_string(), error.to_string());
        }
    }
}
