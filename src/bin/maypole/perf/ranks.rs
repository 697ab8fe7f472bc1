//! Who the ranks are, and what joins them: the one place where communicators come from.

use super::args::{Over, Settings};
use anyhow::{Result, bail};
use maypole::{Communicator, Local};
use std::fmt;

/// What ranks are joined by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Transport {
    Shm,
    Tcp,
    /// Boards within hosts, streams between them.
    Mixed,
    /// Between threads: a board in memory.
    Board,
    /// Between threads: streams in memory.
    Mem,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::Mixed => "shm+tcp",
            Self::Board => "board",
            Self::Mem => "mem",
        })
    }
}

/// A communicator for each transport.
pub(super) type Joined = Vec<(Transport, Communicator)>;

/// Those of this process, which a launcher has started.
pub(super) fn join(_settings: &Settings) -> Result<Joined> {
    bail!("processes cannot be joined yet; --threads measures ranks that are threads")
}

/// Those of all ranks, by rank, which are threads of this process.
pub(super) fn threads(settings: &Settings) -> Vec<Joined> {
    let mut all: Vec<Joined> = (0..settings.world).map(|_| Vec::new()).collect();
    for transport in between_threads(settings.over) {
        let mut local = Local::new(settings.world);
        if transport == Transport::Mem {
            local = local.hosts(&(0..settings.world).collect::<Vec<_>>());
        }
        if let Some(timeout) = settings.timeout {
            local = local.timeout(timeout);
        }
        for (joined, comm) in all.iter_mut().zip(local.build()) {
            joined.push((transport, comm));
        }
    }
    all
}

fn between_threads(over: Over) -> Vec<Transport> {
    match over {
        Over::Shm | Over::Auto => vec![Transport::Board],
        Over::Tcp => vec![Transport::Mem],
        Over::All => vec![Transport::Board, Transport::Mem],
    }
}
