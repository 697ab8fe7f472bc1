//! Data connections between two ranks. Either both ranks request one (the lower rank connects, the
//! higher one accepts), or one rank dials and the other finds it among its callers.

use super::data_link::{DataConnection, DataPath, failed};
use super::verbs::{AttemptError, ConnectionKey, VERBS_LANE, meet};
use crate::world::service::{DialedLink, GroupId, Service, ServiceError, binding};
use maypole_transports::AnyStream;
use maypole_transports::secure::{Binding, Purpose};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Timeout of one attempt. A peer's service thread replies immediately unless its machine is
/// overloaded.
const ATTEMPT: Duration = Duration::from_secs(5);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(50);
/// The most connections that one call requests concurrently.
const MOST_DIALS: usize = 32;

/// The results of `make` for all `items`, in their order. Threads call it concurrently, so that the
/// latency of a network counts once and not once an item.
pub fn at_once<T: Sync, R: Send>(items: &[T], make: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let made: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::new());
    let work = || {
        let take = || next.fetch_add(1, Ordering::Relaxed);
        while let Some((at, item)) = Some(take()).and_then(|at| Some((at, items.get(at)?))) {
            let result = make(item);
            made.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
        }
    };
    thread::scope(|threads| {
        for _ in 1..items.len().min(MOST_DIALS) {
            // Without a thread, the items are processed in sequence.
            let _ = thread::Builder::new().spawn_scoped(threads, work);
        }
        work();
    });
    let mut made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
    made.sort_unstable_by_key(|(at, _)| *at);
    made.into_iter().map(|(_, result)| result).collect()
}

impl Service {
    /// As [`connect`](Self::connect), for all `wanted`, in their order. Those that this rank
    /// requests are made concurrently.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_all(
        &self,
        wanted: &[(DataPath, ConnectionKey)],
        deadline: Instant,
    ) -> Result<Vec<AnyStream>, ServiceError> {
        let connect = |(path, key): &(DataPath, ConnectionKey)| self.connect(*path, *key, deadline);
        let is_dialled = |(_, key): &(DataPath, ConnectionKey)| self.rank() < key.1;
        let dials: Vec<_> = wanted.iter().copied().filter(is_dialled).collect();
        let mut dialled = at_once(&dials, connect).into_iter();
        let stream = |wanted: &_| match is_dialled(wanted) {
            true => dialled.next().expect("a result for each dial"),
            false => connect(wanted),
        };
        wanted.iter().map(stream).collect()
    }

    /// Makes a data connection: `key` is its group, the other rank (of the world), and its number
    /// in that group. Both ends call it, with equal group and number, once.
    ///
    /// The lower rank does not wait until the higher rank calls.
    ///
    /// # Errors
    /// If the deadline passes, the peer left, or the world fails meanwhile or has failed.
    pub fn connect(
        &self,
        path: DataPath,
        key: ConnectionKey,
        deadline: Instant,
    ) -> Result<AnyStream, ServiceError> {
        if self.rank() < key.1 {
            return self.dial(path, key, deadline);
        }
        self.check_peer(key.1)?;
        self.await_peer(key, deadline)?.open().map_err(failed)
    }

    /// A data connection that this rank alone requests; the other rank finds it among its
    /// [`callers`](Self::callers). Otherwise as [`connect`](Self::connect), which must not be used
    /// for the same number.
    ///
    /// # Errors
    /// If the deadline passes, the peer left, or the world fails meanwhile or has failed.
    pub fn dial(
        &self,
        path: DataPath,
        key: ConnectionKey,
        deadline: Instant,
    ) -> Result<AnyStream, ServiceError> {
        self.check_peer(key.1)?;
        self.reach(path, key, deadline)?.open().map_err(failed)
    }

    /// The connections that peers [dialled](Self::dial) to this rank since the last call, by rank.
    /// A broken one is dropped; its peer then finds it closed.
    pub fn callers(&self, group: GroupId, lane: u32) -> Vec<(usize, AnyStream)> {
        let mut state = self.shared.state();
        let called = |(of, _, on): &ConnectionKey| (*of, *on) == (group, lane);
        let arrived = state.arrived.extract_if(|key, _| called(key));
        let usable =
            |((_, peer, _), connection): (_, DataConnection)| Some((peer, connection.open().ok()?));
        let mut callers: Vec<_> = arrived.filter_map(usable).collect();
        callers.sort_unstable_by_key(|(peer, _)| *peer);
        callers
    }

    pub(super) fn check_peer(&self, peer: usize) -> Result<(), ServiceError> {
        self.check_process()?;
        let rank = self.rank();
        if peer < self.world() && peer != rank {
            return Ok(());
        }
        Err(ServiceError::Refused(format!("rank {rank} cannot connect to rank {peer}")))
    }

    fn await_peer(
        &self,
        key: ConnectionKey,
        deadline: Instant,
    ) -> Result<DataConnection, ServiceError> {
        let arrived =
            self.shared.wait_or_fail(key.0, deadline, |state| match state.arrived.remove(&key) {
                None if state.left.contains(&key.1) => Some(None),
                connection => connection.map(Some),
            });
        arrived.ok_or_else(|| late(key.1))??.ok_or_else(|| self.gone(key.1))
    }

    /// Connects, as the requesting end.
    pub(super) fn reach(
        &self,
        path: DataPath,
        key: ConnectionKey,
        deadline: Instant,
    ) -> Result<DataConnection, ServiceError> {
        let (group, peer, lane) = key;
        let lane = if path == DataPath::Verbs { lane | VERBS_LANE } else { lane };
        let (purpose, ranks) = (self.shared.data_purpose(), [self.rank(), peer]);
        let binding = binding(purpose, (group, lane), ranks);
        loop {
            let until = deadline.min(Instant::now() + ATTEMPT);
            match self.attempt(peer, &binding, until) {
                Ok(connection) => return Ok(connection),
                Err(AttemptError::Lasting(error)) => return Err(error),
                Err(AttemptError::Passing(error)) => {
                    tracing::debug!(peer, %error, "a data connection failed and is tried again")
                }
            }
            let again = deadline.min(Instant::now() + BETWEEN_ATTEMPTS);
            let gone = self
                .shared
                .wait_or_fail(group, again, |state| state.left.contains(&peer).then_some(()));
            match gone {
                Some(Ok(())) => return Err(self.gone(peer)),
                Some(Err(error)) => return Err(error),
                None if again == deadline => return Err(late(peer)),
                None => {}
            }
        }
    }

    fn attempt(
        &self,
        peer: usize,
        binding: &Binding,
        until: Instant,
    ) -> Result<DataConnection, AttemptError> {
        let settings = &self.shared.settings;
        let there = self.shared.peers[peer].listen;
        let link = DialedLink::dial(there, settings.timeout, (&settings.secret, binding), until)?;
        let encrypts = binding.purpose == Purpose::EncryptedData;
        if binding.lane & VERBS_LANE != 0 {
            return meet(&settings.verbs, link, (until, encrypts), peer);
        }
        Ok(DataConnection::Tcp(link.stream, encrypts.then_some(link.channel)))
    }
}

fn late(peer: usize) -> ServiceError {
    ServiceError::TimedOut { what: "a data connection", missing: vec![peer] }
}
