//! How ranks join one world: rank 0 listens on one port, every other rank connects to it, and all
//! ranks receive the world. It has the form in which survivors agree on theirs
//! (`AgreedWorld` in `world::service`): the addresses of each rank, and its report. There is no
//! older world as a fallback, so no rank has to be ready first.
//!
//! A process that holds the job's key may join once, as the rank that it names, if it agrees with
//! rank 0 on everything that must be equal. Any other connection occupies one slot of a short queue
//! for a few seconds, and is then closed.

mod addresses;
mod error;
pub mod interface;
mod joiner;
mod protocol;
mod reception;
mod root;
mod stop;

pub(crate) use addresses::published_address;
pub use error::JoinError;
pub use stop::JoinStop;

use crate::world::launch::{default_ports, split_port};
use crate::world::service::{AgreedWorld, Service};
use interface::InterfaceSelector;
use maypole_transports::ib::VerbsSettings;
use maypole_transports::turns::LONGEST;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// The rank of this process, and the addresses of the other ranks.
///
/// [`new`](Self::new) fills in everything but the rank, the number of ranks and the address of
/// rank 0; the other fields can be set afterwards.
#[derive(Clone)]
pub struct JoinConfig {
    /// This rank.
    pub rank: usize,
    /// The number of ranks.
    pub world: usize,
    /// The host where rank 0 listens, a name or an address; `None` is loopback. With a key, rank 0
    /// listens at all addresses of its host if its name resolves to several there, or to loopback:
    /// other hosts may look up another one.
    pub address: Option<String>,
    /// The ports that rank 0 tries in turn. The other ranks try all of them until they reach rank
    /// 0.
    pub ports: Vec<u16>,
    /// The network interface of this process; `None` is the one on the route to rank 0. Without
    /// effect where rank 0 is at a loopback address, unless the name of its host resolves to it
    /// there.
    pub interface: Option<InterfaceSelector>,
    /// The ports that the other ranks listen on; `None` lets the kernel choose.
    pub data_ports: Option<RangeInclusive<u16>>,
    /// The name of the job. Ranks of jobs with different names never join one world.
    pub job: String,
    /// The job's key. Without a key only loopback addresses are used.
    pub key: Option<[u8; 32]>,
    /// A name for this host. Ranks with different names never share memory, even on one machine.
    pub host: Option<String>,
    /// Variables that must be equal on all ranks, with their values.
    pub equal: Vec<(String, String)>,
    /// Allows other addresses than loopback without a key: then any process that reaches the port
    /// may join.
    pub insecure_without_key: bool,
    /// Encrypts and authenticates all bytes that go over TCP. It must be equal on all ranks, and
    /// joining compares it as `MAYPOLE_ENCRYPT`. Bytes in shared memory never leave their host and
    /// are not encrypted. Without a [`key`](Self::key) it protects only against passive
    /// eavesdroppers.
    pub encrypt: bool,
    /// The RDMA port of this process and how connections by verbs treat lost packets. It matters
    /// only where the ranks use verbs.
    pub verbs: VerbsSettings,
    /// The timeout of joining.
    pub join_timeout: Duration,
    /// The timeout of each later wait. A data connection survives a network that is silent for this
    /// long.
    pub timeout: Duration,
}

impl std::fmt::Debug for JoinConfig {
    // A key is never printed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rank, world, address, ports, job, .. } = self;
        write!(
            f,
            "JoinConfig {{ rank: {rank}, world: {world}, address: {address:?}, ports: {ports:?}, \
             job: {job:?} }}"
        )
    }
}

/// The default timeout of joining, and of every wait after it.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);
/// The name of a job without a name of its own.
const DEFAULT_JOB: &str = "maypole";

impl JoinConfig {
    /// Describes rank `rank` of `world`, with rank 0 at `address`: a host name or an address, with
    /// or without a port (`"node7"`, `"10.0.0.7:21000"`, `"[fe80::1]:21000"`).
    ///
    /// The other fields have these defaults:
    ///
    /// | field | default |
    /// |---|---|
    /// | `ports` | the port of `address`, else the 16 ports of a job called `maypole` |
    /// | `interface` | the one on the route to rank 0 |
    /// | `data_ports` | chosen by the kernel |
    /// | `job` | `maypole` |
    /// | `key` | none: `address` must be loopback |
    /// | `host` | the identity of this machine |
    /// | `equal` | nothing is compared but version and world size |
    /// | `insecure_without_key`, `encrypt` | false |
    /// | `verbs` | the fastest active port |
    /// | `join_timeout`, `timeout` | 300 s |
    ///
    /// # Examples
    ///
    /// Two ranks, which one program starts as threads. They could be two processes.
    ///
    /// ```
    /// use maypole::world::bootstrap::JoinConfig;
    /// use maypole::{Communicator, ReduceOp, Transport};
    ///
    /// let rank = |rank| {
    ///     let mut config = JoinConfig::new(rank, 2, "127.0.0.1");
    ///     config.job = format!("example {}", std::process::id());
    ///     let mut comm = Communicator::join(config, Transport::Auto)?;
    ///     let mut sum = [1 + rank];
    ///     comm.all_reduce(&mut sum, ReduceOp::Sum)?;
    ///     assert_eq!(sum, [3]);
    ///     comm.close()
    /// };
    /// std::thread::scope(|threads| {
    ///     let other = threads.spawn(|| rank(1));
    ///     rank(0)?;
    ///     other.join().unwrap()
    /// })?;
    /// # Ok::<(), maypole::Error>(())
    /// ```
    pub fn new(rank: usize, world: usize, address: &str) -> Self {
        let (host, port) = split_port(address);
        Self {
            rank,
            world,
            address: Some(host.to_owned()),
            ports: port.map_or_else(|| default_ports(DEFAULT_JOB), |port| vec![port]),
            interface: None,
            data_ports: None,
            job: DEFAULT_JOB.to_owned(),
            key: None,
            host: None,
            equal: Vec::new(),
            insecure_without_key: false,
            encrypt: false,
            verbs: VerbsSettings::default(),
            join_timeout: DEFAULT_TIMEOUT,
            timeout: DEFAULT_TIMEOUT,
        }
    }

    /// The same rank of the job `job`, whose 16 ports follow from its name: jobs with different names
    /// rarely try the same ports.
    ///
    /// ```
    /// use maypole::world::bootstrap::JoinConfig;
    /// let of = |job| JoinConfig::new(0, 2, "127.0.0.1").with_job(job);
    /// assert_eq!(of("evening").job, "evening");
    /// assert_ne!(of("evening").ports, of("morning").ports);
    /// ```
    #[must_use]
    pub fn with_job(self, job: &str) -> Self {
        Self { job: job.to_owned(), ports: default_ports(job), ..self }
    }
}

/// Descriptors for connections that are not authenticated yet, and for other open files of the
/// process.
const SPARE: u64 = 128;

/// Raises the soft limit of descriptors to the hard limit. Every rank may need two: a connection,
/// and one that signals the end of its process. For programs with their own rendezvous: a process
/// that would fail to join can report it before others wait for it.
///
/// # Errors
/// [`JoinError`] if the hard limit is too low for `world` ranks.
#[doc(hidden)]
pub fn check_descriptors(world: usize) -> Result<(), JoinError> {
    let need = 2 * world as u64 + SPARE;
    match maypole_transports::sockets::raise_descriptor_limit() {
        Some(limit) if limit < need => Err(JoinError::descriptors(world, need, limit)),
        _ => Ok(()),
    }
}

/// Joins the world that `config` describes; returns when all ranks have joined. A world of one
/// needs no socket and no thread.
///
/// # Errors
/// [`JoinError`], within [`JoinConfig::join_timeout`] and a few seconds, independently of the
/// others.
#[doc(hidden)]
pub fn join(config: JoinConfig) -> Result<Service, JoinError> {
    Ok(join_with(&config, &[], &JoinStop::default())?.0)
}

/// As [`join`], until `stop` ends it. The ranks exchange their `report`s.
pub(crate) fn join_with(
    config: &JoinConfig,
    report: &[u8],
    stop: &JoinStop,
) -> Result<(Service, AgreedWorld), JoinError> {
    check(config)?;
    let deadline = Instant::now() + config.join_timeout.min(LONGEST);
    match (config.world, config.rank) {
        (1, _) => Ok((Service::alone(config.timeout)?, AgreedWorld::alone(report))),
        (_, 0) => root::accept_ranks(config, report, stop, deadline),
        _ => joiner::join_root(config, report, stop, deadline),
    }
}

fn check(config: &JoinConfig) -> Result<(), JoinError> {
    let rank = config.rank;
    let world = config.world;
    if world > u32::MAX as usize {
        return Err(JoinError::setting(format!("a world of {world} ranks is too large")));
    }
    if rank >= world {
        return Err(JoinError::out_of_range(rank, world));
    }
    if world == 1 {
        return Ok(());
    }
    if config.ports.is_empty() {
        return Err(JoinError::setting(
            "JoinConfig::ports is empty: name a port where rank 0 listens".to_owned(),
        ));
    }
    check_descriptors(world)
}

#[cfg(test)]
mod fuzz_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_carry_a_port() {
        let check = |address: &str, host: &str, port: Option<u16>| {
            assert_eq!(split_port(address), (host, port), "{address}");
            let config = JoinConfig::new(1, 4, address);
            assert_eq!(config.address.as_deref(), Some(host));
            match port {
                Some(port) => assert_eq!(config.ports, [port]),
                None => assert_eq!(config.ports.len(), 16),
            }
        };
        check("node7", "node7", None);
        check("node7:21000", "node7", Some(21_000));
        check("10.0.0.7:21000", "10.0.0.7", Some(21_000));
        check("fe80::1", "fe80::1", None);
        check("[fe80::1]", "fe80::1", None);
        check("[fe80::1]:21000", "fe80::1", Some(21_000));
        check("node7:http", "node7:http", None);
    }
}
