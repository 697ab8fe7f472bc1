//! What joins the ranks: the one place where communicators come from.

use crate::perf::args::{Over, Settings};
use anyhow::Result;
use maypole::{Communicator, Error, Local, Transport};
use std::fmt;

/// What ranks are joined by, as it turned out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Joint {
    Shm,
    Tcp,
    /// Boards within hosts, streams between them.
    Mixed,
    /// Between threads: a board in memory.
    Board,
    /// Between threads: streams in memory.
    Mem,
}

impl fmt::Display for Joint {
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
pub(crate) struct Joined {
    /// The same ranks, over one transport after the other.
    pub(crate) comms: Vec<(Joint, Communicator)>,
    /// What they were made of. Dropping it would tell the others that this rank leaves.
    pub(crate) _world: Option<Communicator>,
}

/// This process's, which a launcher has started. Collective.
pub(crate) fn join(settings: &Settings) -> Result<Joined> {
    let mut world = Communicator::from_env()?;
    if let Some(timeout) = settings.timeout {
        world.set_timeout(timeout);
    }
    let comms = match settings.over {
        Over::Shm => vec![(Joint::Shm, world.over(Transport::Shm)?)],
        Over::Tcp => vec![(Joint::Tcp, world.over(Transport::Tcp)?)],
        Over::Auto => vec![automatic(&mut world)?],
        Over::All => all(&mut world)?,
    };
    Ok(Joined { comms, _world: Some(world) })
}

/// Shared memory and TCP on one host; on several, TCP, and both together where that is something
/// else.
fn all(world: &mut Communicator) -> Result<Vec<(Joint, Communicator)>> {
    let first = match world.over(Transport::Shm) {
        Ok(comm) => (Joint::Shm, comm),
        // All ranks see this alike, before any of them has sent anything.
        Err(Error::Join(_)) => automatic(world)?,
        Err(error) => return Err(error.into()),
    };
    if first.0 == Joint::Tcp {
        return Ok(vec![first]);
    }
    Ok(vec![first, (Joint::Tcp, world.over(Transport::Tcp)?)])
}

fn automatic(world: &mut Communicator) -> Result<(Joint, Communicator)> {
    let comm = world.over(Transport::Auto)?;
    let joint = match comm.boards() {
        boards if boards.is_one() => Joint::Shm,
        boards if boards.is_shared() => Joint::Mixed,
        _ => Joint::Tcp,
    };
    Ok((joint, comm))
}

/// Those of all ranks, by rank, which are threads of this process.
pub(crate) fn threads(settings: &Settings) -> Vec<Joined> {
    let mut all: Vec<Joined> =
        (0..settings.world).map(|_| Joined { comms: Vec::new(), _world: None }).collect();
    for joint in between_threads(settings.over) {
        let mut local = Local::new(settings.world);
        if joint == Joint::Mem {
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

fn between_threads(over: Over) -> Vec<Joint> {
    match over {
        Over::Shm | Over::Auto => vec![Joint::Board],
        Over::Tcp => vec![Joint::Mem],
        Over::All => vec![Joint::Board, Joint::Mem],
    }
}
