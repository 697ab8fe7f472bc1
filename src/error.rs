//! What can go wrong, said so that the reader knows what, where and what to do.

use crate::algorithms::Algorithm;
use std::time::Duration;

/// Why a call failed. After any of these but [`Error::Invalid`] and [`Error::Unsupported`] the communicator has failed:
/// every later call says so at once.
#[derive(Debug, thiserror::Error)]
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
    /// The algorithm that was asked for by name has no answer to the collective. Ask for `auto`, or another one.
    #[error("algorithm '{}' has no answer to {operation}; leave the choice to 'auto' or name another", algorithm.name())]
    Unsupported {
        /// What was asked for.
        algorithm: Algorithm,
        /// What it was asked for.
        operation: &'static str,
    },
    /// Ranks called different things. Make every rank of the communicator call the same collectives, in the same order,
    /// with the same type, count, operation and root.
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
    /// A peer did not do its part in time. Look at what it does instead; raise `MAYPOLE_TIMEOUT` if it is only slow.
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
    /// No rank sent a message in time to one that receives from whoever does. Look at who should have sent.
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
    },
    /// The communicator failed earlier. Make a new one.
    #[error("this communicator has failed already: {first}")]
    Failed {
        /// The first failure.
        first: String,
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
    /// True if the call was refused before anything was sent, so that the communicator is as good as before.
    pub fn is_harmless(&self) -> bool {
        matches!(self, Self::Invalid { .. } | Self::Unsupported { .. })
    }
}

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;
