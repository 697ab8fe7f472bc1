//! How far a job has been stopped.

use std::time::Instant;

/// How far a job has been stopped.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stopping {
    No,
    /// A rank has failed. The others get a signal to end at this time.
    Failed(Instant),
    /// A rank has ended because of another one, which failed first and may end by itself until this
    /// time.
    Blamed(Instant),
    /// Ranks got a signal to end, and are killed at this time.
    Asked(Instant),
    /// Ranks were killed, and are abandoned at this time.
    Killed(Instant),
}

impl Stopping {
    /// True before the request to end.
    pub(super) fn asks_nobody(self) -> bool {
        matches!(self, Self::No | Self::Failed(_) | Self::Blamed(_))
    }

    /// When the next stage begins.
    pub(super) fn until(self) -> Option<Instant> {
        match self {
            Self::No => None,
            Self::Failed(at) | Self::Blamed(at) | Self::Asked(at) | Self::Killed(at) => Some(at),
        }
    }
}
