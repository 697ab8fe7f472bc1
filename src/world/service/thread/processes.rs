//! The end of processes, as the kernel of this host reports it.

use super::PROCESS;
use crate::world::service::state::ServiceContext;
use maypole_transports::watch::{Watch, pidfd};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// Descriptors that report the end of the processes of this host's other ranks. Ranks of this
/// process itself, and processes in another namespace of process numbers, are left out.
pub(super) fn watch_processes(shared: &ServiceContext, watch: &Watch) -> BTreeMap<usize, OwnedFd> {
    let this = &shared.peers[shared.rank];
    let mut processes = BTreeMap::new();
    for (rank, peer) in shared.peers.iter().enumerate() {
        let can_watch = peer.host == this.host && peer.pid_namespace == this.pid_namespace;
        if !can_watch || peer.pid == this.pid {
            continue;
        }
        // For a process that cannot be watched, the end of its connection is the signal.
        if let Ok(end) = pidfd(peer.pid)
            && watch.add(&end, PROCESS | rank as u64, false).is_ok()
        {
            processes.insert(rank, end);
        }
    }
    processes
}
