//! Why ranks could not join, in words.

use super::{JoinConfig, SPARE};
use crate::world::peer::Peer;
use crate::world::sentence::{list, list_ranks};
use maypole_transports::interfaces;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Why the ranks could not join: a sentence with the rank, the reason and the remedy, and whether
/// another attempt may succeed.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, thiserror::Error)]
#[error("{text}")]
pub struct JoinError {
    text: String,
    is_retryable: bool,
}

/// The failure of a socket or a file.
impl From<io::Error> for JoinError {
    fn from(error: io::Error) -> Self {
        Self::passing(format!("joining failed: {error}"))
    }
}

impl JoinError {
    /// Another attempt with the same configuration may succeed: a rank, a host or a port may be
    /// ready later. Else a setting has to change.
    pub fn is_retryable(&self) -> bool {
        self.is_retryable
    }

    /// An error of a setting, which has to change.
    pub(super) fn setting(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_retryable: false }
    }

    /// An error that another attempt may not meet.
    pub(super) fn passing(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_retryable: true }
    }

    pub(super) fn key_needed(address: &str) -> Self {
        Self::setting(format!(
            "rank 0 is at {address}, which other machines can reach, but the job has no key: make \
             one with 'maypole key new FILE' and set MAYPOLE_JOB_KEY_FILE on all ranks"
        ))
    }

    /// No port of `ports` is free at `address`; `variable` names the port.
    pub(super) fn ports_taken(
        (rank, address): (usize, &str),
        ports: &[u16],
        error: &io::Error,
        variable: &str,
    ) -> Self {
        Self::passing(format!(
            "rank {rank} cannot listen on {address}, port {}: {error}; name a free port with \
             {variable}",
            list(ports)
        ))
    }

    /// The address of rank 0, which resolves to `found`, is none of this host.
    pub(super) fn not_this_host(address: &str, found: &[SocketAddr]) -> Self {
        let here = interfaces::addresses().unwrap_or_default();
        let here: Vec<IpAddr> = here.iter().map(|it| it.address).collect();
        Self::setting(format!(
            "rank 0 is to listen at {address}{}, which is no address of this host (it has {}): set \
             MAYPOLE_ADDRESS (or the launcher's MASTER_ADDR) to this host, or start rank 0 on the \
             host that it names",
            resolved(address, found),
            list(&here)
        ))
    }

    pub(super) fn descriptors(world: usize, need: u64, limit: u64) -> Self {
        Self::setting(format!(
            "a world of {world} ranks needs up to {need} file descriptors in a process (two for \
             each rank, and {SPARE}), but the hard limit is {limit}: raise it, with 'ulimit -Hn' or \
             in the service's unit"
        ))
    }

    /// Nothing listens at the addresses `dialled`; the last attempt failed by `last`.
    pub(super) fn nobody_listening(
        config: &JoinConfig,
        (address, dialled): (SocketAddr, &[SocketAddr]),
        last: &str,
    ) -> Self {
        let name = config.address.clone().unwrap_or_else(|| address.ip().to_string());
        Self::passing(format!(
            "rank {} found no rank 0 at {name}{}, port {}, within {} s: is rank 0 running, and its \
             port open? ({address}: {last})",
            config.rank,
            resolved(&name, dialled),
            list(&config.ports),
            config.join_timeout.as_secs_f32()
        ))
    }

    pub(super) fn wrong_key(config: &JoinConfig, address: SocketAddr) -> Self {
        let JoinConfig { rank, job, .. } = config;
        Self::setting(format!(
            "rank {rank} was refused at {address}, because its job key differs from rank 0's (job \
             '{job}'): give all ranks the same key"
        ))
    }

    /// The process `holder` has joined as `rank`.
    pub(super) fn duplicate(rank: usize, holder: &Peer) -> Self {
        Self::passing(format!(
            "rank {rank} has joined already, as process {} at {}: give every process a rank of its \
             own",
            holder.pid,
            holder.listen.ip()
        ))
    }

    pub(super) fn out_of_range(rank: usize, world: usize) -> Self {
        Self::setting(format!(
            "rank {rank} is not below the world size, {world}: check the rank and the world size of \
             every process"
        ))
    }

    /// `ranks` have not joined in time; `notes` are refused attempts.
    pub(super) fn missing(config: &JoinConfig, ranks: &[usize], notes: &[String]) -> Self {
        let notes =
            if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
        Self::passing(format!(
            "after {} s these ranks have not joined: {}{notes}",
            config.join_timeout.as_secs_f32(),
            list_ranks(ranks)
        ))
    }

    pub(super) fn lost(rank: usize, address: SocketAddr, why: impl ToString) -> Self {
        let why = why.to_string();
        Self::passing(format!("rank 0 at {address} went away while rank {rank} was joining: {why}"))
    }
}

/// The addresses of a name in parentheses, unless the name is the address.
fn resolved(name: &str, addresses: &[SocketAddr]) -> String {
    let addresses: Vec<IpAddr> = addresses.iter().map(SocketAddr::ip).collect();
    match &addresses[..] {
        [only] if only.to_string() == name => String::new(),
        _ => format!(" ({})", list(&addresses)),
    }
}
