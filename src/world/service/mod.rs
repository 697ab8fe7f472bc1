//! The control plane: agreement, connections and failure of the ranks.
//!
//! Every rank has one service thread, which sleeps in epoll and never touches data. All control
//! connections end at rank 0, so that rank 0 sends its messages to all ranks in the same order. A
//! failure anywhere raises the [`Alarm`] of every rank, and all ranks name the same first
//! [`Cause`].
//!
//! Causes are ordered by sequence number, then by kind (death before abort before mismatch before
//! timeout). Of two failures of one kind in one operation the one that reaches rank 0 first counts,
//! so no rank changes its cause. Rank 0 forwards a cause to all others before its own program gets
//! the error. If it is silent, ranks notify their neighbours in a binomial graph.
//!
//! A mismatch and a missed deadline are sent as data, so every rank reports equal fields, and adds
//! the call that it aborted. After a long wait, a rank sends status requests along the chain of
//! waits, over connections of its own: rank 0 may be the one that is stopped.

mod acceptor;
mod cause;
mod connection;
mod coordinator;
mod diagnosis;
mod direct;
mod error;
mod failing;
mod fates;
pub(crate) mod message;
mod progress;
mod shrink;
mod state;
mod thread;

pub(crate) use acceptor::{ACCEPTOR, Acceptor, Authenticated};
pub use cause::{Cause, CauseDetail, CauseEvent, FailureKind};
pub(crate) use connection::{ControlConnection, DialedLink, binding, is_timeout};
pub use diagnosis::{AskError, ChainLink, Diagnosis};
pub(in crate::world::service) use direct::DataConnection;
pub use direct::{DataPath, at_once};
pub use error::ServiceError;
pub(crate) use fates::Fates;
pub use progress::ProgressTable;
pub use shrink::Survivors;
pub(crate) use shrink::{AgreedWorld, ServiceSettings, scope_of};

use crate::labels;
pub use crate::world::calls::GroupId;
use crate::world::calls::{CallMismatch, GroupActivity, RankStatus, WaitTarget};
use crate::world::peer::Peer;
use maypole_transports::Alarm;
use maypole_transports::secure::JobSecret;
use maypole_transports::watch::Watch;
use message::{ControlRequest, ExchangePurpose, ExchangeRound, MAX_MESSAGE};
use state::ServiceContext;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thread::ServiceThread;

/// The first number of peers' connections for requests, in a service thread's watch.
const CALLER: u64 = 3 << 40;
/// After this silence a rank counts as silent, and a host whose kernel does not acknowledge
/// packets counts as gone.
pub(crate) const SILENCE_LIMIT: Duration = Duration::from_secs(10);
/// The longest wait of a leaving rank for the others.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(5);
/// How many groups, and how many of the last calls in each, a goodbye contains.
const GROUPS_IN_GOODBYE: usize = 8;
const RUNS_IN_GOODBYE: usize = 16;
/// The timeout of rank 0's reply to a query.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// One rank's handle on the control plane of its world. Any thread may use it.
///
/// Dropping it [leaves](Self::leave), which takes a bounded time, and never panics.
#[derive(Debug)]
pub struct Service {
    shared: Arc<ServiceContext>,
    hosts: Vec<usize>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Makes the reply to a process that tries to join as some rank after all these ranks have joined.
pub(crate) type LateAnswer = fn(&[Peer], usize) -> Vec<u8>;

impl Service {
    /// Starts the service of a rank that has joined its `peers`. On rank 0, `late_answer` makes the
    /// reply to a process that tries to join later.
    pub(crate) fn start(
        settings: ServiceSettings,
        (rank, peers): (usize, Vec<Peer>),
        (watch, acceptor): (Watch, Acceptor),
        controls: BTreeMap<usize, ControlConnection>,
        late_answer: Option<LateAnswer>,
    ) -> io::Result<Self> {
        // In the order of their first ranks.
        let hosts = labels::numbers(peers.iter().map(|peer| &peer.host));
        let shared = Arc::new(ServiceContext::new(rank, peers, settings)?);
        let service_thread =
            ServiceThread::new(Arc::clone(&shared), watch, acceptor, controls, late_answer)?;
        let thread = std::thread::Builder::new()
            .name(format!("maypole-{rank}"))
            .spawn(move || service_thread.run())?;
        Ok(Self { shared, hosts, thread: Mutex::new(Some(thread)) })
    }

    /// A world of one.
    pub(crate) fn alone(timeout: Duration) -> io::Result<Self> {
        let secret = JobSecret { key: [0; 32], job: String::new(), session: [0; 16] };
        let verbs = Arc::default();
        let settings = ServiceSettings { secret, timeout, encrypt: false, data_ports: None, verbs };
        Ok(Self {
            shared: Arc::new(ServiceContext::new(0, Vec::new(), settings)?),
            hosts: vec![0],
            thread: Mutex::new(None),
        })
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.shared.rank
    }

    /// The number of ranks.
    pub fn world(&self) -> usize {
        self.hosts.len()
    }

    /// The address where this rank listens; `None` in a world of one.
    pub fn listening(&self) -> Option<SocketAddr> {
        self.shared.peers.get(self.rank()).filter(|_| self.world() > 1).map(|peer| peer.listen)
    }

    /// For each rank the number of its host. Ranks of one host can [share](Self::share) memory.
    pub fn hosts(&self) -> &[usize] {
        &self.hosts
    }

    /// Returns the alarm, which is raised when the world has failed. Slow waits check it.
    pub fn alarm(&self) -> Arc<Alarm> {
        Arc::clone(&self.shared.state().fates.world.alarm)
    }

    /// Returns the alarm of `group`, which can fail alone.
    pub(crate) fn alarm_of(&self, group: GroupId) -> Arc<Alarm> {
        Arc::clone(&self.shared.state().fates.of(Some(group)).alarm)
    }

    /// Returns the table of this rank's activity, which other ranks may request.
    pub fn progress(&self) -> Arc<ProgressTable> {
        Arc::clone(&self.shared.progress)
    }

    /// The least cause so far; `None` while the world has not failed.
    pub fn cause(&self) -> Option<Cause> {
        self.shared.state().fates.world.cause.clone()
    }

    /// The least cause of the world, or else of `group`; `None` while both work.
    pub(crate) fn cause_in(&self, group: GroupId) -> Option<Cause> {
        self.shared.state().fates.cause_in(&group)
    }

    /// True if `rank` has left.
    pub fn has_left(&self, rank: usize) -> bool {
        self.shared.state().left.contains(&rank)
    }

    /// The `payload` of every member, in the order of `members` (world ranks, this one among
    /// them).
    ///
    /// All members call it, with equal `group` and `members`, in the same order. Rank 0 relays all
    /// payloads, so they should be small.
    ///
    /// # Errors
    /// If the deadline passes (the error names the missing ranks), a member left, the world fails
    /// or has failed, or the payload is too large.
    pub fn exchange(
        &self,
        group: GroupId,
        members: &[usize],
        payload: Vec<u8>,
        deadline: Instant,
    ) -> Result<Vec<Vec<u8>>, ServiceError> {
        self.exchange_for(ExchangePurpose::Operation, group, members, payload, deadline)
    }

    /// As [`exchange`](Self::exchange), for another purpose.
    fn exchange_for(
        &self,
        purpose: ExchangePurpose,
        group: GroupId,
        members: &[usize],
        payload: Vec<u8>,
        deadline: Instant,
    ) -> Result<Vec<Vec<u8>>, ServiceError> {
        self.check_members(members)?;
        if members.len() == 1 {
            return Ok(vec![payload]);
        }
        let most = (MAX_MESSAGE - 65_536) / members.len();
        if payload.len() > most {
            let len = payload.len();
            return Err(ServiceError::Refused(format!(
                "{len} bytes are too many to exchange; the most is {most}"
            )));
        }
        let members = members.to_vec();
        let mut state = self.shared.state();
        let rounds = state.rounds.entry((group, purpose, members.clone())).or_default();
        *rounds += 1;
        let number = *rounds;
        drop(state);
        let round = ExchangeRound { group, purpose, members, number };
        self.shared.request(ControlRequest::Contribute { round: round.clone(), payload });
        match self.shared.wait_or_fail(group, deadline, |state| state.gathered.remove(&round)) {
            Some(Ok(Ok(payloads))) => Ok(payloads),
            Some(Ok(Err(rank))) => Err(self.gone(rank)),
            Some(Err(error)) => Err(error),
            None => Err(ServiceError::TimedOut {
                what: "an exchange",
                missing: self.missing_members(round),
            }),
        }
    }

    fn check_process(&self) -> Result<(), ServiceError> {
        if self.shared.is_forked() {
            let why = "the control plane has ended: it was made before this process was forked";
            return Err(ServiceError::Refused(why.to_owned()));
        }
        Ok(())
    }

    fn check_members(&self, members: &[usize]) -> Result<(), ServiceError> {
        self.check_process()?;
        let distinct: BTreeSet<&usize> = members.iter().collect();
        let fits = distinct.len() == members.len() && distinct.last() < Some(&&self.world());
        if fits && members.contains(&self.rank()) {
            return Ok(());
        }
        Err(ServiceError::Refused(format!(
            "{members:?} is no group of which rank {} is a member",
            self.rank()
        )))
    }

    fn missing_members(&self, round: ExchangeRound) -> Vec<usize> {
        self.shared.request(ControlRequest::AskMissing { round: round.clone() });
        self.shared
            .wait(Instant::now() + QUERY_TIMEOUT, |state| state.missing.remove(&round))
            .unwrap_or_default()
    }

    /// Requests the calls of the awaited rank of `group`. If they do not match those of this rank,
    /// the world fails. Non-blocking.
    pub fn ask_calls(&self, group: GroupId, activity: &GroupActivity, awaited: WaitTarget) {
        if self.world() > 1 {
            self.shared.ask_calls(group, activity, awaited, 0);
        }
    }

    /// Compares the calls of this rank in `group` with those of the group's rank `peer`. Returns
    /// the first two calls that do not match, if the reply arrives within a second. The world fails
    /// then.
    pub fn compare_calls(&self, group: GroupId, peer: usize) -> Option<CallMismatch> {
        let activity = self.shared.progress.activity(group).filter(|_| self.world() > 1)?;
        let token = self.shared.update(|state| {
            state.next_question += 1;
            state.questions.insert(state.next_question, None);
            state.next_question
        });
        self.shared.ask_calls(group, &activity, WaitTarget::Rank(peer), token);
        let answered = |state: &mut state::ServiceState| {
            let answer = state.questions.get(&token)?.clone();
            answer.or_else(|| state.closed.is_some().then_some(None))
        };
        let answer = self.shared.wait(Instant::now() + QUERY_TIMEOUT, answered);
        self.shared.update(|state| state.questions.remove(&token));
        activity.calls().compare(&answer??)
    }

    /// The status of this rank in all of its groups.
    pub fn status(&self) -> RankStatus {
        self.shared.status(None)
    }

    /// Sends the goodbye after operation `last_sequence`, and ends the service. Rank 0 waits until
    /// the others have left. A `patient` rank waits until the others have left, have done as many
    /// operations, or have failed; after a failure [`cause`](Self::cause) has the reason. No rank
    /// waits longer than 5 s. Idempotent; later requests fail.
    ///
    /// # Errors
    /// [`ServiceError::TimedOut`] if the goodbye was not confirmed in time. The service has ended
    /// nevertheless.
    pub fn leave(&self, last_sequence: u64, patient: bool) -> Result<(), ServiceError> {
        if self.shared.is_forked() {
            return Ok(());
        }
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return Ok(()) };
        self.shared.update(|state| state.leaving = true);
        let groups = self.shared.progress.last_groups(GROUPS_IN_GOODBYE).into_iter();
        let calls = groups.map(|activity| activity.status(false, u64::MAX, RUNS_IN_GOODBYE));
        let calls = calls.collect();
        self.shared.request(ControlRequest::Goodbye { last: last_sequence, calls, patient });
        // Rank 0 serves the others until they have left, also after a failure.
        let ends_by_failure = patient && self.rank() != 0;
        let over = |state: &mut state::ServiceState| {
            let failed = ends_by_failure && state.fates.world.cause.is_some();
            (failed || state.farewell || state.closed.is_some()).then_some(())
        };
        let heard = self.shared.wait(Instant::now() + GOODBYE_TIMEOUT, over);
        self.shared.update(|state| state.stop = true);
        self.shared.waker.wake();
        // The thread checks `stop` after each event, and handles an event within milliseconds.
        let _ = thread.join();
        heard.ok_or_else(|| ServiceError::TimedOut {
            what: "the goodbye",
            missing: self.still_here(),
        })
    }

    fn still_here(&self) -> Vec<usize> {
        if self.rank() != 0 {
            return vec![0];
        }
        let state = self.shared.state();
        (1..self.world()).filter(|rank| !state.left.contains(rank)).collect()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if self.shared.is_forked() {
            // The thread runs in the parent process, so it can be neither joined nor detached here.
            // Its locks may be held indefinitely.
            let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner);
            return std::mem::forget(thread.take());
        }
        let world = self.shared.progress.activity(GroupId::WORLD);
        let last = world.and_then(|activity| activity.pulse().read()).map_or(0, |(_, last)| last);
        if let Err(error) = self.leave(last, false) {
            tracing::warn!(%error, "left without a confirmed goodbye");
        }
    }
}

#[cfg(test)]
mod fuzz_tests;
