//! Joining a running world, and admitting processes to it.

use super::environment::Environment;
use super::report::{JoinReport, JoinedWorld};
use crate::comm::Communicator;
use crate::control::Control;
use crate::control::processes::ProcessControl;
use crate::control::transport::Transport;
use crate::error::{Error, Result};
use crate::topology::StreamLinks;
use crate::topology::transport::RefusalReason;
use crate::wire;
use crate::world::bootstrap::admission::{WaitingRoom, knock};
use crate::world::bootstrap::{JoinConfig, JoinError, JoinStop};
use crate::world::launch;
use std::sync::Arc;
use std::time::Duration;

/// Why ranks that were admitted use no verbs.
const ADMITTED: &str = "a rank has joined ranks that ran";

/// The address at which processes join a running world: see [`Communicator::admit`]. All ranks make
/// one, equal on all of them, and keep it as long as they admit.
///
/// The rank that is rank 0 when the ranks first call `admit` listens there, on a thread of its own,
/// and keeps the newcomers until the ranks call it. After rank 0 has died, the next rank 0 listens,
/// if it is on the host that the address names; else `admit` returns an error.
#[derive(Debug)]
pub struct Admissions {
    config: JoinConfig,
    is_newcomer: bool,
    room: Option<WaitingRoom>,
}

impl Admissions {
    /// Admits processes that hold the job's key and name of `config`, at its address and ports,
    /// where no other program may listen. `config.world` is the limit of ranks; processes beyond it
    /// wait. `config.rank` is ignored. Opens no socket yet.
    pub fn new(config: JoinConfig) -> Self {
        Self { config, is_newcomer: false, room: None }
    }

    /// As [`new`](Self::new), at the port `MAYPOLE_ADMISSION_PORT` of the job that this process was
    /// started for, up to `MAYPOLE_WORLD` ranks. `None` if that port is not set.
    ///
    /// # Errors
    /// [`Error::Join`] if a variable has an invalid value.
    pub fn from_env() -> Result<Option<Self>> {
        let launch = launch::from_env()?;
        let is_newcomer = launch.is_newcomer;
        let config = Environment::read()?.admission(launch)?;
        Ok(config.map(|config| Self { is_newcomer, ..Self::new(config) }))
    }

    /// True in a process that was started to replace a rank. It has no data of the other ranks.
    pub fn is_newcomer(&self) -> bool {
        self.is_newcomer
    }

    /// How many newcomers the `world` ranks may admit now.
    fn find(
        &mut self,
        world: usize,
        one_host: bool,
        within: Duration,
    ) -> std::result::Result<usize, JoinError> {
        if self.room.as_ref().is_none_or(WaitingRoom::has_closed) {
            // Frees the port of the old room for the new one.
            self.room = None;
            self.room = Some(WaitingRoom::open(&self.config, one_host)?);
        }
        let free = self.config.world.saturating_sub(world);
        let room = self.room.as_ref().filter(|_| free > 0);
        Ok(room.map_or(0, |room| room.count(within).min(free)))
    }
}

impl Communicator {
    /// Admits processes that [enter](Self::enter), if there are any. Collective: all ranks call it,
    /// at a point that they agree on, such as the end of a step. Waits for at most `within` (and at
    /// most half of [`timeout`](Self::timeout)) until one has arrived; zero means only those that
    /// wait already.
    ///
    /// `None` if none has arrived. This communicator is as before, and the cost is an exchange over
    /// the control plane.
    ///
    /// Otherwise all ranks and newcomers get one new communicator, which has worked once. A
    /// newcomer gets the rank that it requests if that is not 0 and not taken by another newcomer,
    /// else a later one. The other ranks keep their order; rank 0 stays rank 0. They keep their
    /// settings and timeouts, and the transport; newcomers have those of their environment. A
    /// [trace](Self::trace) continues in a file of its own, of all ranks. A process that dies
    /// during the call, an old rank or a newcomer, is left out, as by [`shrink`](Self::shrink). So
    /// read the ranks of the new communicator and do not assume them. This communicator can still
    /// be used and dropped, but not shrunk, and admits no further process.
    ///
    /// Requests in flight stay with this communicator, and complete there.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if a rank makes another call instead: no process is admitted.
    /// [`Error::Join`], the same on all ranks, if rank 0 cannot listen at the address for
    /// newcomers, if ranks are threads of one process ([`Local`](crate::Local)), or if they use
    /// InfiniBand or RoCE; this communicator is as before. [`Error::Connect`] as of
    /// [`shrink`](Self::shrink). If a rank dies before all have agreed that a newcomer has arrived,
    /// as every call: then shrink.
    ///
    /// # Examples
    ///
    /// A world of one becomes a world of two. The ranks are threads here, and processes elsewhere.
    ///
    /// ```
    /// use maypole::world::bootstrap::JoinConfig;
    /// use maypole::{Admissions, Communicator, ReduceOp, Transport};
    /// use std::time::Duration;
    ///
    /// let at = |rank, world| {
    ///     let job = format!("growing {}", std::process::id());
    ///     JoinConfig::new(rank, world, "127.0.0.1").with_job(&job)
    /// };
    /// let first = || {
    ///     let mut comm = Communicator::join(at(0, 1), Transport::Auto)?;
    ///     let mut admissions = Admissions::new(at(0, 2));
    ///     let mut grown = comm.admit(&mut admissions, Duration::from_secs(20))?.unwrap();
    ///     let mut ones = [1];
    ///     grown.all_reduce(&mut ones, ReduceOp::Sum)?;
    ///     assert_eq!(ones, [2]);
    ///     grown.close()
    /// };
    /// let second = || {
    ///     let mut comm = Communicator::enter(at(1, 2))?;
    ///     assert_eq!((comm.rank(), comm.world()), (1, 2));
    ///     comm.all_reduce(&mut [1], ReduceOp::Sum)?;
    ///     comm.close()
    /// };
    /// std::thread::scope(|threads| {
    ///     let other = threads.spawn(second);
    ///     first()?;
    ///     other.join().unwrap()
    /// })?;
    /// # Ok::<(), maypole::Error>(())
    /// ```
    pub fn admit(&mut self, admissions: &mut Admissions, within: Duration) -> Result<Option<Self>> {
        self.engine.check_process()?;
        let found = match self.rank() {
            0 => self.newcomers_at(admissions, within),
            _ => {
                // Newcomers connect to rank 0.
                admissions.room = None;
                Ok(0)
            }
        };
        let mut told = self.agree_on("admit()", &found)?;
        let count = told.swap_remove(0);
        match count.map_err(|(why, retryable)| Error::Join { why, retryable })? {
            0 => Ok(None),
            count => {
                let newcomers = admissions.room.as_ref().map(|room| room.take(count));
                self.successor("admit", newcomers.unwrap_or_default()).map(Some)
            }
        }
    }

    /// On rank 0: the number of newcomers that can be admitted; or the reason why none can, and
    /// whether a retry may succeed.
    fn newcomers_at(
        &mut self,
        admissions: &mut Admissions,
        within: Duration,
    ) -> std::result::Result<usize, (String, bool)> {
        let never = |why: &str| Err((why.to_owned(), false));
        let Some(transport) = self.conditions().transport else {
            return never(
                "admit: the ranks are threads of one process, which no process can join: start \
                 them as processes",
            );
        };
        if !matches!(self.conditions().links, StreamLinks::Tcp(_)) {
            return never(
                "admit: the ranks use InfiniBand or RoCE, over which nobody is admitted: start \
                 them with MAYPOLE_TRANSPORT=tcp",
            );
        }
        let within = within.min(self.timeout() / 2);
        let world = self.world();
        let title = "admit(), waiting for newcomers".to_owned();
        self.engine.get().health.begin_message(title, None, 0);
        let found = admissions.find(world, transport == Transport::Shm, within);
        self.engine.get().health.end_message();
        found.map_err(|error| (error.to_string(), error.is_retryable()))
    }

    /// Joins a running world, as rank `config.rank` if that is free. Waits until its ranks
    /// [admit](Self::admit), and returns together with them. `config` has the address, the ports,
    /// the job and the key of their [`Admissions`], and its world. The transport is that of the
    /// ranks.
    ///
    /// # Errors
    /// [`Error::Join`], within [`JoinConfig::join_timeout`] and [`JoinConfig::timeout`]: no process
    /// listens at the address, the key, the job, the version or a variable differs, or the ranks do
    /// not admit. An example is that of [`admit`](Self::admit).
    pub fn enter(config: JoinConfig) -> Result<Self> {
        Self::enter_in(&Environment::default(), config, &JoinStop::default())
    }

    /// As [`enter`](Self::enter), with the other settings from the environment.
    pub(super) fn enter_in(
        environment: &Environment,
        config: JoinConfig,
        stop: &JoinStop,
    ) -> Result<Self> {
        let mine = JoinReport::of_this_process();
        let (service, agreed) = knock(&config, &wire::encode(&mine), stop)?;
        let rank = service.rank();
        let world = JoinedWorld::of(&agreed).map_err(Error::wrong_setting)?;
        let control = Arc::new(ProcessControl::world(service).over(links()));
        let limits = (config.timeout, config.encrypt);
        let mut comm = world.communicator(rank, control, limits, links(), None);
        comm.finish_joining(environment)?;
        Ok(comm)
    }

    /// The report of this rank for newcomers and for the ranks that admit them.
    pub(crate) fn admission_report(&self) -> Vec<u8> {
        let report = JoinReport {
            costs: Some(self.costs().to_string()),
            transport: self.conditions().transport,
            trace: self.engine.get().recorder.as_ref().map(|it| it.trace().to_owned()),
            ..JoinReport::of_this_process()
        };
        wire::encode(&report)
    }

    /// The communicator of this rank in a world with newcomers. `members`: by rank there, the rank here.
    pub(crate) fn with_newcomers(
        &self,
        grown: &JoinedWorld,
        members: &[usize],
        control: Arc<dyn Control>,
    ) -> Self {
        let rank = members.iter().position(|member| *member == self.rank());
        let rank = rank.expect("this rank is a member of the new world");
        let limits = (self.timeout(), self.conditions().encrypts);
        grown.communicator(rank, control, limits, links(), Some(self.engine.get()))
    }
}

/// The transport of streams in a world with newcomers.
fn links() -> StreamLinks {
    StreamLinks::Tcp(RefusalReason::Other(ADMITTED.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// The communicator after `comm`, with a newcomer. Checks that dropping `comm` ends its handle
    /// on the control plane, and with it the service, its descriptors and its state.
    fn grown(mut comm: Communicator, admissions: &mut Admissions) -> Communicator {
        comm.all_reduce(&mut [1], crate::ReduceOp::Sum).unwrap();
        let before = Arc::downgrade(&comm.engine.messages.control);
        let grown = loop {
            if let Some(grown) = comm.admit(admissions, PATIENCE).unwrap() {
                break grown;
            }
        };
        assert_eq!(grown.world(), comm.world() + 1);
        drop(comm);
        assert!(before.upgrade().is_none(), "the new world holds the old one's control plane");
        grown
    }

    fn end(mut comm: Communicator) {
        comm.barrier().unwrap();
        comm.close().unwrap();
    }

    #[test]
    fn nothing_holds_the_control_plane_of_the_world_before() {
        let job = format!("handles {}", std::process::id());
        let at = |rank, world| {
            let mut config = JoinConfig::new(rank, world, "127.0.0.1").with_job(&job);
            (config.join_timeout, config.timeout) = (PATIENCE, PATIENCE);
            config
        };
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let comm = Communicator::enter(at(1, 3)).unwrap();
                end(grown(comm, &mut Admissions::new(at(0, 3))));
            });
            let mut admissions = Admissions::new(at(0, 3));
            let comm = Communicator::join(at(0, 1), Transport::Auto).unwrap();
            let comm = grown(comm, &mut admissions);
            threads.spawn(|| end(Communicator::enter(at(2, 3)).unwrap()));
            end(grown(comm, &mut admissions));
        });
    }
}
