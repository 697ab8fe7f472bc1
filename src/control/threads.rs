//! The control plane of ranks that are threads of one process: a table under a lock.

mod leaving;
mod shrink;
mod waiting;

use crate::control::links::{ONE_PROCESS, ThreadLinks};
use crate::control::transport::{Transport, VerbsOffer};
use crate::control::{Control, GroupMembership, Result, SurvivingGroup, aborted};
use crate::execute::messages::Connector;
use crate::execute::{AnyStream, SlowWait, WaitWatcher};
use crate::topology::StreamLinks;
use crate::world::PortChoice;
use crate::world::calls::{CallMismatch, GroupActivity, NetworkStatus, RankStatus, WaitTarget};
use crate::world::service::{Cause, Diagnosis, Fates, GroupId, ServiceError};
use maypole_kernels::SharedRegion;
use maypole_transports::limits::with_limit;
use maypole_transports::shm::Segment;
use maypole_transports::{Board, turns};
use shrink::PendingShrink;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How often a thread that waits for others checks whether their calls match its own.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The state that the threads of one world share, under a mutex.
#[derive(Debug)]
pub(crate) struct SharedWorld {
    links: Arc<dyn ThreadLinks>,
    /// By rank: its number in the first world, from which this one was shrunk.
    first_ranks: Vec<usize>,
    state: Mutex<WorldState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WorldState {
    /// By the identity of each group.
    groups: BTreeMap<(GroupId, usize), GroupTable>,
    /// Ranks of the world that have died.
    dead: HashSet<usize>,
    /// Worlds in which ranks continue, and the ranks here of their ranks.
    successors: Vec<(Weak<SharedWorld>, Vec<usize>)>,
    fates: Fates<(GroupId, usize)>,
}

/// The state that the threads of one group share.
#[derive(Debug, Default)]
struct GroupTable {
    exchanges: HashMap<u64, PendingExchange>,
    /// Boards and segments that not all of their ranks have taken, by the first of these ranks.
    boards: HashMap<usize, SharedValue<SharedRegion>>,
    segments: HashMap<(usize, u32), SharedValue<Result<Segment>>>,
    /// Streams of which one end was taken, by the lower and the higher rank.
    streams: HashMap<(usize, usize), AnyStream>,
    /// Streams for messages that their receivers have not taken, by receiver.
    calls: HashMap<usize, Vec<(usize, AnyStream)>>,
    activities: BTreeMap<usize, Arc<GroupActivity>>,
    left: BTreeSet<usize>,
    shrink: PendingShrink,
}

#[derive(Debug, Default)]
struct PendingExchange {
    blobs: BTreeMap<usize, Vec<u8>>,
    readers: usize,
}

impl WorldState {
    fn group(&mut self, identity: (GroupId, usize)) -> &mut GroupTable {
        self.groups.entry(identity).or_default()
    }
}

/// A value, and how many ranks have taken it.
#[derive(Debug)]
struct SharedValue<T> {
    value: Arc<T>,
    taken: usize,
}

/// Takes the value of `key`, which the first of `takers` makes and the last one removes.
fn take_shared<K: Copy + Eq + Hash, T>(
    table: &mut HashMap<K, SharedValue<T>>,
    key: K,
    takers: usize,
    make: impl FnOnce() -> T,
) -> Arc<T> {
    let fresh = || SharedValue { value: Arc::new(make()), taken: 0 };
    let shared = table.entry(key).or_insert_with(fresh);
    shared.taken += 1;
    let (value, taken) = (Arc::clone(&shared.value), shared.taken);
    if taken == takers {
        table.remove(&key);
    }
    value
}

impl SharedWorld {
    /// A world of the ranks that have these numbers in the first world.
    pub(crate) fn new(links: Arc<dyn ThreadLinks>, first_ranks: Vec<usize>) -> Arc<Self> {
        Arc::new(Self { links, first_ranks, state: Mutex::default(), changed: Condvar::new() })
    }

    /// The handle of rank `me`.
    pub(crate) fn control_of(self: &Arc<Self>, me: usize) -> Arc<dyn Control> {
        let members = (0..self.first_ranks.len()).collect();
        let activity = Arc::new(GroupActivity::new(GroupId::WORLD, members, me));
        let alarm = Arc::clone(&self.state().fates.world.alarm);
        ThreadControl::handle(self, GroupMembership { activity, alarm, departures: Arc::default() })
    }

    /// Records that the world has failed, or a group alone. Returns the first cause. Ranks are those of the
    /// world.
    pub(crate) fn fail(&self, cause: Cause) -> Cause {
        let mut state = self.state();
        let group = cause.group().zip(cause.members().map(|members| members[0]));
        let fate = state.fates.of(group);
        fate.learn(&cause);
        let first = fate.cause.clone().unwrap_or(cause);
        drop(state);
        self.notify();
        first
    }

    fn state(&self) -> MutexGuard<'_, WorldState> {
        // Every change is one insertion or removal, so a thread that panicked while it held the
        // lock left the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct ThreadControl {
    shared: Arc<SharedWorld>,
    membership: GroupMembership,
    /// Exchanges that this rank has begun.
    rounds: AtomicU64,
}

impl WaitWatcher for ThreadControl {
    fn has_left(&self, peer: usize) -> bool {
        self.with_group(|group| group.left.contains(&peer))
    }

    fn note_wait(&self, wait: SlowWait) {
        let awaited = WaitTarget::Rank(wait.peer);
        if self.membership.activity.wait(awaited, wait.step, wait.windows, turns::now()) {
            self.fail_by(self.compare(wait.peer));
        }
    }
}

impl Connector for ThreadControl {
    fn dial_all(&self, peers: &[usize], _: Instant) -> Vec<Result<AnyStream, String>> {
        let dial = |peer: &usize| {
            let (mine, theirs) = self.pair(*peer);
            let call = (self.me(), theirs);
            self.with_group(|group| group.calls.entry(*peer).or_default().push(call));
            self.shared.notify();
            Ok(mine)
        };
        peers.iter().map(dial).collect()
    }

    fn callers(&self) -> Vec<(usize, AnyStream)> {
        self.with_group(|group| group.calls.remove(&self.me())).unwrap_or_default()
    }
}

impl ThreadControl {
    fn handle(shared: &Arc<SharedWorld>, membership: GroupMembership) -> Arc<dyn Control> {
        let (shared, rounds) = (Arc::clone(shared), AtomicU64::new(0));
        let control = Self { shared, membership, rounds };
        control.with_group(|group| group.activities.insert(control.me(), control.activity()));
        Arc::new(control)
    }

    fn me(&self) -> usize {
        self.membership.activity.rank()
    }

    /// Reads or changes the shared state of the group's threads.
    fn with_group<T>(&self, access: impl FnOnce(&mut GroupTable) -> T) -> T {
        access(self.shared.state().group(self.identity()))
    }

    /// A stream to `peer`: this rank's end and the other.
    fn pair(&self, peer: usize) -> (AnyStream, AnyStream) {
        let [near, far] = [self.me(), peer].map(|rank| self.members()[rank]);
        self.shared.links.pair(self.shared.first_ranks[near], self.shared.first_ranks[far])
    }

    fn activity_of(&self, peer: usize) -> Option<Arc<GroupActivity>> {
        self.with_group(|group| group.activities.get(&peer).cloned())
    }

    /// The status of rank `rank` of the world: see [`RankStatus::of`].
    fn status_of(&self, rank: usize, about: Option<GroupId>) -> RankStatus {
        let mut state = self.shared.state();
        let all = state.groups.values().flat_map(|group| group.activities.values());
        let groups: Vec<_> = all.filter(|it| it.members()[it.rank()] == rank).cloned().collect();
        let left = state.group((GroupId::WORLD, 0)).left.iter().copied().collect();
        let failure = state.fates.world.cause.as_ref().map(|cause| cause.text.to_string());
        let waits = state.fates.world.alarm.has_foreground_wait();
        drop(state);
        let network = NetworkStatus { left, ..NetworkStatus::default() };
        let this = (rank, self.shared.first_ranks.len());
        RankStatus { network, failure, ..RankStatus::of(this, &groups, waits, about) }
    }
}

impl Control for ThreadControl {
    fn membership(&self) -> &GroupMembership {
        &self.membership
    }

    fn exchange(&self, blob: Vec<u8>, deadline: Instant) -> Result<Vec<Vec<u8>>> {
        let round = self.rounds.fetch_add(1, Ordering::Relaxed);
        let size = self.members().len();
        self.with_group(|group| {
            group.exchanges.entry(round).or_default().blobs.insert(self.me(), blob);
        });
        self.shared.notify();
        let missing = |group: &mut GroupTable| -> Vec<usize> {
            let given = group.exchanges.get(&round).map(|exchange| &exchange.blobs);
            let is_missing = |rank: &usize| given.is_some_and(|given| !given.contains_key(rank));
            (0..size).filter(is_missing).collect()
        };
        let ready = |state: &mut WorldState, is_late: bool| {
            let group = state.groups.entry(self.identity()).or_default();
            let cause = state.fates.cause_in(&self.identity());
            let missing = missing(group);
            let exchange = group.exchanges.get_mut(&round).filter(|_| missing.is_empty());
            Some(match (exchange, missing.iter().find(|rank| group.left.contains(rank)), cause) {
                (_, Some(rank), _) => Err(ServiceError::Left { rank: *rank }),
                (Some(exchange), ..) => {
                    let blobs = exchange.blobs.values().cloned().collect();
                    exchange.readers += 1;
                    if exchange.readers == size {
                        group.exchanges.remove(&round);
                    }
                    Ok(blobs)
                }
                (.., Some(cause)) => Err(ServiceError::Aborted { cause }.in_group(self.members())),
                _ if is_late => Err(ServiceError::TimedOut { what: "an exchange", missing }),
                _ => return None,
            })
        };
        let slow = || {
            if let Some(peer) = self.with_group(missing).first() {
                self.note_wait(SlowWait { peer: *peer, step: 0, windows: (0, 1) });
            }
        };
        self.shared.until(deadline, ready, slow)
    }

    fn board(&self, locals: &[usize], me: usize, _: Instant) -> Result<Board> {
        let ranks = locals.len();
        let make = || SharedRegion::new(Board::bytes(ranks));
        let take = |group: &mut GroupTable| take_shared(&mut group.boards, locals[0], ranks, make);
        Ok(Board::new(self.with_group(take), ranks, me))
    }

    fn segment(&self, locals: &[usize], number: u32, bytes: usize, _: Instant) -> Result<Segment> {
        let key = (locals[0], number);
        let failed = |error: std::io::Error| ServiceError::Refused(error.to_string());
        let make = || Segment::create(bytes).map_err(failed);
        let segment =
            self.with_group(|group| take_shared(&mut group.segments, key, locals.len(), make));
        let segment = segment.as_ref().as_ref().map_err(Clone::clone)?;
        let own = segment.fd().try_clone_to_owned().and_then(|fd| Segment::from_fd(fd, bytes));
        own.map_err(|error| failed(with_limit(error)))
    }

    fn streams(&self, peers: &[usize], _: Instant) -> Result<Vec<AnyStream>> {
        let me = self.me();
        self.with_group(|group| {
            let stream = |peer: &usize| {
                let key = (me.min(*peer), me.max(*peer));
                group.streams.remove(&key).unwrap_or_else(|| {
                    let (mine, theirs) = self.pair(*peer);
                    group.streams.insert(key, theirs);
                    mine
                })
            };
            Ok(peers.iter().map(stream).collect())
        })
    }

    fn compare(&self, peer: usize) -> Option<CallMismatch> {
        let theirs = self.activity_of(peer)?;
        self.membership.activity.calls().compare(&theirs.calls())
    }

    fn locate(&self, peer: usize) -> Diagnosis {
        self.membership.activity.wait(WaitTarget::Rank(peer), 0, (0, 1), turns::now());
        let ask = |rank, group| Ok(self.status_of(rank, Some(group)));
        Diagnosis::follow(self.group(), self.members()[peer], ask)
    }

    fn fail(&self, cause: Cause) -> Cause {
        if turns::is_dropped() {
            return cause;
        }
        self.shared.fail(cause).in_group(self.members())
    }

    fn status(&self) -> RankStatus {
        self.status_of(self.members()[self.me()], None)
    }

    fn abort(&self, why: &str) {
        if self.shared.state().fates.world.cause.is_none() {
            self.fail(aborted(self.members()[self.me()], why));
        }
    }

    fn shrink(&self, deadline: Instant) -> Result<SurvivingGroup> {
        let (shared, members) = self.shared.shrink(&self.membership.activity, deadline)?;
        let me = members.iter().position(|rank| *rank == self.me()).expect("this rank has come");
        Ok(SurvivingGroup { control: shared.control_of(me), members })
    }

    fn cause(&self) -> Option<Cause> {
        let cause = self.shared.state().fates.cause_in(&self.identity());
        cause.map(|cause| cause.in_group(self.members()))
    }

    fn offer_verbs(&self, _: Transport, _: PortChoice) -> VerbsOffer {
        Err(ONE_PROCESS.to_owned())
    }

    fn subgroup(&self, members: &[usize], number: u64, _: &StreamLinks) -> Arc<dyn Control> {
        let open = |group, members, me| Arc::new(GroupActivity::new(group, members, me));
        let mut membership = self.membership.split(members, number, open);
        let group = Some(membership.activity.identity());
        membership.alarm = Arc::clone(&self.shared.state().fates.of(group).alarm);
        ThreadControl::handle(&self.shared, membership)
    }

    fn leave(&self, sequence: u64, patient: bool) {
        if turns::is_dropped() {
            return;
        }
        match patient {
            true => self.await_others(sequence),
            false => self.compare_with_left(),
        }
        let identity = self.identity();
        let mut state = self.shared.state();
        let left = &mut state.group(identity).left;
        left.insert(self.me());
        // Frees the state of a group that all members have left.
        if left.len() == self.members().len() && identity.0 != GroupId::WORLD {
            state.groups.remove(&identity);
            state.fates.forget(&identity);
        }
        drop(state);
        self.shared.notify();
    }
}
