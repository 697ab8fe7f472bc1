//! What joins the ranks: the one place where communicators come from.

use crate::perf::args::TransportSelection;
use crate::perf::settings::PerfSettings;
use anyhow::Result;
use maypole::{Communicator, Error, Local, Transport};
use std::fmt;

/// What ranks are joined by, as it turned out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PerfTransport {
    Shm,
    Tcp,
    /// Boards within hosts, streams between them.
    Mixed,
    /// Between threads: a board in memory.
    Board,
    /// Between threads: streams in memory.
    Mem,
}

impl fmt::Display for PerfTransport {
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

/// A rank's place in the world.
pub(crate) struct RankCommunicators {
    /// The same ranks, over one transport after the other.
    pub(crate) comms: Vec<(PerfTransport, Communicator)>,
    /// What they were made of. Dropping it would tell the others that this rank leaves.
    pub(crate) _world: Option<Communicator>,
}

/// This process's, which a launcher has started. Collective.
pub(crate) fn join(settings: &PerfSettings) -> Result<RankCommunicators> {
    let mut world = Communicator::from_env()?;
    if let Some(timeout) = settings.timeout {
        world.set_timeout(timeout);
    }
    let comms = match settings.transport {
        TransportSelection::Shm => vec![(PerfTransport::Shm, world.over(Transport::Shm)?)],
        TransportSelection::Tcp => vec![(PerfTransport::Tcp, world.over(Transport::Tcp)?)],
        TransportSelection::Auto => vec![automatic(&mut world)?],
        TransportSelection::All => all(&mut world)?,
    };
    Ok(RankCommunicators { comms, _world: Some(world) })
}

/// Shared memory and TCP on one host; on several, TCP, and both together where that is something
/// else.
fn all(world: &mut Communicator) -> Result<Vec<(PerfTransport, Communicator)>> {
    let first = match world.over(Transport::Shm) {
        Ok(comm) => (PerfTransport::Shm, comm),
        // All ranks see this alike, before any of them has sent anything.
        Err(Error::Join(_)) => automatic(world)?,
        Err(error) => return Err(error.into()),
    };
    if first.0 == PerfTransport::Tcp {
        return Ok(vec![first]);
    }
    Ok(vec![first, (PerfTransport::Tcp, world.over(Transport::Tcp)?)])
}

fn automatic(world: &mut Communicator) -> Result<(PerfTransport, Communicator)> {
    let comm = world.over(Transport::Auto)?;
    let joint = match comm.boards() {
        boards if boards.is_one() => PerfTransport::Shm,
        boards if boards.is_shared() => PerfTransport::Mixed,
        _ => PerfTransport::Tcp,
    };
    Ok((joint, comm))
}

/// Those of all ranks, by rank, which are threads of this process.
pub(crate) fn threads(settings: &PerfSettings) -> Vec<RankCommunicators> {
    let mut all: Vec<RankCommunicators> = (0..settings.world)
        .map(|_| RankCommunicators { comms: Vec::new(), _world: None })
        .collect();
    for joint in between_threads(settings.transport) {
        let mut local = Local::new(settings.world);
        if joint == PerfTransport::Mem {
            local = local.hosts(&(0..settings.world).collect::<Vec<_>>());
        }
        if let Some(timeout) = settings.timeout {
            local = local.timeout(timeout);
        }
        for (joined, comm) in all.iter_mut().zip(local.build()) {
            joined.comms.push((joint, comm));
        }
    }
    all
}

fn between_threads(over: TransportSelection) -> Vec<PerfTransport> {
    match over {
        TransportSelection::Shm | TransportSelection::Auto => vec![PerfTransport::Board],
        TransportSelection::Tcp => vec![PerfTransport::Mem],
        TransportSelection::All => vec![PerfTransport::Board, PerfTransport::Mem],
    }
}
