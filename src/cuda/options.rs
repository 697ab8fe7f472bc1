//! How a group on GPUs is made.

use crate::topology::PathClass;
use std::time::Duration;

/// Options of a group. All ranks should use the same.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CommOptions {
    /// Most blocks of threads of a kernel; `None`: as many as keep the memory of the GPU or the links between
    /// GPUs busy, of those that no other group has reserved. The least of all ranks counts.
    pub most_lanes: Option<u32>,
    /// Least blocks of threads of a kernel, as far as so many are reserved; `None`: as many as pay for the
    /// bytes of the call. The most of all ranks counts.
    pub least_lanes: Option<u32>,
    /// How long a wait for another rank may last, when the group is made and later. `None`: 300 s,
    /// independent of `MAYPOLE_TIMEOUT`.
    pub timeout: Option<Duration>,
    /// How long the ranks may take to find one another. `None`: as `timeout`.
    pub join_timeout: Option<Duration>,
    /// A name for this host: ranks with different names use no memory of one another. `None`: the value of
    /// `MAYPOLE_HOST`.
    pub host: Option<String>,
    /// The farthest GPUs that read and write one another's memory; [`PathClass::Same`] are ranks of one GPU
    /// alone. `None`: all that the driver joins. The nearest of all ranks counts.
    pub farthest_peers: Option<PathClass>,
}
