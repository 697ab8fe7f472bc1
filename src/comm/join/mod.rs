//! Making communicators, of processes that join a world or of threads of one process, and leaving
//! them.

pub(crate) mod close;
pub(crate) mod environment;
pub(crate) mod local;
mod once;
mod report;
mod summary;
mod verbs;

use crate::comm::Communicator;
use crate::control::processes::ProcessControl;
use crate::control::transport::Transport;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::status::server;
use crate::tuner::CostTable;
use crate::wire;
use crate::world::PortChoice;
use crate::world::bootstrap::interface::InterfaceChoice;
use crate::world::bootstrap::{JoinConfig, JoinStop, join_with};
use crate::world::launch;
use crate::world::service::Service;
use environment::Environment;
use maypole_transports::interfaces::addresses;
use maypole_transports::shm::Segment;
use once::JoiningOnce;
use report::JoinReport;
pub(crate) use report::JoinedWorld;
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;
use verbs::OfferingGroup;

impl Communicator {
    /// Joins the world that this process was started for, as the environment of any launcher
    /// describes it (see [`launch`]): `maypole run`, torchrun, mpirun, mpiexec, srun, Kubernetes.
    /// Without a launcher it is a world of one. Collective: returns once all ranks have joined. A
    /// process joins its job once; [`duplicate`](Self::duplicate) and [`split`](Self::split) make other
    /// groups.
    ///
    /// Rank 0 warns on standard error of `MAYPOLE_...` variables that do not exist. They are
    /// ignored.
    ///
    /// # Errors
    /// [`Error::Join`] if the environment contradicts itself, if this process has joined already,
    /// or if the ranks do not connect before the deadline. Only the latter is
    /// [retryable](Error::is_retryable).
    ///
    /// ```
    /// // Outside of any launcher:
    /// let mut comm = maypole::Communicator::from_env()?;
    /// assert_eq!((comm.rank(), comm.world()), (0, 1));
    /// comm.barrier()?;
    /// # Ok::<(), maypole::Error>(())
    /// ```
    #[doc(alias("MPI_Init", "ncclCommInitRank", "init_process_group"))]
    pub fn from_env() -> Result<Self> {
        Self::from_env_until(JoinStop::default())
    }

    /// As [`from_env`](Self::from_env), and ends early once `stop` was stopped.
    ///
    /// # Errors
    /// As [`from_env`](Self::from_env).
    pub fn from_env_until(stop: JoinStop) -> Result<Self> {
        let launch = launch::from_env()?;
        let once = JoiningOnce::begin(&launch, &stop)?;
        launch::warn(&launch);
        // Before this rank joins: an invalid setting is an error of this rank alone, and must not
        // look like a death to the others.
        let environment = Environment::read()?;
        let comm = Self::join_in(&environment, environment.configuration(launch)?, &stop)?;
        once.joined();
        Ok(comm)
    }

    /// Joins the world that `config` describes. `config` determines rank and world, the address of
    /// rank 0, and the job; the environment determines the other settings: `MAYPOLE_TRANSPORT`,
    /// `MAYPOLE_DETERMINISTIC` and so on. For programs with a rendezvous of their own. Ends early once
    /// `stop` was stopped. Collective.
    ///
    /// # Errors
    /// [`Error::Join`] if the ranks do not connect before the deadline, or a variable has a value
    /// that it cannot have.
    pub fn join_by_env_until(config: JoinConfig, stop: JoinStop) -> Result<Self> {
        let environment = Environment::read()?;
        let config = environment.complete(config);
        Self::join_in(&environment, config, &stop)
    }

    fn join_in(environment: &Environment, config: JoinConfig, stop: &JoinStop) -> Result<Self> {
        let (service, world) = meet(environment, &config, stop)?;
        let rank = service.rank();
        let control = ProcessControl::world(service);
        let deadline = Instant::now() + config.timeout;
        let (transport, hosts) = (world.transport, &world.hosts);
        let offering = OfferingGroup { control: &control, transport, rank, hosts, deadline };
        let links = offering.agree()?;
        let control = Arc::new(control.over(links.clone()));
        let conditions = world.conditions(rank, (config.timeout, config.encrypt), links);
        let mut comm = Self::new(Engine::new(rank, world.boards, control, conditions), world.hosts);
        comm.finish_joining(environment)?;
        if let Some(file) = &environment.trace {
            comm.trace(file)?;
        }
        Ok(comm)
    }

    /// Applies the settings of the environment, starts its status server and prints its summary.
    fn finish_joining(&mut self, environment: &Environment) -> Result<()> {
        self.engine.get_mut().settings = environment.settings;
        let signal = environment.status_signal.as_deref();
        server::serve(&self.engine.messages.control, signal, environment.status_socket.as_deref())
            .map_err(|error| Error::wrong_setting(format!("MAYPOLE_STATUS_SIGNAL: {error}")))?;
        if environment.log.is_some_and(|level| level >= tracing::Level::INFO) {
            // The error of a closed standard error is ignored.
            let _ = std::io::stderr().write_all(self.joined_as(environment).as_bytes());
        }
        Ok(())
    }

    /// The lines of this rank for `MAYPOLE_LOG=info`: the transports on rank 0, and the network
    /// interface on the first rank of each of several hosts.
    fn joined_as(&self, environment: &Environment) -> String {
        let first_of_host = self.hosts.index(self.rank()) == 0 && !self.hosts.is_one();
        let interface = first_of_host.then(|| self.interface_report(environment)).flatten();
        let summary = (self.rank() == 0).then(|| self.summary());
        interface.into_iter().chain(summary).map(|line| line + "\n").collect()
    }

    /// The network interface that this rank uses and those that it does not use, in a line; `None`
    /// if the kernel does not list them.
    fn interface_report(&self, environment: &Environment) -> Option<String> {
        let mine = self.engine.messages.control.listening()?.ip();
        let selector = environment.interface.as_ref();
        let choice = InterfaceChoice::new(addresses().ok()?, selector, mine).ok()?;
        Some(format!("maypole: rank {} listens at {choice}", self.rank()))
    }

    /// Joins the world that `config` describes: for programs that start their ranks themselves.
    /// Collective. All ranks have to pass the same `transport`; that of rank 0 is used.
    ///
    /// # Errors
    /// [`Error::Join`] if the ranks do not connect before the deadline, or `transport` cannot serve
    /// them.
    pub fn join(config: JoinConfig, transport: Transport) -> Result<Self> {
        let environment = Environment { transport, ..Environment::default() };
        Self::join_in(&environment, config, &JoinStop::default())
    }

    /// Makes another communicator of the same ranks, over another transport, as
    /// [`split`](Self::split) makes communicators. Collective.
    ///
    /// # Errors
    /// [`Error::Join`] if `transport` cannot serve the ranks; [`Error::Mismatch`] if a rank makes
    /// another call instead; [`Error::TimedOut`] if not all ranks call it in time.
    pub fn over(&mut self, transport: Transport) -> Result<Self> {
        self.engine.check_process()?;
        let offer = match transport.looks_for_verbs(&self.hosts) {
            true => {
                let control = &self.engine.messages.control;
                control.offer_verbs(transport, PortChoice::Share)
            }
            false => Err(format!("{transport} was asked for")),
        };
        let told = self.agree_on(&format!("over({transport})"), &(offer, unshared()))?;
        let (offers, unshared): (Vec<_>, Vec<_>) = told.into_iter().unzip();
        let unshared: Vec<_> = unshared.iter().map(Option::as_deref).collect();
        let boards = transport.boards(&self.hosts, &unshared).map_err(Error::wrong_setting)?;
        let engine = self.engine.get();
        let control = &*engine.health.control;
        let (rank, hosts, deadline) = (engine.rank, &self.hosts, engine.limits.deadline());
        let offering = OfferingGroup { control, transport, rank, hosts, deadline };
        let links = offering.decide(&offers)?;
        let members: Vec<usize> = (0..self.world()).collect();
        let engine = engine.subgroup(&members, boards, links);
        Ok(Self::new(engine, self.hosts.clone()))
    }
}

/// Joins the ranks; their reports determine the world.
fn meet(
    environment: &Environment,
    config: &JoinConfig,
    stop: &JoinStop,
) -> Result<(Service, JoinedWorld)> {
    let costs = || {
        let tuned = CostTable::tuned();
        let network = environment.network.unwrap_or(tuned.network);
        CostTable { network, ..tuned }.to_string()
    };
    let mine = JoinReport {
        costs: (config.rank == 0).then(costs),
        transport: environment.transport,
        ..JoinReport::of_this_process()
    };
    let (service, agreed) = join_with(config, &wire::encode(&mine), stop)?;
    let world = JoinedWorld::of(&agreed).map_err(Error::wrong_setting)?;
    if let Some(said) = world.unshared().filter(|_| config.rank == 0) {
        // The error of a closed standard error is ignored.
        let _ = std::io::stderr().write_all(format!("maypole: {said}\n").as_bytes());
    }
    Ok((service, world))
}

/// Why this process cannot share memory with others; `None` if it can.
pub(super) fn unshared() -> Option<String> {
    Segment::create(1).err().map(|error| error.to_string())
}

/// The name of this host, by which other hosts may look up its address.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

#[cfg(test)]
mod fuzz_tests;
