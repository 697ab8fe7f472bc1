//! Makes the communicators: one for each transport to measure.

use crate::perf::choices::TransportSelection;
use crate::perf::settings::PerfSettings;
use anyhow::{Context, Result};
use maypole::topology::StreamLinks;
use maypole::{Communicator, Error, Local, Transport};

/// The name of a communicator's transport: `shm`, `tcp`, `ib` (verbs), `cuda` (memory of GPUs); `shm+tcp` and
/// `shm+ib`, within hosts and between them; between threads `board` and `mem` (streams in memory).
pub(crate) type TransportName = &'static str;

/// True if the bytes of `comm` over `transport` are encrypted: those that leave shared memory.
pub(crate) fn is_encrypted(comm: &Communicator, transport: TransportName) -> bool {
    comm.is_encrypted() && (transport.ends_with("tcp") || transport.ends_with("ib"))
}

/// The communicators of one rank.
pub(crate) struct RankCommunicators {
    /// A communicator of all ranks for each transport.
    pub(crate) comms: Vec<(TransportName, Communicator)>,
    /// The communicator that the others were made from. Dropping it would make this rank leave the
    /// world.
    pub(crate) _world: Option<Communicator>,
}

/// Joins this process, which a launcher has started, to the other ranks. Collective.
pub(crate) fn join(settings: &PerfSettings) -> Result<RankCommunicators> {
    let mut world = Communicator::from_env()?;
    if let Some(timeout) = settings.options.timeout {
        world.set_timeout(timeout);
    }
    let comms = match settings.transport {
        TransportSelection::Shm => vec![("shm", over_shm(&mut world, settings)?)],
        TransportSelection::Tcp => vec![("tcp", world.over(Transport::Tcp)?)],
        TransportSelection::Ib => vec![("ib", world.over(Transport::Ib)?)],
        // The ranks meet over the transport that they have; the buffers are elsewhere.
        #[cfg(feature = "cuda")]
        TransportSelection::Cuda => vec![("cuda", world.over(Transport::Auto)?)],
        TransportSelection::Auto => vec![automatic(&mut world)?],
        TransportSelection::All => all(&mut world)?,
    };
    Ok(RankCommunicators { comms, _world: Some(world) })
}

fn over_shm(world: &mut Communicator, settings: &PerfSettings) -> Result<Communicator> {
    let comm = world.over(Transport::Shm);
    match settings.options.has_registered() {
        true => comm.context("--registered: the ranks do not all share memory"),
        false => Ok(comm?),
    }
}

/// On one host, shared memory and TCP. On several hosts, the library's default if it differs from
/// TCP alone, and TCP.
fn all(world: &mut Communicator) -> Result<Vec<(TransportName, Communicator)>> {
    let first = match world.over(Transport::Shm) {
        Ok(comm) => ("shm", comm),
        // All ranks get this error, before any of them has sent data.
        Err(Error::Join { .. }) => automatic(world)?,
        Err(error) => return Err(error.into()),
    };
    if first.0 == "tcp" {
        return Ok(vec![first]);
    }
    Ok(vec![first, ("tcp", world.over(Transport::Tcp)?)])
}

fn automatic(world: &mut Communicator) -> Result<(TransportName, Communicator)> {
    let comm = world.over(Transport::Auto)?;
    let by_verbs = *comm.stream_links() == StreamLinks::VerbsBetweenHosts;
    let joint = match comm.boards() {
        boards if boards.is_one() => "shm",
        boards if boards.is_shared() && by_verbs => "shm+ib",
        boards if boards.is_shared() => "shm+tcp",
        _ if by_verbs => "ib",
        _ => "tcp",
    };
    Ok((joint, comm))
}

/// The communicators of all ranks, which are threads of this process, in the order of the ranks.
pub(crate) fn threads(settings: &PerfSettings) -> Vec<RankCommunicators> {
    let mut all: Vec<RankCommunicators> = (0..settings.world)
        .map(|_| RankCommunicators { comms: Vec::new(), _world: None })
        .collect();
    for joint in between_threads(settings.transport) {
        let mut local = Local::new(settings.world);
        if joint == "mem" {
            local = local.hosts(&(0..settings.world).collect::<Vec<_>>());
        }
        if let Some(timeout) = settings.options.timeout {
            local = local.timeout(timeout);
        }
        for (joined, comm) in all.iter_mut().zip(local.build()) {
            joined.comms.push((joint, comm));
        }
    }
    all
}

fn between_threads(over: TransportSelection) -> Vec<TransportName> {
    match over {
        TransportSelection::Shm | TransportSelection::Auto => vec!["board"],
        TransportSelection::Tcp | TransportSelection::Ib => vec!["mem"],
        #[cfg(feature = "cuda")]
        TransportSelection::Cuda => vec!["cuda"],
        TransportSelection::All => vec!["board", "mem"],
    }
}
