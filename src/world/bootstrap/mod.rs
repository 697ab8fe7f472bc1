//! How ranks find one another: rank 0 listens on one port, every other rank comes there, and all
//! leave with a table.
//!
//! Who holds the job's key may join, as the rank it says it is, once, and only if it agrees with
//! rank 0 on everything that must be equal. Nobody else costs more than a slot in a short queue.

mod addresses;
mod joiner;
mod protocol;
mod root;

pub use protocol::Differences;

use crate::world::service::Service;
use protocol::JoinRefusal;
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// Who this process is, and where the others are.
#[derive(Clone)]
pub struct JoinConfig {
    /// This rank.
    pub rank: usize,
    /// How many ranks there are.
    pub world: usize,
    /// Where rank 0 listens, a name or an address; `None` is loopback.
    pub address: Option<String>,
    /// The ports that rank 0 tries in turn; the others try all of them until one answers.
    pub ports: Vec<u16>,
    /// The ports that other ranks listen on; `None` lets the kernel choose.
    pub data_ports: Option<RangeInclusive<u16>>,
    /// The job's name, which keeps jobs on one machine apart.
    pub job: String,
    /// The job's key. Without one only loopback is used.
    pub key: Option<[u8; 32]>,
    /// Ranks with different names here never share memory, though they be on one machine.
    pub host: Option<String>,
    /// Variables that must be equal on all ranks, with their values.
    pub equal: Vec<(String, String)>,
    /// Allows other addresses than loopback without a key: everybody who reaches the port may join.
    pub insecure_without_key: bool,
    /// How long joining may take.
    pub join_timeout: Duration,
    /// How long later waits may take: data connections outlast this much silence of the network.
    pub timeout: Duration,
}

impl std::fmt::Debug for JoinConfig {
    // A key is never printed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rank, world, address, ports, job, .. } = self;
        write!(
            f,
            "JoinConfig {{ rank: {rank}, world: {world}, address: {address:?}, ports: {ports:?}, job: {job:?} }}"
        )
    }
}

/// Why the ranks did not come together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The configuration cannot be right. Mend it.
    #[error("{0}")]
    Config(String),
    /// There is no key, and the address is not loopback. Make a key for the job, or allow strangers
    /// by name.
    #[error(
        "rank 0 is at {address}, which others can reach, but the job has no key: make one with 'maypole key new FILE' \
         and set MAYPOLE_JOB_KEY_FILE on all ranks"
    )]
    KeyNeeded {
        /// Where rank 0 listens.
        address: String,
    },
    /// The address of rank 0 is unknown here. Check the name.
    #[error("the address of rank 0, '{address}', cannot be resolved: {source}")]
    Unresolvable {
        /// The name.
        address: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// No port could be listened on. Free one, or name others.
    #[error(
        "rank {rank} cannot listen on {address}, port {}: {source}; name a free port with {variable}",
        list(ports)
    )]
    PortsTaken {
        /// Who wanted to listen.
        rank: usize,
        /// Where.
        address: String,
        /// What was tried.
        ports: Vec<u16>,
        /// What the last one said.
        source: io::Error,
        /// The variable that names other ports.
        variable: &'static str,
    },
    /// The process may not open enough files. Raise its limit.
    #[error(
        "a world of {world} ranks needs up to {need} descriptors in a process (two for each rank, and {SPARE}), but its \
         hard limit is {limit}: raise it, with 'ulimit -Hn' or in the service's unit"
    )]
    Descriptors {
        /// How many ranks there are.
        world: usize,
        /// How many descriptors they may take.
        need: u64,
        /// How many there may be.
        limit: u64,
    },
    /// Nothing answered where rank 0 should listen. Start rank 0, or check the address, the port
    /// and the firewall.
    #[error(
        "rank {rank} found nobody at {address}, port {}, within {} s: is rank 0 running, and its port open? ({last})",
        list(ports), waited.as_secs_f32()
    )]
    NobodyListening {
        /// Who looked.
        rank: usize,
        /// Where.
        address: String,
        /// What was tried.
        ports: Vec<u16>,
        /// How long.
        waited: Duration,
        /// What the last attempt said.
        last: String,
    },
    /// Something listens, but refuses our key. Give all ranks of the job the same key.
    #[error(
        "rank {rank} was refused at {address}, because its job key differs from rank 0's (job '{job}'): give all ranks \
         the same key"
    )]
    WrongKey {
        /// Who was refused.
        rank: usize,
        /// Where.
        address: SocketAddr,
        /// The job's name.
        job: String,
    },
    /// Something listens that is not rank 0 of this job. Check the port, or name another.
    #[error(
        "rank {rank} found something else than rank 0 of job '{job}' at {address}: {what}; name another port with MAYPOLE_PORT"
    )]
    NotRankZero {
        /// Who looked.
        rank: usize,
        /// Where.
        address: SocketAddr,
        /// The job's name.
        job: String,
        /// What it seems to be.
        what: String,
    },
    /// Another process is this rank already. Give every process a rank of its own.
    #[error("rank {rank} has joined already, as {holder}: give every process a rank of its own")]
    Duplicate {
        /// The rank.
        rank: usize,
        /// Which process it is.
        holder: String,
    },
    /// There is no such rank. Check the rank and the world size.
    #[error(
        "rank {rank} is not below the world size, {world}: check the rank and the world size of every process"
    )]
    OutOfRange {
        /// The rank.
        rank: usize,
        /// How many there are.
        world: usize,
    },
    /// Ranks differ in something that must be equal. Make it equal.
    #[error("{0}; make them equal on all ranks")]
    Differs(Differences),
    /// Not all ranks came. Look why those named did not.
    #[error("after {} s these ranks have not joined: {}{}", waited.as_secs_f32(), list(ranks), note_of(note))]
    Missing {
        /// Who is missing.
        ranks: Vec<usize>,
        /// How long the others waited.
        waited: Duration,
        /// Who came in vain.
        note: String,
    },
    /// Rank 0 went away while others were joining. Look at its output.
    #[error("rank 0 at {address} went away while rank {rank} was joining: {why}")]
    Lost {
        /// Who was joining.
        rank: usize,
        /// Where rank 0 was.
        address: SocketAddr,
        /// How it showed.
        why: String,
    },
    /// The system refused something.
    #[error("joining failed: {0}")]
    Io(#[from] io::Error),
}

/// Descriptors for strangers at the door, and for what else the process has open.
const SPARE: u64 = 128;

/// Raises the limit of descriptors to the hard one: every rank may take a connection and a watch on
/// its process.
fn check_descriptors(world: usize) -> Result<(), JoinError> {
    let need = 2 * world as u64 + SPARE;
    match maypole_transports::sockets::raise_descriptor_limit() {
        Some(limit) if limit < need => Err(JoinError::Descriptors { world, need, limit }),
        _ => Ok(()),
    }
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

fn note_of(note: &str) -> String {
    if note.is_empty() { String::new() } else { format!(" ({note})") }
}

impl JoinError {
    fn refused(refusal: JoinRefusal, waited: Duration) -> Self {
        match refusal {
            JoinRefusal::Duplicate { rank, holder } => Self::Duplicate { rank, holder },
            JoinRefusal::OutOfRange { rank, world } => Self::OutOfRange { rank, world },
            JoinRefusal::Differs(differences) => Self::Differs(differences),
            JoinRefusal::Missing { ranks, note } => Self::Missing { ranks, waited, note },
        }
    }
}

/// Joins the world that `config` describes; returns when all its ranks have. A world of one needs
/// no socket and no thread.
///
/// # Errors
/// Within [`JoinConfig::join_timeout`] and a few seconds, whatever the others do: [`JoinError`].
pub fn join(config: JoinConfig) -> Result<Service, JoinError> {
    check(&config)?;
    let deadline = Instant::now() + config.join_timeout;
    match (config.world, config.rank) {
        (1, _) => Ok(Service::alone(config.timeout)?),
        (_, 0) => root::gather(&config, deadline),
        _ => joiner::dial(&config, deadline),
    }
}

fn check(config: &JoinConfig) -> Result<(), JoinError> {
    let (rank, world) = (config.rank, config.world);
    if world > u32::MAX as usize {
        return Err(JoinError::Config(format!("a world of {world} ranks is too large")));
    }
    if rank >= world {
        return Err(JoinError::OutOfRange { rank, world });
    }
    if world == 1 {
        return Ok(());
    }
    if config.ports.is_empty() {
        return Err(JoinError::Config("no port is named where rank 0 should listen".to_owned()));
    }
    check_descriptors(world)
}
