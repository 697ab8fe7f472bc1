//! The control of ranks that are threads of one process: a table behind a lock.

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

/// Which group: the numbers of the splits that led to it.
type Path = Vec<u64>;

/// What threads of one world share.
#[derive(Debug)]
pub(crate) struct Hub {
    /// Bytes that a stream between two threads holds.
    capacity: usize,
    alarm: Arc<Alarm>,
    table: Mutex<Table>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Table {
    exchanges: HashMap<(Path, u64), Exchange>,
    boards: HashMap<(Path, usize), (Arc<Region>, usize)>,
    streams: HashMap<(Path, usize, usize), Mem>,
    /// Streams for messages that their receivers have not taken, by receiver.
    calls: HashMap<(Path, usize), Vec<(usize, Mem)>>,
    doing: HashMap<(Path, usize), String>,
    left: HashSet<(Path, usize)>,
    cause: Option<Cause>,
}

#[derive(Debug, Default)]
struct Exchange {
    blobs: HashMap<usize, Vec<u8>>,
    readers: usize,
}

impl Hub {
    pub(crate) fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self {
            capacity,
            alarm: Arc::default(),
            table: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// The handle of rank `me` of `world`.
    pub(crate) fn member(self: &Arc<Self>, world: usize, me: usize) -> Arc<dyn Control> {
        let members = (0..world).collect();
        Arc::new(Member {
            hub: Arc::clone(self),
            path: Vec::new(),
            members,
            me,
            rounds: Mutex::new(0),
        })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A thread that panicked while it held the lock left the table whole: every change is one
        // insertion or removal.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks again after every change until `ready` gives something.
    fn until<T>(
        &self,
        deadline: Instant,
        mut ready: impl FnMut(&mut Table) -> Option<T>,
    ) -> Result<T, String> {
        let mut table = self.table();
        loop {
            if let Some(it) = ready(&mut table) {
                return Ok(it);
            }
            if let Some(cause) = &table.cause {
                return Err(cause.text.clone());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("not all ranks came in time".to_owned());
            }
            table =
                self.changed.wait_timeout(table, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[derive(Debug)]
struct Member {
    hub: Arc<Hub>,
    path: Path,
    /// World ranks of the group, by rank.
    members: Vec<usize>,
    me: usize,
    rounds: Mutex<u64>,
}

impl Connector for Member {
    fn dial(&self, peer: usize, _: Instant) -> Result<AnyStream, String> {
        let (mine, theirs) = mem::pair(self.hub.capacity);
        self.hub
            .table()
            .calls
            .entry((self.path.clone(), peer))
            .or_default()
            .push((self.me, theirs));
        Ok(AnyStream::Mem(mine))
    }

    fn callers(&self) -> Vec<(usize, AnyStream)> {
        let calls =
            self.hub.table().calls.remove(&(self.path.clone(), self.me)).unwrap_or_default();
        calls.into_iter().map(|(from, stream)| (from, AnyStream::Mem(stream))).collect()
    }

    fn has_left(&self, peer: usize) -> bool {
        self.hub.table().left.contains(&(self.path.clone(), peer))
    }
}

impl Member {
    /// `cause` with its culprit numbered as in this group; a rank that is no member has no number.
    fn in_group(&self, cause: Cause) -> Cause {
        let member = |world| self.members.iter().position(|member| *member == world);
        Cause { culprit: cause.culprit.and_then(member), ..cause }
    }
}

impl Control for Member {
    fn alarm(&self) -> Arc<Alarm> {
        Arc::clone(&self.hub.alarm)
    }

    fn exchange(&self, blob: Vec<u8>, deadline: Instant) -> Result<Vec<Vec<u8>>, String> {
        let round = {
            let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
            *rounds += 1;
            *rounds
        };
        let (key, size) = ((self.path.clone(), round), self.members.len());
        self.hub.table().exchanges.entry(key.clone()).or_default().blobs.insert(self.me, blob);
        self.hub.changed.notify_all();
        self.hub.until(deadline, |table| {
            let exchange = table.exchanges.get_mut(&key)?;
            let missing = |rank: &usize| !exchange.blobs.contains_key(rank);
            let left = |rank: &usize| table.left.contains(&(self.path.clone(), *rank));
            if let Some(rank) = (0..size).find(|rank| missing(rank) && left(rank)) {
                return Some(Err(format!("rank {rank} has left")));
            }
            (exchange.blobs.len() == size).then_some(())?;
            let blobs = (0..size).map(|rank| exchange.blobs[&rank].clone()).collect();
            exchange.readers += 1;
            if exchange.readers == size {
                table.exchanges.remove(&key);
            }
            Some(Ok(blobs))
        })?
    }

    fn board(&self, locals: &[usize], me: usize, _: Instant) -> Result<Board, String> {
        let key = (self.path.clone(), locals[0]);
        let mut table = self.hub.table();
        let fresh = || (Arc::new(Region::new(Board::bytes(locals.len()))), 0);
        let (region, takers) = table.boards.entry(key.clone()).or_insert_with(fresh);
        *takers += 1;
        let (region, last) = (Arc::clone(region), *takers == locals.len());
        if last {
            table.boards.remove(&key);
        }
        drop(table);
        Ok(Board::new(region, locals.len(), me))
    }

    fn stream(&self, peer: usize, _: Instant) -> Result<AnyStream, String> {
        let key = (self.path.clone(), self.me.min(peer), self.me.max(peer));
        let mut table = self.hub.table();
        let stream = table.streams.remove(&key).unwrap_or_else(|| {
            let (mine, theirs) = mem::pair(self.hub.capacity);
            table.streams.insert(key, theirs);
            mine
        });
        Ok(AnyStream::Mem(stream))
    }

    fn pulse(&self) -> Arc<Pulse> {
        Arc::default()
    }

    fn record(&self, sequence: u64, what: String) {
        let text = format!("is in {what} (operation {sequence})");
        self.hub.table().doing.insert((self.path.clone(), self.me), text);
    }

    fn inquire(&self, peer: usize) -> Option<String> {
        self.hub.table().doing.get(&(self.path.clone(), peer)).cloned()
    }

    fn locate(&self, peer: usize) -> Option<Straggler> {
        let report = format!("rank {peer} {}", self.inquire(peer)?);
        Some(Straggler { report, rank: Some(peer) })
    }

    fn fail(&self, cause: Cause) -> Cause {
        let culprit = cause.culprit.map(|culprit| self.members[culprit]);
        let cause = Cause { culprit, ..cause };
        let mut table = self.hub.table();
        let first = table.cause.take().map_or(cause.clone(), |known| known.min(cause));
        table.cause = Some(first.clone());
        self.hub.alarm.raise();
        self.hub.changed.notify_all();
        self.in_group(first)
    }

    fn cause(&self) -> Option<Cause> {
        let cause = self.hub.table().cause.clone();
        cause.map(|cause| self.in_group(cause))
    }

    fn subgroup(&self, members: &[usize], number: u64) -> Arc<dyn Control> {
        let world = members.iter().map(|rank| self.members[*rank]).collect::<Vec<_>>();
        let mut path = self.path.clone();
        // Groups of one split have disjoint members, so the first one tells them apart.
        path.extend([number, world[0] as u64]);
        let me = members.iter().position(|rank| *rank == self.me).expect("this rank is a member");
        Arc::new(Member {
            hub: Arc::clone(&self.hub),
            path,
            members: world,
            me,
            rounds: Mutex::new(0),
        })
    }

    fn leave(&self, sequence: u64) {
        let text = format!("has left after operation {sequence}");
        let mut table = self.hub.table();
        table.doing.insert((self.path.clone(), self.me), text);
        table.left.insert((self.path.clone(), self.me));
        self.hub.changed.notify_all();
    }
}
