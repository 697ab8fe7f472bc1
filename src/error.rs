//! The errors of calls. Each message contains the failure, the rank and the remedy.

use crate::algorithms::Algorithm;
use crate::world::bootstrap::JoinError;
pub use crate::world::calls::{CallMismatch, MissedDeadline, RankCall};
use crate::world::launch::LaunchError;
pub use crate::world::service::FailureKind;
use std::fmt;

/// The error of a call.
///
/// After [`Error::Invalid`], [`Error::Unsupported`] and [`Error::Value`] the communicator works as
/// before. After every other error it has failed: each later call returns [`Error::Failed`]. All
/// groups of one world fail together, on every rank: those made by
/// [`split`](crate::Communicator::split) or [`duplicate`](crate::Communicator::duplicate), too.
/// The one exception: a deadline of [`within`](crate::Communicator::within) that passes in such a
/// group fails that group alone, on all its ranks.
/// [`shrink`](crate::Communicator::shrink) makes a new communicator of the ranks that still exist.
///
/// `Debug` prints the same sentence as `Display`, so a `main` that returns
/// [`maypole::Result`](crate::Result) ends with a readable message.
///
/// ```
/// use maypole::{Communicator, ReduceOp};
/// let error = Communicator::run_local(1, |mut comm| {
///     comm.broadcast(&mut [0u8], 7).unwrap_err()
/// });
/// let sentence = "rank 0: broadcast: root 7 is not one of the 1 ranks";
/// assert_eq!(format!("{:?}", error[0]), sentence);
/// assert_eq!(error[0].culprit(), Some(0));
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller's arguments cannot be right; nothing was sent. Correct the call.
    #[error("rank {rank}: {operation}: {why}")]
    Invalid {
        /// The rank that made the call.
        rank: usize,
        /// The name of the call.
        operation: &'static str,
        /// The error in the arguments.
        why: String,
    },
    /// A value could not be serialized, or the received bytes are no value of the requested type,
    /// or a message has another type or length than its receive. The communicator works as before.
    /// Use the same type, and the same length, on all ranks.
    #[error("rank {rank}: {operation}: rank {peer} {why}")]
    Value {
        /// The rank that detected it.
        rank: usize,
        /// The name of the call.
        operation: &'static str,
        /// The rank whose value it is.
        peer: usize,
        /// The error in the value.
        why: String,
    },
    /// The algorithm that was named does not implement the collective. Use `auto` or name another
    /// algorithm.
    #[error(
        "algorithm '{}' does not implement {operation}: use 'auto' or name another algorithm",
        algorithm.name()
    )]
    Unsupported {
        /// The algorithm that was named.
        algorithm: Algorithm,
        /// The collective that was called.
        operation: &'static str,
    },
    /// Two ranks made different calls. Every rank gets this error, with an equal `cause`. Let every
    /// rank of the communicator call the same collectives, in the same order, with the same type,
    /// count, operation and root.
    #[error("{cause}{}", given_up(*rank, operation, *sequence, cause.tells(*rank, *sequence)))]
    #[non_exhaustive]
    Mismatch {
        /// The rank that reports the error.
        rank: usize,
        /// The call that `rank` made.
        operation: String,
        /// Number of operations before this one on the communicator.
        sequence: u64,
        /// The first two calls that do not match: equal on all ranks.
        cause: Box<CallMismatch>,
    },
    /// A peer did not do its part before the deadline. Every rank gets this error, with an equal
    /// `cause`; every rank of the group where the deadline was that of
    /// [`within`](crate::Communicator::within) in a group. Check the culprit's program. Raise `MAYPOLE_TIMEOUT` if it is only slow.
    #[error("{cause}{}", given_up(*rank, operation, *sequence, cause.waiter == *rank))]
    #[non_exhaustive]
    TimedOut {
        /// The rank that reports the error.
        rank: usize,
        /// The call that `rank` made.
        operation: String,
        /// Number of operations before this one on the communicator.
        sequence: u64,
        /// The first deadline that passed: equal on all ranks.
        cause: Box<MissedDeadline>,
    },
    /// A peer is lost: its process ended, or the network to it failed.
    #[error("rank {rank} lost rank {peer} in {operation} (operation {sequence}): {why}")]
    #[non_exhaustive]
    PeerLost {
        /// The rank that detected it.
        rank: usize,
        /// The lost rank.
        peer: usize,
        /// The call that `rank` made.
        operation: String,
        /// Number of operations before this one on the communicator.
        sequence: u64,
        /// How the loss was detected.
        why: String,
    },
    /// Another rank failed first. Every rank names the same cause, which is the
    /// [`source`](std::error::Error::source).
    #[error("rank {rank} gives up {operation} (operation {sequence}), because {cause}")]
    Aborted {
        /// The rank whose call was aborted.
        rank: usize,
        /// The call that `rank` made.
        operation: String,
        /// Number of operations before this one on the communicator.
        sequence: u64,
        /// The first failure, and its rank.
        #[source]
        cause: FirstFailure,
    },
    /// The communicator failed earlier. Make a new one.
    #[error("this communicator has failed already: {first}")]
    #[non_exhaustive]
    Failed {
        /// The first failure, as this rank's first error told it: the
        /// [`source`](std::error::Error::source).
        #[source]
        first: FirstFailure,
    },
    /// This process was forked from the one that made the communicator, which remains the rank.
    /// Make a communicator in the process that calls it: fork before joining, or start processes
    /// that run a program of their own.
    #[error(
        "rank {rank}: this communicator was created before fork, and only the process that created \
         it may use it: create one in the child, or start the child by exec (in Python: 'spawn')"
    )]
    Forked {
        /// The rank that the parent is.
        rank: usize,
    },
    /// Ranks could not be connected.
    #[error("rank {rank} cannot connect to its peers for {operation}: {why}")]
    #[non_exhaustive]
    Connect {
        /// The rank that could not connect.
        rank: usize,
        /// The call that needed the connection.
        operation: String,
        /// The failure of the connection.
        why: String,
    },
    /// The GPU of this rank failed: there is none, its memory is full, or its driver reports an
    /// error.
    #[error("rank {rank}: {operation}: {why}")]
    Device {
        /// The rank whose GPU it is.
        rank: usize,
        /// The call that the rank made.
        operation: String,
        /// The failure of the GPU.
        why: String,
    },
    /// The environment does not determine the rank of this process, a setting is wrong, or the
    /// ranks could not join.
    #[error("{why}")]
    #[non_exhaustive]
    Join {
        /// The failure and the remedy.
        why: String,
        /// Whether a new attempt may succeed: see [`Error::is_retryable`].
        retryable: bool,
    },
}

/// The first failure of a communicator. Its kind and its culprit are those that every rank has, whether its
/// error is [`Error::PeerLost`], [`Error::Aborted`] or [`Error::Failed`].
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{text}")]
#[non_exhaustive]
pub struct FirstFailure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// The rank to look at first: see [`Error::culprit`].
    pub culprit: Option<usize>,
    /// The failure in words, with its rank.
    pub text: String,
}

impl FirstFailure {
    /// A failure of this kind.
    pub fn new(kind: FailureKind, culprit: Option<usize>, text: impl Into<String>) -> Self {
        Self { kind, culprit, text: text.into() }
    }
}

/// The part of a sentence that is this rank's own, unless the cause contains it already.
fn given_up(rank: usize, operation: &str, sequence: u64, told: bool) -> String {
    match told {
        true => String::new(),
        false => format!("; rank {rank} gives up {operation} (operation {sequence})"),
    }
}

/// Prints the sentence of `Display`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A failed attempt to join. A retry may succeed unless a setting is wrong.
impl From<JoinError> for Error {
    fn from(error: JoinError) -> Self {
        Self::Join { why: error.to_string(), retryable: error.is_retryable() }
    }
}

/// A retry does not correct a variable.
impl From<LaunchError> for Error {
    fn from(error: LaunchError) -> Self {
        Self::wrong_setting(error)
    }
}

impl Error {
    /// The error of a setting that must be corrected.
    pub(crate) fn wrong_setting(why: impl fmt::Display) -> Self {
        Self::Join { why: why.to_string(), retryable: false }
    }

    /// The error of ranks that did not find one another.
    pub(crate) fn unjoined(why: impl fmt::Display) -> Self {
        Self::Join { why: why.to_string(), retryable: true }
    }

    /// True if the communicator works as before: the call was refused before anything was sent, or
    /// the received bytes are no value of the requested type.
    pub fn is_harmless(&self) -> bool {
        matches!(self, Self::Invalid { .. } | Self::Unsupported { .. } | Self::Value { .. })
    }

    /// The kind of the first failure of the communicator, equal on all ranks; `None` if it has not failed,
    /// or there is none.
    ///
    /// ```
    /// use maypole::error::FailureKind;
    /// use maypole::{Communicator, Error};
    /// let kinds = Communicator::run_local(3, |mut comm| {
    ///     if comm.rank() == 2 {
    ///         return None; // leaves without a call
    ///     }
    ///     let first = comm.barrier().unwrap_err();
    ///     let later = comm.barrier().unwrap_err();
    ///     assert!(matches!(&later, Error::Failed { first, .. } if first.culprit == Some(2)));
    ///     assert_eq!((later.kind(), later.culprit()), (first.kind(), first.culprit()));
    ///     first.kind()
    /// });
    /// assert_eq!(kinds, [Some(FailureKind::Death), Some(FailureKind::Death), None]);
    /// ```
    pub fn kind(&self) -> Option<FailureKind> {
        match self {
            Self::Mismatch { .. } => Some(FailureKind::Mismatch),
            Self::TimedOut { .. } | Self::Connect { .. } => Some(FailureKind::Timeout),
            Self::PeerLost { .. } => Some(FailureKind::Death),
            Self::Device { .. } => Some(FailureKind::UserAbort),
            Self::Aborted { cause: first, .. } | Self::Failed { first } => Some(first.kind),
            Self::Forked { .. } | Self::Join { .. } => None,
            Self::Invalid { .. } | Self::Unsupported { .. } | Self::Value { .. } => None,
        }
    }

    /// True if the same program may succeed on a new communicator: a peer died or was late, or the
    /// ranks did not find one another. False if the program, its arguments or a setting must change
    /// first, and after a panic. If another rank failed first, the result is that of the first
    /// failure.
    ///
    /// | | retryable | [harmless](Self::is_harmless) |
    /// |---|---|---|
    /// | `Invalid`, `Unsupported`, `Value` | no | yes |
    /// | `Mismatch`, `Device`, `Forked` | no | no |
    /// | `TimedOut`, `PeerLost`, `Connect` | yes | no |
    /// | `Join` | unless a setting is wrong, such as a variable | no |
    /// | `Aborted`, `Failed` | if the first failure was a death or a deadline | no |
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Join { retryable, .. } => *retryable,
            _ => matches!(self.kind(), Some(FailureKind::Death | FailureKind::Timeout)),
        }
    }

    /// The rank that reports the error; `None` if the error is the same wherever it happens.
    pub fn rank(&self) -> Option<usize> {
        match self {
            Self::Invalid { rank, .. } | Self::Value { rank, .. } => Some(*rank),
            Self::Mismatch { rank, .. } | Self::TimedOut { rank, .. } => Some(*rank),
            Self::PeerLost { rank, .. } | Self::Aborted { rank, .. } => Some(*rank),
            Self::Device { rank, .. } | Self::Forked { rank } => Some(*rank),
            Self::Connect { rank, .. } => Some(*rank),
            Self::Unsupported { .. } | Self::Failed { .. } | Self::Join { .. } => None,
        }
    }

    /// The rank that caused the failure, if one could be identified. Ranks are numbered as in the
    /// communicator that reports the error.
    ///
    /// | | culprit |
    /// |---|---|
    /// | `Invalid`, `Device` | the rank that made the call |
    /// | `Value` | the rank whose value it is |
    /// | `TimedOut` | the rank that blocks the others; none if the ranks wait in a circle, or if a
    /// message of any rank was awaited |
    /// | `PeerLost` | the lost rank |
    /// | `Aborted`, `Failed` | as in the first failure; none if not in this communicator |
    /// | `Mismatch` | none: either of the two calls may be the wrong one |
    /// | `Unsupported`, `Forked`, `Connect`, `Join` | none |
    pub fn culprit(&self) -> Option<usize> {
        match self {
            Self::Invalid { rank, .. } | Self::Device { rank, .. } => Some(*rank),
            Self::Value { peer, .. } | Self::PeerLost { peer, .. } => Some(*peer),
            Self::TimedOut { cause, .. } => cause.culprit,
            Self::Aborted { cause: first, .. } | Self::Failed { first } => first.culprit,
            Self::Mismatch { .. } | Self::Unsupported { .. } | Self::Connect { .. } => None,
            Self::Forked { .. } | Self::Join { .. } => None,
        }
    }

    /// The call that failed; `None` if no call did.
    pub fn operation(&self) -> Option<&str> {
        match self {
            Self::Invalid { operation, .. } | Self::Value { operation, .. } => Some(operation),
            Self::Unsupported { operation, .. } => Some(operation),
            Self::Mismatch { operation, .. } | Self::TimedOut { operation, .. } => Some(operation),
            Self::PeerLost { operation, .. } | Self::Aborted { operation, .. } => Some(operation),
            Self::Device { operation, .. } | Self::Connect { operation, .. } => Some(operation),
            Self::Failed { .. } | Self::Forked { .. } | Self::Join { .. } => None,
        }
    }
}

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::time::Duration;

    const CALL: &str = "scan(1 x u8, sum)";

    /// An error, and the expected results of its methods.
    struct Case {
        error: Error,
        rank: Option<usize>,
        culprit: Option<usize>,
        operation: Option<&'static str>,
        retryable: bool,
        harmless: bool,
    }

    impl Case {
        /// A refused call: harmless, and the same wherever it is reported.
        fn refused(error: Error, rank: Option<usize>, culprit: Option<usize>) -> Self {
            let operation = Some("scan");
            Self { error, rank, culprit, operation, retryable: false, harmless: true }
        }

        /// A failure of the call [`CALL`] that rank 1 reports.
        fn failure(error: Error, culprit: Option<usize>, retryable: bool) -> Self {
            let operation = Some(CALL);
            Self { error, rank: Some(1), culprit, operation, retryable, harmless: false }
        }

        /// A failure that belongs to no call.
        fn without_call(error: Error, culprit: Option<usize>, retryable: bool) -> Self {
            Self { error, rank: None, culprit, operation: None, retryable, harmless: false }
        }

        fn check(self) {
            let Self { error, rank, culprit, operation, retryable, harmless } = self;
            assert_eq!(error.rank(), rank, "{error}");
            assert_eq!(error.culprit(), culprit, "{error}");
            assert_eq!(error.operation(), operation, "{error}");
            assert_eq!(error.is_retryable(), retryable, "{error}");
            assert_eq!(error.is_harmless(), harmless, "{error}");
            assert_eq!(format!("{:?}", error.clone()), error.to_string());
        }
    }

    #[test]
    fn a_refused_call_is_harmless_and_not_retryable() {
        let why = || "so".to_owned();
        let invalid = Error::Invalid { rank: 1, operation: "scan", why: why() };
        let value = Error::Value { rank: 1, operation: "scan", peer: 2, why: why() };
        let unsupported = Error::Unsupported { algorithm: Algorithm::Ring, operation: "scan" };
        let sentence =
            "algorithm 'ring' does not implement scan: use 'auto' or name another algorithm";
        assert_eq!(unsupported.to_string(), sentence);
        Case::refused(invalid, Some(1), Some(1)).check();
        Case::refused(value, Some(1), Some(2)).check();
        Case::refused(unsupported, None, None).check();
    }

    #[test]
    fn a_failed_call_names_its_rank_and_its_culprit() {
        let rank = 1;
        let peer = 2;
        let sequence = 7;
        let after = Duration::from_secs(3);
        let operation = || CALL.to_owned();
        let why = || "so".to_owned();
        let cause = CallMismatch::new(7, [(1, CALL), (2, "barrier()")], None);
        let mismatch =
            Error::Mismatch { rank, operation: operation(), sequence, cause: Box::new(cause) };
        let timed_out = |peer, culprit| {
            let detail = None;
            let operation = operation();
            let waiter = rank;
            let cause = MissedDeadline {
                sequence,
                waiter,
                peer,
                operation,
                step: 0,
                after,
                detail,
                culprit,
                world_ranks: BTreeMap::new(),
            };
            let operation = cause.operation.clone();
            Error::TimedOut { rank, operation, sequence, cause: Box::new(cause) }
        };
        let lost = Error::PeerLost { rank, peer, operation: operation(), sequence, why: why() };
        let connect = Error::Connect { rank, operation: operation(), why: why() };
        Case::failure(mismatch, None, false).check();
        Case::failure(timed_out(Some(peer), Some(5)), Some(5), true).check();
        Case::failure(timed_out(Some(peer), None), None, true).check();
        Case::failure(timed_out(None, None), None, true).check();
        Case::failure(lost, Some(2), true).check();
        Case::failure(connect, None, true).check();
        Case::without_call(Error::unjoined(why()), None, true).check();
        Case::without_call(Error::wrong_setting(why()), None, false).check();
    }

    #[test]
    fn ranks_tell_the_same_cause_and_what_they_gave_up() {
        let calls = [(0, "barrier()"), (1, CALL)];
        let cause = CallMismatch::new(7, calls, Some("root (0, 1)".to_owned()));
        let told = |rank, sequence| {
            let operation = "reduce()".to_owned();
            Error::Mismatch { rank, operation, sequence, cause: Box::new(cause.clone()) }
                .to_string()
        };
        let same = "ranks do not match: rank 0 calls barrier() as operation 7, but rank 1 calls \
                    scan(1 x u8, sum); they differ in root (0, 1)";
        assert_eq!(told(1, 7), same);
        assert_eq!(told(1, 9), format!("{same}; rank 1 gives up reduce() (operation 9)"));
        assert_eq!(told(2, 7), format!("{same}; rank 2 gives up reduce() (operation 7)"));
    }

    #[test]
    fn later_errors_have_the_culprit_of_the_first_failure() {
        for (culprit, kind) in [(Some(3), FailureKind::Death), (None, FailureKind::Mismatch)] {
            let retryable = kind == FailureKind::Death;
            let aborted = Error::Aborted {
                rank: 1,
                operation: CALL.to_owned(),
                sequence: 7,
                cause: FirstFailure::new(kind, culprit, "so"),
            };
            let failed = Error::Failed { first: FirstFailure::new(kind, culprit, "so") };
            let source = std::error::Error::source(&failed).unwrap();
            assert_eq!((failed.kind(), source.to_string()), (aborted.kind(), "so".to_owned()));
            Case::failure(aborted, culprit, retryable).check();
            Case::without_call(failed, culprit, retryable).check();
        }
    }
}
