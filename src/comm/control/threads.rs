//! The control plane of ranks that are threads of one process: a table behind a lock.

use crate::comm::control::{Control, Straggler};
use crate::execute::AnyStream;
use crate::execute::messages::Connector;
use crate::world::service::{Cause, Pulse};
use maypole_kernels::Region;
use maypole_transports::mem::{self, Mem};
use maypole_transports::{Alarm, Board};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A group, by the numbers of the splits that led to it.
type GroupPath = Vec<u64>;

/// What the threads of one world share.
#[derive(Debug)]
pub(crate) struct SharedWorld {
    /// Bytes that a stream between two threads holds.
    capacity: usize,
    alarm: Arc<Alarm>,
    state: Mutex<WorldState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WorldState {
    exchanges: HashMap<(GroupPath, u64), PendingExchange>,
    boards: HashMap<(GroupPath, usize), (Arc<Region>, usize)>,
    streams: HashMap<(GroupPath, usize, usize), Mem>,
    /// Streams for messages that their receivers have not taken, by receiver.
    calls: HashMap<(GroupPath, usize), Vec<(usize, Mem)>>,
    doing: HashMap<(GroupPath, usize), String>,
    left: HashSet<(GroupPath, usize)>,
    cause: Option<Cause>,
}

#[derive(Debug, Default)]
struct PendingExchange {
    blobs: HashMap<usize, Vec<u8>>,
    readers: usize,
}

impl SharedWorld {
    pub(crate) fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self {
            capacity,
            alarm: Arc::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// The handle of rank `me` of `world` ranks.
    pub(crate) fn control_of(self: &Arc<Self>, world: usize, me: usize) -> Arc<dyn Control> {
        let members = (0..world).collect();
        Arc::new(ThreadControl {
            shared: Arc::clone(self),
            path: Vec::new(),
            members,
            me,
            rounds: Mutex::new(0),
        })
    }

    fn state(&self) -> MutexGuard<'_, WorldState> {
        // Every change is one insertion or removal, so a thread that panicked while it held the
        // lock left the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `ready` now and after every change, until it returns a value.
    fn until<T>(
        &self,
        deadline: Instant,
        mut ready: impl FnMut(&mut WorldState) -> Option<T>,
    ) -> Result<T, String> {
        let mut state = self.state();
        loop {
            if let Some(it) = ready(&mut state) {
                return Ok(it);
            }
            if let Some(cause) = &state.cause {
                return Err(cause.text.clone());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("not all ranks came in time".to_owned());
            }
            state =
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[derive(Debug)]
struct ThreadControl {
    shared: Arc<SharedWorld>,
    path: GroupPath,
    /// World ranks of the group, by rank.
    members: Vec<usize>,
    me: usize,
    rounds: Mutex<u64>,
}

impl Connector for ThreadControl {
    fn dial(&self, peer: usize, _: Instant) -> Result<AnyStream, String> {
        let (mine, theirs) = mem::pair(self.shared.capacity);
        self.shared
            .state()
            .calls
            .entry((self.path.clone(), peer))
            .or_default()
            .push((self.me, theirs));
        Ok(AnyStream::Mem(mine))
    }

    fn callers(&self) -> Vec<(usize, AnyStream)> {
        let calls =
            self.shared.state().calls.remove(&(self.path.clone(), self.me)).unwrap_or_default();
        calls.into_iter().map(|(from, stream)| (from, AnyStream::Mem(stream))).collect()
    }

    fn has_left(&self, peer: usize) -> bool {
        self.shared.state().left.contains(&(self.path.clone(), peer))
    }
}

impl ThreadControl {
    /// `cause` with its culprit numbered as in this group; a rank that is no member has no number.
    fn in_group(&self, cause: Cause) -> Cause {
        let member = |world| self.members.iter().position(|member| *member == world);
        Cause { culprit: cause.culprit.and_then(member), ..cause }
    }
}

impl Control for ThreadControl {
    fn alarm(&self) -> Arc<Alarm> {
        Arc::clone(&self.shared.alarm)
    }

    fn exchange(&self, blob: Vec<u8>, deadline: Instant) -> Result<Vec<Vec<u8>>, String> {
        let round = {
            let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
            *rounds += 1;
            *rounds
        };
        let key = (self.path.clone(), round);
        let size = self.members.len();
        self.shared.state().exchanges.entry(key.clone()).or_default().blobs.insert(self.me, blob);
        self.shared.changed.notify_all();
        self.shared.until(deadline, |state| {
            let exchange = state.exchanges.get_mut(&key)?;
            let missing = |rank: &usize| !exchange.blobs.contains_key(rank);
            let left = |rank: &usize| state.left.contains(&(self.path.clone(), *rank));
            if let Some(rank) = (0..size).find(|rank| missing(rank) && left(rank)) {
                return Some(Err(format!("rank {rank} has left")));
            }
            (exchange.blobs.len() == size).then_some(())?;
            let blobs = (0..size).map(|rank| exchange.blobs[&rank].clone()).collect();
            exchange.readers += 1;
            if exchange.readers == size {
                state.exchanges.remove(&key);
            }
            Some(Ok(blobs))
        })?
    }

    fn board(&self, locals: &[usize], me: usize, _: Instant) -> Result<Board, String> {
        let key = (self.path.clone(), locals[0]);
        let mut state = self.shared.state();
        let fresh = || (Arc::new(Region::new(Board::bytes(locals.len()))), 0);
        let (region, takers) = state.boards.entry(key.clone()).or_insert_with(fresh);
        *takers += 1;
        let region = Arc::clone(region);
        if *takers == locals.len() {
            state.boards.remove(&key);
        }
        drop(state);
        Ok(Board::new(region, locals.len(), me))
    }

    fn stream(&self, peer: usize, _: Instant) -> Result<AnyStream, String> {
        let key = (self.path.clone(), self.me.min(peer), self.me.max(peer));
        let mut state = self.shared.state();
        let stream = state.streams.remove(&key).unwrap_or_else(|| {
            let (mine, theirs) = mem::pair(self.shared.capacity);
            state.streams.insert(key, theirs);
            mine
        });
        Ok(AnyStream::Mem(stream))
    }

    fn pulse(&self) -> Arc<Pulse> {
        Arc::default()
    }

    fn record(&self, sequence: u64, what: String) {
        let text = format!("is in {what} (operation {sequence})");
        self.shared.state().doing.insert((self.path.clone(), self.me), text);
    }

    fn inquire(&self, peer: usize) -> Option<String> {
        self.shared.state().doing.get(&(self.path.clone(), peer)).cloned()
    }

    fn locate(&self, peer: usize) -> Option<Straggler> {
        let report = format!("rank {peer} {}", self.inquire(peer)?);
        Some(Straggler { report, rank: Some(peer) })
    }

    fn fail(&self, cause: Cause) -> Cause {
        let culprit = cause.culprit.map(|culprit| self.members[culprit]);
        let cause = Cause { culprit, ..cause };
        let mut state = self.shared.state();
        let first = state.cause.take().map_or(cause.clone(), |known| known.min(cause));
        state.cause = Some(first.clone());
        self.shared.alarm.raise();
        self.shared.changed.notify_all();
        self.in_group(first)
    }

    fn cause(&self) -> Option<Cause> {
        let cause = self.shared.state().cause.clone();
        cause.map(|cause| self.in_group(cause))
    }

    fn subgroup(&self, members: &[usize], number: u64) -> Arc<dyn Control> {
        let world = members.iter().map(|rank| self.members[*rank]).collect::<Vec<_>>();
        let mut path = self.path.clone();
        // Groups of one split have disjoint members, so the first one tells them apart.
        path.extend([number, world[0] as u64]);
        let me = members.iter().position(|rank| *rank == self.me).expect("this rank is a member");
        Arc::new(ThreadControl {
            shared: Arc::clone(&self.shared),
            path,
            members: world,
            me,
            rounds: Mutex::new(0),
        })
    }

    fn leave(&self, sequence: u64) {
        let text = format!("has left after operation {sequence}");
        let mut state = self.shared.state();
        state.doing.insert((self.path.clone(), self.me), text);
        state.left.insert((self.path.clone(), self.me));
        self.shared.changed.notify_all();
    }
}
