//! How a group on GPUs is made.

use std::time::Duration;

/// How a group is made. All ranks should say the same.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CommOptions {
    /// Most blocks of threads of a kernel; `None` is what suits the GPU. The least that a rank says counts.
    pub most_lanes: Option<u32>,
    /// How long a wait for another rank may last, when the group is made and later. `None`: 300 s, whatever
    /// `MAYPOLE_TIMEOUT` says.
    pub timeout: Option<Duration>,
    /// Fails with the reason where bytes would go [through the host](super::Comm::through_host).
    pub needs_mailboxes: bool,
}
