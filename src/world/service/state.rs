//! The state that a rank's calling threads and its service thread share, under a mutex. A waker
//! wakes the service thread for new requests, and a condition variable wakes callers on changes.

mod left_groups;

use super::fates::Fates;
use super::message::{AskedRank, ControlRequest, ExchangePurpose, ExchangeRound, StatusQuestion};
use super::shrink::{ServiceSettings, ShrinkCalls};
use super::{Cause, DataConnection, GroupId, ProgressTable, ServiceError};
use crate::world::calls::{GroupActivity, GroupStatus, NetworkStatus, RankStatus, WaitTarget};
use crate::world::peer::Peer;
use left_groups::LeftGroups;
use maypole_transports::OwnerProcess;
use maypole_transports::secure::Purpose;
use maypole_transports::watch::Waker;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The interval at which a thread that waits for the control plane polls whether a query about
/// calls is due.
const CALL_CHECK_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct ServiceContext {
    pub(crate) rank: usize,
    pub(crate) peers: Vec<Peer>,
    pub(crate) settings: ServiceSettings,
    pub(crate) progress: Arc<ProgressTable>,
    pub(crate) waker: Waker,
    /// The process that runs the service thread.
    owner: OwnerProcess,
    state: Mutex<ServiceState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct ServiceState {
    /// The queue of requests that the service thread sends to rank 0.
    pub(crate) requests: Vec<ControlRequest>,
    pub(crate) fates: Fates<GroupId>,
    /// True while a failure that this rank has sent is neither confirmed by rank 0 nor relayed to
    /// the neighbours.
    pub(crate) telling: bool,
    /// The least cause that was or is being relayed to the neighbours of this rank.
    pub(crate) relayed: Option<Cause>,
    /// Ranks that have left.
    pub(crate) left: BTreeSet<usize>,
    /// Ranks whose processes have ended, as the kernel of this host reports.
    pub(crate) ended: BTreeSet<usize>,
    /// Calls of survivors that agree on a new world.
    pub(crate) shrinks: ShrinkCalls,
    /// Ended exchanges: all parts, or the rank that left before its part arrived.
    pub(crate) gathered: HashMap<ExchangeRound, Result<Vec<Vec<u8>>, usize>>,
    pub(crate) missing: HashMap<ExchangeRound, Vec<usize>>,
    /// Data connections that peers made to this rank, by group, peer and lane.
    pub(crate) arrived: HashMap<(GroupId, usize, u32), DataConnection>,
    /// The number of exchanges begun, by group, purpose and members.
    pub(crate) rounds: HashMap<(GroupId, ExchangePurpose, Vec<usize>), u64>,
    /// Groups that this rank has left.
    pub(crate) left_groups: LeftGroups,
    pub(crate) next_question: u64,
    /// Queries about calls that a thread waits for, and the replies so far.
    pub(crate) questions: HashMap<u64, Option<Option<GroupStatus>>>,
    /// Connections and silent ranks. The ranks that have left are in `left`.
    pub(crate) network: NetworkStatus,
    /// On rank 0: all others have left or died. On others: rank 0 has confirmed the goodbye.
    pub(crate) farewell: bool,
    /// This rank has sent its goodbye, so the end of a connection is no failure.
    pub(crate) leaving: bool,
    /// Stops the service thread.
    pub(crate) stop: bool,
    /// Why the service thread has ended or cannot continue.
    pub(crate) closed: Option<String>,
}

impl ServiceContext {
    pub(crate) fn new(
        rank: usize,
        peers: Vec<Peer>,
        settings: ServiceSettings,
    ) -> io::Result<Self> {
        // Reports are read while ranks join. Kept, they would take memory of each rank for all others.
        let peers = peers.into_iter().map(|peer| Peer { report: Vec::new(), ..peer }).collect();
        Ok(Self {
            rank,
            peers,
            settings,
            progress: Arc::default(),
            waker: Waker::new()?,
            owner: OwnerProcess::current(),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// This rank's status in all of its groups or, for a rank that waits in the group `about`, in
    /// those that can explain that wait.
    pub(crate) fn status(&self, about: Option<GroupId>) -> RankStatus {
        let groups = self.progress.activities(about);
        let this = (self.rank, self.peers.len().max(1));
        let state = self.state();
        let world = &state.fates.world;
        let status = RankStatus::of(this, &groups, world.alarm.has_foreground_wait(), about);
        let failure = world.cause.as_ref().map(|cause| cause.text.to_string());
        let culprit = world.cause.as_ref().and_then(|cause| cause.culprit);
        let left = state.left.iter().copied().collect();
        let network = NetworkStatus { left, ..state.network.clone() };
        RankStatus { network, failure, culprit, ..status }
    }

    /// The purpose of this world's data connections.
    pub(crate) fn data_purpose(&self) -> Purpose {
        if self.settings.encrypt { Purpose::EncryptedData } else { Purpose::Data }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, ServiceState> {
        // Every change is one assignment or insertion, so the state is valid after a panic under
        // the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True in a forked child, which has no service thread, and whose descriptors belong to its
    /// parent.
    pub(crate) fn is_forked(&self) -> bool {
        !self.owner.is_current()
    }

    /// Changes the state, and wakes all threads that wait for a change.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut ServiceState) -> T) -> T {
        let outcome = change(&mut self.state());
        self.changed.notify_all();
        outcome
    }

    /// Queues `request`; the service thread sends it to rank 0.
    pub(crate) fn request(&self, request: ControlRequest) {
        self.state().requests.push(request);
        self.waker.wake();
    }

    /// Records a failure, which ends every wait soon. The cause and the alarm become visible
    /// together: a thread that sees the cause alone could begin a call for which others have
    /// published their parts.
    pub(crate) fn learn(&self, cause: &Cause) {
        let group = cause.group();
        self.update(|state| {
            if group.is_none_or(|group| !state.left_groups.contains(group)) {
                state.fates.of(group).learn(cause);
            }
        });
    }

    /// Records a relayed failure. Without rank 0 two failures of one kind in one operation have no
    /// order, so the lesser one counts.
    pub(crate) fn learn_relayed(&self, cause: &Cause) {
        self.update(|state| {
            state.fates.world.cause.take_if(|known| cause < known);
            state.fates.world.learn(cause);
            state.telling = false;
        });
    }

    /// Sleeps until `ready` returns a value; `None` once `deadline` has passed.
    pub(crate) fn wait<T>(
        &self,
        deadline: Instant,
        mut ready: impl FnMut(&mut ServiceState) -> Option<T>,
    ) -> Option<T> {
        let mut state = self.state();
        loop {
            if let Some(it) = ready(&mut state) {
                return Some(it);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            state =
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// As [`wait`](Self::wait), but returns an error as soon as `group` has failed or the service
    /// has ended. Meanwhile compares the calls of awaited ranks with this rank's own, at intervals.
    pub(crate) fn wait_or_fail<T>(
        &self,
        group: GroupId,
        deadline: Instant,
        mut ready: impl FnMut(&mut ServiceState) -> Option<T>,
    ) -> Option<Result<T, ServiceError>> {
        loop {
            let pause = deadline.min(Instant::now() + CALL_CHECK_INTERVAL);
            let ended = self.wait(pause, |state| match ready(state) {
                Some(it) => Some(Ok(it)),
                None => state.failure(group).map(Err),
            });
            if ended.is_some() || pause == deadline {
                return ended;
            }
            self.check_calls();
        }
    }

    /// For each group in which this rank waits: requests the awaited rank's calls, if a query is
    /// due.
    fn check_calls(&self) {
        for (group, activity) in self.progress.open_groups() {
            let Some(wait) = activity.pending_wait() else { continue };
            if activity.wait(wait.target, wait.step, wait.windows, Instant::now()) {
                self.ask_calls(group, &activity, wait.target, 0);
            }
        }
    }

    /// Requests the calls of the awaited rank of `group`. The service thread takes the reply and
    /// fails the world if the calls do not match.
    pub(crate) fn ask_calls(
        &self,
        group: GroupId,
        activity: &GroupActivity,
        awaited: WaitTarget,
        token: u64,
    ) {
        let of = match awaited {
            WaitTarget::Rank(rank) => AskedRank::World(activity.members()[rank]),
            WaitTarget::MissingMembers => AskedRank::Missing,
        };
        let question = StatusQuestion { token, group, end: activity.pulse().begun() };
        self.request(ControlRequest::AskStatus { of, question });
    }
}

impl ServiceState {
    /// True if no failure of this rank waits to be confirmed or relayed.
    pub(crate) fn has_told(&self) -> bool {
        !self.telling || self.closed.is_some()
    }

    /// Why the control plane is unusable for `group`; `None` while it works.
    pub(crate) fn failure(&self, group: GroupId) -> Option<ServiceError> {
        let aborted = self.fates.cause_in(&group).map(|cause| ServiceError::Aborted { cause });
        let ended = |why| ServiceError::Refused(format!("the control plane has ended: {why}"));
        aborted.or_else(|| self.closed.as_ref().map(ended))
    }
}
