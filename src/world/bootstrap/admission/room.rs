//! The waiting room: a thread of rank 0 that authenticates newcomers, and holds their connections
//! until the ranks call `admit`.

use super::super::addresses::{ADMISSION_PORT, listen_as_root, reached_at, settings};
use super::super::protocol::{JoinReply, JoinRequest};
use super::super::reception::{Reception, Visitor};
use super::super::{JoinConfig, JoinError};
use crate::world::peer::Peer;
use crate::world::service::{Contribution, ServiceBase};
use maypole_transports::secure::Purpose;
use maypole_transports::watch::{Waker, Watch};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The number of the waker in the watch. Newcomers have the numbers above it.
const WAKER: u64 = 0;
/// The longest sleep without events. Its end has no effect.
const SLEEP: Duration = Duration::from_secs(3600);

/// Newcomers of a job that wait at this rank. Dropping it closes the room.
#[derive(Debug)]
pub(crate) struct WaitingRoom {
    shared: Arc<SharedRoom>,
    base: ServiceBase,
    thread: Option<JoinHandle<()>>,
    /// The process that owns the thread.
    process: u32,
}

#[derive(Debug)]
struct SharedRoom {
    reception: Mutex<Reception>,
    came: Condvar,
    watch: Watch,
    waker: Waker,
    closed: AtomicBool,
}

impl WaitingRoom {
    /// Listens at rank 0's address in `config`. `one_host`: only processes of this host may wait.
    pub(crate) fn open(config: &JoinConfig, one_host: bool) -> Result<Self, JoinError> {
        let listener = listen_as_root(config, ADMISSION_PORT)?;
        let own = JoinRequest::new(config, reached_at(config, &listener)?, &[])?;
        let settings = settings(config, [0; 16]);
        let (watch, waker) = (Watch::new()?, Waker::new()?);
        watch.add(&waker, WAKER, false)?;
        let base = ServiceBase { own: own.peer.clone(), settings };
        let secret = base.settings.secret.clone();
        let mut reception = Reception::new(listener, secret, Purpose::Admit, own, &watch)?;
        reception.one_host = one_host;
        let (reception, came, closed) =
            (Mutex::new(reception), Condvar::new(), AtomicBool::new(false));
        let shared = Arc::new(SharedRoom { reception, came, watch, waker, closed });
        let served = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("maypole-admission".to_owned())
            .spawn(move || served.serve())?;
        Ok(Self { shared, base, thread: Some(thread), process: std::process::id() })
    }

    /// True if the room has closed by itself, and accepts no newcomers.
    pub(crate) fn has_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }

    /// The number of waiting newcomers. If it is zero, waits for the first one, at most for
    /// `within`.
    pub(crate) fn count(&self, within: Duration) -> usize {
        let empty = |reception: &mut Reception| reception.ready() == 0;
        let reception = self.shared.lock();
        let waited = self.shared.came.wait_timeout_while(reception, within, empty);
        let (reception, _) = waited.unwrap_or_else(PoisonError::into_inner);
        reception.ready()
    }

    /// Takes at most `most` waiting newcomers, and invites them.
    pub(crate) fn take(&self, most: usize) -> Contribution {
        let mut reception = self.shared.lock();
        let visitors = &mut reception.visitors;
        let is_ready = |at: &_| visitors[at].request.is_some();
        let ready: Vec<_> = visitors.keys().copied().filter(is_ready).take(most).collect();
        let mut waiting = Vec::new();
        for visitor in ready.iter().filter_map(|at| visitors.remove(at)) {
            let Visitor { mut control, request, .. } = visitor;
            self.shared.watch.remove(&control.stream);
            control.push(&JoinReply::Invited);
            let peer = request.expect("it was accepted").peer;
            // Only ranks of the old world have no wish.
            let wish = Some(peer.wish.unwrap_or(0));
            waiting.push((control, Peer { wish, ..peer }));
        }
        Contribution { waiting, base: Some(self.base.clone()), report: Vec::new() }
    }
}

impl Drop for WaitingRoom {
    fn drop(&mut self) {
        // A forked child has no such thread, and the waker is its parent's.
        if self.process != std::process::id() {
            std::mem::forget(self.thread.take());
            return;
        }
        self.shared.closed.store(true, Ordering::Release);
        self.shared.waker.wake();
        // The thread polls `closed` after each event, and handles an event within milliseconds.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl SharedRoom {
    fn lock(&self) -> MutexGuard<'_, Reception> {
        self.reception.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut numbers = Vec::new();
        while !self.closed.load(Ordering::Acquire) {
            let now = Instant::now();
            let until = self.lock().deadline().unwrap_or(now + SLEEP);
            if let Err(error) = self.watch.wait(&mut numbers, until.saturating_duration_since(now))
            {
                tracing::error!(%error, "the waiting room closes, because it cannot wait for events");
                self.closed.store(true, Ordering::Release);
                return;
            }
            let mut reception = self.lock();
            reception.expire(Instant::now(), &self.watch);
            for number in numbers.drain(..) {
                if number == WAKER {
                    self.waker.clear();
                } else {
                    reception.event(number, &self.watch);
                }
            }
            if reception.ready() > 0 {
                self.came.notify_all();
            }
        }
    }
}
