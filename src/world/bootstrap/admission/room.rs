//! The waiting room: a thread of rank 0 that authenticates newcomers, and keeps them until the
//! ranks call `admit`.

use super::super::addresses::{ADMISSION_PORT, listen_as_root, reached_at, settings};
use super::super::protocol::{JoinRefusal, JoinReply, JoinRequest};
use super::super::reception::{Reception, Visitor};
use super::super::{JoinConfig, JoinError};
use crate::world::service::{Attendee, Newcomers, ServiceBase};
use maypole_transports::secure::Purpose;
use maypole_transports::watch::{Waker, Watch};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The number of the waker in the watch. Newcomers have the numbers above it.
const WAKER: u64 = 0;
/// The most connections that have proved the key and wait. A further one is closed.
const MAX_WAITING: usize = 1024;
/// How long the thread sleeps where nothing happens. The end of the sleep has no effect.
const SLEEP: Duration = Duration::from_secs(3600);

/// Newcomers of a job that wait at this rank. Dropping it closes the room.
#[derive(Debug)]
pub(crate) struct WaitingRoom {
    shared: Arc<SharedRoom>,
    base: ServiceBase,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread.
    process: u32,
}

#[derive(Debug)]
struct SharedRoom {
    room: Mutex<RoomState>,
    came: Condvar,
    watch: Watch,
    waker: Waker,
    closed: AtomicBool,
}

#[derive(Debug)]
struct RoomState {
    reception: Reception,
    /// The ranks share memory alone.
    one_host: bool,
}

impl WaitingRoom {
    /// Listens where `config` says that rank 0 is. `one_host`: only processes of this host may wait.
    pub(crate) fn open(config: &JoinConfig, one_host: bool) -> Result<Self, JoinError> {
        let listener = listen_as_root(config, ADMISSION_PORT)?;
        let own = JoinRequest::new(config, reached_at(config, &listener)?, &[])?;
        let settings = settings(config, [0; 16]);
        let (watch, waker) = (Watch::new()?, Waker::new()?);
        watch.add(&waker, WAKER, false)?;
        let kind = (Purpose::Admit, MAX_WAITING);
        let base = ServiceBase { own: own.peer.clone(), settings };
        let secret = base.settings.secret.clone();
        let reception = Reception::new(listener, secret, kind, own, &watch)?;
        let room = RoomState { reception, one_host };
        let (room, came, closed) = (Mutex::new(room), Condvar::new(), AtomicBool::new(false));
        let shared = Arc::new(SharedRoom { room, came, watch, waker, closed });
        let served = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("maypole-admission".to_owned())
            .spawn(move || served.serve())?;
        Ok(Self { shared, base, thread: Some(thread), process: std::process::id() })
    }

    /// True if the room has closed by itself: newcomers that knock are not let in any more.
    pub(crate) fn has_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }

    /// How many newcomers wait. If none does, waits until one comes, at most for `within`.
    pub(crate) fn count(&self, within: Duration) -> usize {
        let empty = |room: &mut RoomState| room.reception.ready() == 0;
        let room = self.shared.lock();
        let waited = self.shared.came.wait_timeout_while(room, within, empty);
        let (room, _) = waited.unwrap_or_else(PoisonError::into_inner);
        room.reception.ready()
    }

    /// Takes the newcomers that wait, at most so many, and invites them.
    pub(crate) fn take(&self, most: usize) -> Newcomers {
        let mut room = self.shared.lock();
        let visitors = &mut room.reception.visitors;
        let ready = visitors.extract_if(.., |_, visitor| visitor.request.is_some());
        let mut waiting = Vec::new();
        for (_, Visitor { mut control, request, .. }) in ready.take(most) {
            self.shared.watch.remove(&control.stream);
            control.push(&JoinReply::Invited);
            let attendee = request.expect("it was found right").attendee();
            // Only ranks that ran before want no rank.
            let wish = Some(attendee.wish.unwrap_or(0));
            waiting.push((control, Attendee { wish, ..attendee }));
        }
        Newcomers { waiting, base: self.base.clone() }
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
        // The thread looks at `closed` after each event, and handles an event within milliseconds.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl SharedRoom {
    fn lock(&self) -> MutexGuard<'_, RoomState> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut numbers = Vec::new();
        while !self.closed.load(Ordering::Acquire) {
            let now = Instant::now();
            let until = self.lock().reception.deadline().unwrap_or(now + SLEEP);
            if let Err(error) = self.watch.wait(&mut numbers, until.saturating_duration_since(now))
            {
                tracing::error!(%error, "the waiting room closes, because it cannot wait for events");
                self.closed.store(true, Ordering::Release);
                return;
            }
            let mut room = self.lock();
            room.reception.expire(Instant::now(), &self.watch);
            for number in numbers.drain(..) {
                match number {
                    WAKER => self.waker.clear(),
                    _ => room.event(number, &self.watch),
                }
            }
            if room.reception.ready() > 0 {
                self.came.notify_all();
            }
        }
    }
}

impl RoomState {
    /// Takes a new visitor, or what one has sent: its request, or its end.
    fn event(&mut self, number: u64, watch: &Watch) {
        let one_host = self.one_host;
        self.reception.event(number, watch, |reception, _, request| {
            match one_host && request.peer.host != reception.own.peer.host {
                true => Err(JoinRefusal::OtherHost),
                false => Ok(()),
            }
        });
    }
}
