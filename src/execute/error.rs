//! Errors of a wait for another rank, of programs and of messages.

use maypole_transports::{Fault, Interrupted};

/// The reason why the bytes that a rank waits for will not arrive, or cannot leave.
#[derive(Debug)]
#[non_exhaustive]
pub enum LinkError {
    /// The peer is in another call.
    Mismatch,
    /// The deadline passed.
    TimedOut,
    /// The alarm was raised: another rank failed first.
    Aborted,
    /// The peer has left the group in order.
    PeerLeft,
    /// The stream to the peer is broken.
    Lost(Fault),
    /// No stream to the peer could be made, for the reason in this sentence.
    Unconnected(String),
}

impl From<Interrupted> for LinkError {
    fn from(interrupted: Interrupted) -> Self {
        match interrupted {
            Interrupted::TimedOut => Self::TimedOut,
            Interrupted::Alarmed => Self::Aborted,
        }
    }
}

/// The error of a program that did not complete.
#[derive(Debug)]
pub struct ExecuteError {
    /// The index of the fold that was being executed; the number of folds after the last one.
    pub fold: usize,
    /// The rank that was awaited, or whose stream failed.
    pub peer: usize,
    /// The failure.
    pub error: LinkError,
}
