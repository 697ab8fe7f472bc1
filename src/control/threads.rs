//! The control plane of ranks that are threads of one process: a table under a lock.

mod leaving;
mod shrink;
mod waiting;

use crate::control::departures::Departures;
use crate::control::error::{ControlError, Result};
use crate::control::links::{ONE_PROCESS, ThreadLinks, WorldLinks};
use crate::control::transport::Transport;
use crate::control::transport::VerbsOffer;
use crate::control::{Control, Straggler, SurvivingGroup, aborted, epoch};
use crate::execute::messages::Connector;
use crate::execute::{AnyStream, SlowWait, WaitWatcher};
use crate::topology::StreamLinks;
use crate::world::PortChoice;
use crate::world::calls::{CallMismatch, GroupActivity, NetworkStatus, RankStatus, WaitTarget};
use crate::world::service::{Cause, Contribution, Diagnosis, GroupId};
use maypole_kernels::SharedRegion;
use maypole_transports::limits::with_limit;
use maypole_transports::shm::Segment;
use maypole_transports::turns;
use maypole_transports::{Alarm, Board};
use shrink::PendingShrink;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How often a thread that waits for others checks whether their calls match its own.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// A group, by the numbers of the splits that led to it.
type GroupPath = Vec<u64>;

/// What the threads of one world share.
#[derive(Debug)]
pub(crate) struct SharedWorld {
    links: WorldLinks,
    alarm: Arc<Alarm>,
    state: Mutex<WorldState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WorldState {
    exchanges: HashMap<(GroupPath, u64), PendingExchange>,
    boards: HashMap<(GroupPath, usize), (Arc<SharedRegion>, usize)>,
    /// Segments that not all ranks of a board have taken, by their numbers, and how many have.
    segments: HashMap<(GroupPath, usize, u32), (SharedSegment, usize)>,
    streams: HashMap<(GroupPath, usize, usize), AnyStream>,
    /// Streams for messages that their receivers have not taken, by receiver.
    calls: HashMap<(GroupPath, usize), Vec<(usize, AnyStream)>>,
    activities: HashMap<(GroupPath, usize), Arc<GroupActivity>>,
    left: HashSet<(GroupPath, usize)>,
    /// Ranks of the world that have died.
    dead: HashSet<usize>,
    /// Worlds in which ranks go on, and the ranks here of their ranks.
    successors: Vec<(Weak<SharedWorld>, Vec<usize>)>,
    /// Groups whose members go on without those that have left.
    shrinks: HashMap<GroupPath, PendingShrink>,
    cause: Option<Cause>,
}

/// A segment, or why there is none.
type SharedSegment = Arc<std::result::Result<Segment, String>>;

#[derive(Debug, Default)]
struct PendingExchange {
    blobs: HashMap<usize, Vec<u8>>,
    readers: usize,
}

impl SharedWorld {
    /// The first world, of `world` ranks.
    pub(crate) fn new(links: Arc<dyn ThreadLinks>, world: usize) -> Arc<Self> {
        Self::over(WorldLinks::new(links, world))
    }

    fn over(links: WorldLinks) -> Arc<Self> {
        Arc::new(Self {
            links,
            alarm: Arc::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// The handle of rank `me` of `world` ranks.
    pub(crate) fn control_of(self: &Arc<Self>, world: usize, me: usize) -> Arc<dyn Control> {
        let members = (0..world).collect();
        let (shared, path) = (Arc::clone(self), Vec::new());
        let departures = Arc::default();
        Arc::new(ThreadControl::new(shared, GroupId::WORLD, path, members, me, departures))
    }

    /// Records that the world has failed. Returns the first cause. Ranks are those of the world.
    pub(crate) fn fail(&self, cause: Cause) -> Cause {
        let mut state = self.state();
        // Of two failures of one kind in one operation the first one counts.
        let known = state.cause.take();
        let first = known.filter(|known| !cause.precedes(known)).unwrap_or(cause);
        state.cause = Some(first.clone());
        self.alarm.raise();
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
    group: GroupId,
    path: GroupPath,
    /// World ranks of the group, by rank.
    members: Vec<usize>,
    me: usize,
    activity: Arc<GroupActivity>,
    rounds: Mutex<u64>,
    departures: Arc<Departures>,
}

impl WaitWatcher for ThreadControl {
    fn has_left(&self, peer: usize) -> bool {
        self.shared.state().left.contains(&(self.path.clone(), peer))
    }

    fn note_wait(&self, wait: SlowWait) {
        let awaited = WaitTarget::Rank(wait.peer);
        if self.activity.wait(awaited, wait.step, wait.windows, turns::now())
            && let Some(found) = self.compare(wait.peer)
        {
            let me = self.members[self.me];
            self.fail(Cause::mismatch(self.group, &self.members, me, found));
        }
    }
}

impl Connector for ThreadControl {
    fn dial(&self, peer: usize, _: Instant) -> Result<AnyStream, String> {
        let (mine, theirs) = self.pair(peer);
        let key = (self.path.clone(), peer);
        self.shared.state().calls.entry(key).or_default().push((self.me, theirs));
        self.shared.notify();
        Ok(mine)
    }

    fn callers(&self) -> Vec<(usize, AnyStream)> {
        self.shared.state().calls.remove(&(self.path.clone(), self.me)).unwrap_or_default()
    }
}

impl ThreadControl {
    fn new(
        shared: Arc<SharedWorld>,
        group: GroupId,
        path: GroupPath,
        members: Vec<usize>,
        me: usize,
        departures: Arc<Departures>,
    ) -> Self {
        let activity = Arc::new(GroupActivity::new(group, members.clone(), me));
        shared.state().activities.insert((path.clone(), me), Arc::clone(&activity));
        Self { shared, group, path, members, me, activity, rounds: Mutex::new(0), departures }
    }

    /// A stream to `peer`: this rank's end and the other.
    fn pair(&self, peer: usize) -> (AnyStream, AnyStream) {
        self.shared.links.pair(self.members[self.me], self.members[peer])
    }

    fn activity_of(&self, peer: usize) -> Option<Arc<GroupActivity>> {
        self.shared.state().activities.get(&(self.path.clone(), peer)).cloned()
    }

    /// What rank `rank` of the world does: see [`RankStatus::of`].
    fn status_of(&self, rank: usize, about: Option<GroupId>) -> RankStatus {
        let state = self.shared.state();
        let is_of = |it: &(_, &Arc<GroupActivity>)| it.1.members().get(it.1.rank()) == Some(&rank);
        // The path of a group is longer than that of the group that it was split from.
        let groups: BTreeMap<_, _> = state.activities.iter().filter(is_of).collect();
        let groups: Vec<_> = groups.into_values().cloned().collect();
        let world = groups.first().map_or(0, |world| world.members().len());
        let left = state.left.iter().filter(|(path, _)| path.is_empty()).map(|(_, rank)| *rank);
        let mut network = NetworkStatus { left: left.collect(), ..NetworkStatus::default() };
        network.left.sort_unstable();
        let failure = state.cause.as_ref().map(|cause| cause.text.to_string());
        drop(state);
        let waits = self.shared.alarm.has_foreground_wait();
        RankStatus { network, failure, ..RankStatus::of((rank, world), &groups, waits, about) }
    }
}

impl Control for ThreadControl {
    fn alarm(&self) -> Arc<Alarm> {
        Arc::clone(&self.shared.alarm)
    }

    fn identity(&self) -> (GroupId, usize) {
        (self.group, self.members[0])
    }

    fn exchange(&self, blob: Vec<u8>, deadline: Instant) -> Result<Vec<Vec<u8>>> {
        let round = {
            let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
            *rounds += 1;
            *rounds
        };
        let key = (self.path.clone(), round);
        let size = self.members.len();
        self.shared.state().exchanges.entry(key.clone()).or_default().blobs.insert(self.me, blob);
        self.shared.notify();
        let missing = || -> Vec<usize> {
            let state = self.shared.state();
            let Some(exchange) = state.exchanges.get(&key) else { return Vec::new() };
            (0..size).filter(|rank| !exchange.blobs.contains_key(rank)).collect()
        };
        let ready = |state: &mut WorldState| {
            let exchange = state.exchanges.get_mut(&key)?;
            let missing = |rank: &usize| !exchange.blobs.contains_key(rank);
            let left = |rank: &usize| state.left.contains(&(self.path.clone(), *rank));
            if let Some(rank) = (0..size).find(|rank| missing(rank) && left(rank)) {
                return Some(Err(ControlError::Left(rank)));
            }
            (exchange.blobs.len() == size).then_some(())?;
            let blobs = (0..size).map(|rank| exchange.blobs[&rank].clone()).collect();
            exchange.readers += 1;
            if exchange.readers == size {
                state.exchanges.remove(&key);
            }
            Some(Ok(blobs))
        };
        let slow = || {
            if let Some(peer) = missing().first() {
                self.note_wait(SlowWait { peer: *peer, step: 0, windows: (0, 1) });
            }
        };
        let blobs = self.shared.until(deadline, &self.members, ready, slow)?;
        blobs.ok_or_else(|| ControlError::TimedOut { what: "an exchange", missing: missing() })
    }

    fn board(&self, locals: &[usize], me: usize, _: Instant) -> Result<Board> {
        let key = (self.path.clone(), locals[0]);
        let mut state = self.shared.state();
        let fresh = || (Arc::new(SharedRegion::new(Board::bytes(locals.len()))), 0);
        let (region, takers) = state.boards.entry(key.clone()).or_insert_with(fresh);
        *takers += 1;
        let region = Arc::clone(region);
        if *takers == locals.len() {
            state.boards.remove(&key);
        }
        drop(state);
        Ok(Board::new(region, locals.len(), me))
    }

    fn segment(&self, locals: &[usize], number: u32, bytes: usize, _: Instant) -> Result<Segment> {
        let key = (self.path.clone(), locals[0], number);
        let mut state = self.shared.state();
        let fresh = || (Arc::new(Segment::create(bytes).map_err(|it| it.to_string())), 0);
        let (segment, takers) = state.segments.entry(key.clone()).or_insert_with(fresh);
        *takers += 1;
        let segment = Arc::clone(segment);
        if *takers == locals.len() {
            state.segments.remove(&key);
        }
        drop(state);
        let of = |segment: &Segment| Segment::from_fd(segment.fd().try_clone_to_owned()?, bytes);
        let segment = segment.as_ref().as_ref().map_err(|why| ControlError::Other(why.clone()))?;
        of(segment).map_err(|error| ControlError::Other(with_limit(error).to_string()))
    }

    fn streams(&self, peers: &[usize], _: Instant) -> Result<Vec<AnyStream>> {
        let mut state = self.shared.state();
        let stream = |peer: &usize| {
            let key = (self.path.clone(), self.me.min(*peer), self.me.max(*peer));
            state.streams.remove(&key).unwrap_or_else(|| {
                let (mine, theirs) = self.pair(*peer);
                state.streams.insert(key, theirs);
                mine
            })
        };
        Ok(peers.iter().map(stream).collect())
    }

    fn activity(&self) -> Arc<GroupActivity> {
        Arc::clone(&self.activity)
    }

    fn compare(&self, peer: usize) -> Option<CallMismatch> {
        let theirs = self.activity_of(peer)?;
        self.activity.calls().compare(&theirs.calls())
    }

    fn locate(&self, peer: usize) -> Option<Straggler> {
        self.activity.wait(WaitTarget::Rank(peer), 0, (0, 1), turns::now());
        let ask = |rank, group| Ok(self.status_of(rank, Some(group)));
        let found = Diagnosis::follow(self.group, self.members[peer], ask);
        Some(Straggler { report: found.sentence(), culprit: found.culprit() })
    }

    fn fail(&self, cause: Cause) -> Cause {
        if turns::is_dropped() {
            return cause;
        }
        self.shared.fail(cause).in_group(&self.members)
    }

    fn status(&self) -> RankStatus {
        self.status_of(self.members[self.me], None)
    }

    fn abort(&self, why: &str) {
        self.fail(aborted(self.members[self.me], why));
    }

    fn shrink(&self, _: Contribution, deadline: Instant) -> Result<SurvivingGroup> {
        let (shared, members) = self.shared.shrink(&self.path, self.me, &self.members, deadline)?;
        let me = members.iter().position(|rank| *rank == self.me).expect("this rank has come");
        let control = shared.control_of(members.len(), me);
        Ok(SurvivingGroup { control, members, grown: None })
    }

    fn cause(&self) -> Option<Cause> {
        let cause = self.shared.state().cause.clone();
        cause.map(|cause| cause.in_group(&self.members))
    }

    fn offer_verbs(&self, _: Transport, _: PortChoice) -> VerbsOffer {
        Err(ONE_PROCESS.to_owned())
    }

    fn subgroup(&self, members: &[usize], number: u64, _: &StreamLinks) -> Arc<dyn Control> {
        let world = members.iter().map(|rank| self.members[*rank]).collect::<Vec<_>>();
        let mut path = self.path.clone();
        // Groups of one split have disjoint members, so the first one tells them apart.
        path.extend([number, world[0] as u64]);
        let me = members.iter().position(|rank| *rank == self.me).expect("this rank is a member");
        let group = GroupId { parent_epoch: epoch(self.group), counter: number };
        let departures = Arc::clone(&self.departures);
        Arc::new(ThreadControl::new(Arc::clone(&self.shared), group, path, world, me, departures))
    }

    fn departures(&self) -> Arc<Departures> {
        Arc::clone(&self.departures)
    }

    fn leave(&self, sequence: u64, patient: bool) {
        if turns::is_dropped() {
            return;
        }
        match patient {
            true => self.await_others(sequence),
            false => self.compare_with_left(),
        }
        let mut state = self.shared.state();
        state.left.insert((self.path.clone(), self.me));
        self.forget(&mut state);
        drop(state);
        self.shared.notify();
    }
}
