//! Makes the communicators: one for each transport to measure.

use crate::perf::choices::TransportSelection;
use crate::perf::settings::PerfSettings;
use anyhow::{Context, Result};
use maypole::topology::StreamLinks;
use maypole::{Communicator, Error, Local, Transport};
use std::fmt;

/// The transport of a communicator.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PerfTransport {
    Shm,
    Tcp,
    /// Verbs.
    Ib,
    /// Shared memory within hosts, TCP between them.
    Mixed,
    /// Shared memory within hosts, verbs between them.
    MixedIb,
    /// A board in memory, between threads.
    Board,
    /// Streams in memory, between threads.
    Mem,
    /// Memory of GPUs.
    #[cfg(feature = "cuda")]
    Cuda,
}

impl PerfTransport {
    /// True for memory of GPUs.
    pub(crate) fn is_on_gpus(self) -> bool {
        #[cfg(feature = "cuda")]
        let is_on_gpus = self == Self::Cuda;
        #[cfg(not(feature = "cuda"))]
        let is_on_gpus = false;
        is_on_gpus
    }
}

impl fmt::Display for PerfTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::Ib => "ib",
            Self::Mixed => "shm+tcp",
            Self::MixedIb => "shm+ib",
            Self::Board => "board",
            Self::Mem => "mem",
            #[cfg(feature = "cuda")]
            Self::Cuda => "cuda",
        })
    }
}

/// The communicators of one rank.
pub(crate) struct RankCommunicators {
    /// A communicator of all ranks for each transport.
    pub(crate) comms: Vec<(PerfTransport, Communicator)>,
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
        TransportSelection::Shm => vec![(PerfTransport::Shm, over_shm(&mut world, settings)?)],
        TransportSelection::Tcp => vec![(PerfTransport::Tcp, world.over(Transport::Tcp)?)],
        TransportSelection::Ib => vec![(PerfTransport::Ib, world.over(Transport::Ib)?)],
        // The ranks meet over the transport that they have; the buffers are elsewhere.
        #[cfg(feature = "cuda")]
        TransportSelection::Cuda => vec![(PerfTransport::Cuda, world.over(Transport::Auto)?)],
        TransportSelection::Auto => vec![automatic(&mut world)?],
        TransportSelection::All => all(&mut world)?,
    };
    Ok(RankCommunicators { comms, _world: Some(world) })
}

fn over_shm(world: &mut Communicator, settings: &PerfSettings) -> Result<Communicator> {
    let comm = world.over(Transport::Shm);
    match settings.registered {
        true => comm.context("--registered: the ranks do not all share memory"),
        false => Ok(comm?),
    }
}

/// On one host, shared memory and TCP. On several hosts, the library's default if it differs from
/// TCP alone, and TCP.
fn all(world: &mut Communicator) -> Result<Vec<(PerfTransport, Communicator)>> {
    let first = match world.over(Transport::Shm) {
        Ok(comm) => (PerfTransport::Shm, comm),
        // All ranks get this error, before any of them has sent data.
        Err(Error::Join { .. }) => automatic(world)?,
        Err(error) => return Err(error.into()),
    };
    if first.0 == PerfTransport::Tcp {
        return Ok(vec![first]);
    }
    Ok(vec![first, (PerfTransport::Tcp, world.over(Transport::Tcp)?)])
}

fn automatic(world: &mut Communicator) -> Result<(PerfTransport, Communicator)> {
    let comm = world.over(Transport::Auto)?;
    let by_verbs = *comm.stream_links() == StreamLinks::VerbsBetweenHosts;
    let joint = match comm.boards() {
        boards if boards.is_one() => PerfTransport::Shm,
        boards if boards.is_shared() && by_verbs => PerfTransport::MixedIb,
        boards if boards.is_shared() => PerfTransport::Mixed,
        _ if by_verbs => PerfTransport::Ib,
        _ => PerfTransport::Tcp,
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
        if joint == PerfTransport::Mem {
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

fn between_threads(over: TransportSelection) -> Vec<PerfTransport> {
    match over {
        TransportSelection::Shm | TransportSelection::Auto => vec![PerfTransport::Board],
        TransportSelection::Tcp | TransportSelection::Ib => vec![PerfTransport::Mem],
        #[cfg(feature = "cuda")]
        TransportSelection::Cuda => vec![PerfTransport::Cuda],
        TransportSelection::All => vec![PerfTransport::Board, PerfTransport::Mem],
    }
}
