//! What a rank's callers and its service thread share: a state behind a lock, a waker one way, a
//! condition the other.

use super::message::{ControlRequest, ExchangeRound};
use super::{Cause, GroupId, ProgressReport, ProgressTable, ServiceError};
use crate::world::peer::Peer;
use maypole_transports::Alarm;
use maypole_transports::secure::JobSecret;
use maypole_transports::watch::Waker;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct ServiceContext {
    pub(crate) rank: usize,
    pub(crate) secret: JobSecret,
    pub(crate) peers: Vec<Peer>,
    pub(crate) timeout: Duration,
    pub(crate) alarm: Arc<Alarm>,
    pub(crate) progress: Arc<ProgressTable>,
    pub(crate) waker: Waker,
    /// The process that has the service thread.
    process: u32,
    state: Mutex<ServiceState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct ServiceState {
    /// What the service thread is to say to rank 0.
    pub(crate) requests: Vec<ControlRequest>,
    pub(crate) cause: Option<Cause>,
    /// When the cause last became a lesser one.
    pub(crate) cause_since: Option<Instant>,
    /// Who said goodbye, after which operation.
    pub(crate) left: BTreeMap<usize, u64>,
    /// Completed rounds: everybody's part, or who left instead of giving its.
    pub(crate) gathered: HashMap<ExchangeRound, Result<Vec<Vec<u8>>, usize>>,
    pub(crate) missing: HashMap<ExchangeRound, Vec<usize>>,
    pub(crate) surveys: HashMap<u64, Vec<Option<ProgressReport>>>,
    /// Data connections that peers made, by group, peer and lane.
    pub(crate) arrived: HashMap<(GroupId, usize, u32), TcpStream>,
    /// Rounds begun, per group and members.
    pub(crate) rounds: HashMap<(GroupId, Vec<usize>), u64>,
    pub(crate) next_survey: u64,
    pub(crate) strangers: u64,
    pub(crate) half_open: usize,
    /// Ranks that have been silent for long (known to rank 0 only).
    pub(crate) silent: Vec<usize>,
    /// Rank 0: everybody else has left or died. Others: rank 0 heard our goodbye.
    pub(crate) farewell: bool,
    /// We have said goodbye: whatever ends now ends in order.
    pub(crate) leaving: bool,
    /// The service thread is to end.
    pub(crate) stop: bool,
    /// The service thread has ended, or can do nothing more, and why.
    pub(crate) closed: Option<String>,
}

impl ServiceState {
    /// Keeps the lesser of `cause` and what is known; true if it is news.
    pub(crate) fn learn(&mut self, cause: &Cause) -> bool {
        let news = self.cause.as_ref().is_none_or(|known| cause < known);
        if news {
            self.cause = Some(cause.clone());
            self.cause_since = Some(Instant::now());
        }
        news
    }
}

impl ServiceContext {
    pub(crate) fn new(
        rank: usize,
        secret: JobSecret,
        peers: Vec<Peer>,
        timeout: Duration,
    ) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            rank,
            secret,
            peers,
            timeout,
            alarm: Arc::default(),
            progress: Arc::default(),
            waker: Waker::new()?,
            process: std::process::id(),
            state: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, ServiceState> {
        // Whoever panicked with the lock held left the state whole: every change to it is one
        // assignment or insertion.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This is a forked child's copy: it has no service thread, and its descriptors are its
    /// parent's.
    pub(crate) fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// Changes the state, and wakes whoever waits for it.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut ServiceState) -> T) -> T {
        let outcome = change(&mut self.state());
        self.changed.notify_all();
        outcome
    }

    /// Has the service thread say something to rank 0.
    pub(crate) fn request(&self, request: ControlRequest) {
        self.state().requests.push(request);
        self.waker.wake();
    }

    /// Learns of a failure: every wait ends soon.
    pub(crate) fn learn(&self, cause: &Cause) {
        self.update(|state| state.learn(cause));
        self.alarm.raise();
    }

    /// Sleeps until `ready` gives something, but no longer than `deadline`; `None` if it passed.
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

    /// As [`wait`](Self::wait), and gives up as soon as the world has failed or the service is
    /// over.
    pub(crate) fn wait_or_fail<T>(
        &self,
        deadline: Instant,
        mut ready: impl FnMut(&mut ServiceState) -> Option<T>,
    ) -> Option<Result<T, ServiceError>> {
        self.wait(deadline, |state| match ready(state) {
            Some(it) => Some(Ok(it)),
            None => state.failure().map(Err),
        })
    }
}

impl ServiceState {
    /// Why nothing can be had from the control plane any more.
    pub(crate) fn failure(&self) -> Option<ServiceError> {
        let aborted = self.cause.clone().map(|cause| ServiceError::Aborted { cause });
        aborted.or_else(|| self.closed.clone().map(|why| ServiceError::Closed { why }))
    }
}
