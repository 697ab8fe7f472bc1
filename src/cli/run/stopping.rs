//! How far a job has been stopped.

use std::time::Instant;

/// How far a job has been stopped.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stopping {
    No,
    /// A rank has failed. The others get a signal to end at `until`.
    Failed {
        until: Instant,
    },
    /// A rank has ended because of another one, which failed first and may end by itself until
    /// `until`.
    Blamed {
        until: Instant,
    },
    /// Ranks got a signal to end, and are killed at `until`.
    Asked {
        until: Instant,
    },
    /// Ranks were killed, and are abandoned at `until`.
    Killed {
        until: Instant,
    },
}

impl Stopping {
    /// True before the request to end.
    pub(super) fn asks_nobody(self) -> bool {
        matches!(self, Self::No | Self::Failed { .. } | Self::Blamed { .. })
    }

    /// When the next stage begins.
    pub(super) fn until(self) -> Option<Instant> {
        match self {
            Self::No => None,
            Self::Failed { until }
            | Self::Blamed { until }
            | Self::Asked { until }
            | Self::Killed { until } => Some(until),
        }
    }
}
