//! The facts about every rank that all ranks have after joining.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// The description of one rank by itself: its address, its machine and process, and its report.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Peer {
    /// The address of the rank's one listening port.
    pub(crate) listen: SocketAddr,
    /// The rank's host identity. Ranks with equal identities can share memory.
    pub(crate) host: String,
    /// The rank's process number within `pid_namespace`.
    pub(crate) pid: u32,
    /// The namespace of process numbers that `pid` belongs to.
    pub(crate) pid_namespace: String,
    /// The round-trip time to the process that it joined through; `None` if not measured.
    pub(crate) round_trip: Option<Duration>,
    /// Bytes a second of the path to that process; `None` if it was not measured.
    pub(crate) bandwidth: Option<u64>,
    /// Its message to all others, opaque to the control plane.
    pub(crate) report: Vec<u8>,
}

impl Peer {
    /// The boot of the machine, with which the identity of a host begins.
    pub(crate) fn machine(&self) -> &str {
        self.host.split(' ').next().unwrap_or_default()
    }
}
