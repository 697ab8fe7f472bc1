//! The waiting room: a thread of rank 0 that lets newcomers prove who they are, and keeps them until
//! the ranks come to a point at which they admit.

use super::super::addresses::{ADMISSION_PORT, listen_as_root, secret};
use super::super::protocol::{Differences, JoinRefusal, JoinReply, JoinRequest, VERSION};
use super::super::{JoinConfig, JoinError};
use crate::world::VerbsAccess;
use crate::world::service::message::MAX_JOIN_MESSAGE;
use crate::world::service::{
    ACCEPTOR, Acceptor, Attendee, Authenticated, ControlConnection, Newcomers, SILENCE_LIMIT,
    ServiceBase,
};
use maypole_transports::random;
use maypole_transports::secure::Purpose;
use maypole_transports::sockets::set_tcp_options;
use maypole_transports::watch::{Waker, Watch};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The number of the waker in the watch. Newcomers have the numbers above it.
const WAKER: u64 = 0;
/// How long an authenticated connection may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
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
    acceptor: Acceptor,
    /// What this rank would ask for itself: newcomers must be equal to it.
    own: JoinRequest,
    /// The ranks share memory alone.
    one_host: bool,
    /// In the order in which they came.
    waiting: BTreeMap<u64, Visitor>,
    next: u64,
}

/// A connection that has proved the job's key and name.
#[derive(Debug)]
struct Visitor {
    control: ControlConnection,
    since: Instant,
    /// Its request, once that has come and was found right.
    request: Option<JoinRequest>,
}

impl WaitingRoom {
    /// Listens where `config` says that rank 0 is. `one_host`: only processes of this host may wait.
    pub(crate) fn open(config: &JoinConfig, one_host: bool) -> Result<Self, JoinError> {
        let listener = listen_as_root(config, ADMISSION_PORT)?;
        let own = JoinRequest::new(config, listener.local_addr()?, random::bytes()?)?;
        let secret = secret(config, [0; 16]);
        let (watch, waker) = (Watch::new()?, Waker::new()?);
        watch.add(&waker, WAKER, false)?;
        let base = ServiceBase {
            own: own.peer.clone(),
            secret: secret.clone(),
            timeout: config.timeout,
            encrypt: config.encrypt,
            data_ports: config.data_ports.clone(),
            verbs: Arc::new(VerbsAccess::new(config.verbs.clone())),
        };
        let acceptor = Acceptor::new(listener, secret, 0, &watch)?;
        let room = RoomState { acceptor, own, one_host, waiting: BTreeMap::new(), next: WAKER + 1 };
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
        let empty = |room: &mut RoomState| room.ready() == 0;
        let room = self.shared.lock();
        let waited = self.shared.came.wait_timeout_while(room, within, empty);
        let (room, _) = waited.unwrap_or_else(PoisonError::into_inner);
        room.ready()
    }

    /// Takes the newcomers that wait, at most so many, and invites them.
    pub(crate) fn take(&self, most: usize) -> Newcomers {
        let mut room = self.shared.lock();
        let ready = |visitor: &Visitor| visitor.request.is_some();
        let numbers = room.waiting.iter().filter(|(_, visitor)| ready(visitor));
        let numbers: Vec<u64> = numbers.map(|(number, _)| *number).take(most).collect();
        let mut waiting = Vec::new();
        for number in numbers {
            let Some(Visitor { mut control, request: Some(request), .. }) =
                room.waiting.remove(&number)
            else {
                continue;
            };
            self.shared.watch.remove(&control.stream);
            control.push(&JoinReply::Invited);
            let JoinRequest { peer, report, wish, .. } = request;
            // Only ranks that ran before want no rank.
            let wish = Some(wish.unwrap_or(0));
            waiting.push((control, Attendee { peer, report, wish }));
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
            let until = self.lock().deadline().unwrap_or(now + SLEEP);
            if let Err(error) = self.watch.wait(&mut numbers, until.saturating_duration_since(now))
            {
                tracing::error!(%error, "the waiting room closes, because it cannot wait for events");
                self.closed.store(true, Ordering::Release);
                return;
            }
            let mut room = self.lock();
            room.expire(Instant::now(), &self.watch);
            for number in numbers.drain(..) {
                match number {
                    WAKER => self.waker.clear(),
                    ACCEPTOR.. => {
                        if let Some(visitor) = room.acceptor.ready(number, &self.watch) {
                            room.add(visitor, &self.watch);
                        }
                    }
                    _ => room.read(number, &self.watch),
                }
            }
            if room.ready() > 0 {
                self.came.notify_all();
            }
        }
    }
}

impl RoomState {
    /// How many newcomers could be taken now.
    fn ready(&self) -> usize {
        self.waiting.values().filter(|visitor| visitor.request.is_some()).count()
    }

    /// When [`expire`](Self::expire) has something to do.
    fn deadline(&self) -> Option<Instant> {
        let silent = self.waiting.values().filter(|visitor| visitor.request.is_none());
        let requests = silent.map(|visitor| visitor.since + REQUEST_TIMEOUT);
        requests.chain(self.acceptor.deadline()).min()
    }

    fn expire(&mut self, now: Instant, watch: &Watch) {
        self.acceptor.expire(now, watch);
        let is_late =
            |visitor: &Visitor| visitor.request.is_none() && visitor.since + REQUEST_TIMEOUT <= now;
        let late: Vec<u64> = self
            .waiting
            .iter()
            .filter(|(_, visitor)| is_late(visitor))
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            self.dismiss(number, watch);
        }
    }

    fn dismiss(&mut self, number: u64, watch: &Watch) {
        if let Some(mut visitor) = self.waiting.remove(&number) {
            watch.remove(&visitor.control.stream);
            visitor.control.finish();
        }
    }

    /// Takes a connection that has proved the job's key. One for another purpose is closed.
    fn add(&mut self, authenticated: Authenticated, watch: &Watch) {
        let Authenticated { stream, binding, channel } = authenticated;
        if binding.purpose != Purpose::Admit || self.waiting.len() >= MAX_WAITING {
            return;
        }
        let number = self.next;
        let tuned = set_tcp_options(&stream, SILENCE_LIMIT);
        let watched: io::Result<()> = tuned.and_then(|()| watch.add(&stream, number, false));
        let Ok(control) = watched.and_then(|()| ControlConnection::new(stream, channel)) else {
            return;
        };
        self.next += 1;
        let visitor = Visitor { control, since: Instant::now(), request: None };
        self.waiting.insert(number, visitor);
        // Its request may have come together with the handshake.
        self.read(number, watch);
    }

    /// Reads what a visitor has sent: its request, or its end.
    fn read(&mut self, number: u64, watch: &Watch) {
        let Some(visitor) = self.waiting.get_mut(&number) else { return };
        let (messages, ended) = visitor.control.read(MAX_JOIN_MESSAGE);
        let answered = visitor.request.is_some();
        match messages.first() {
            Some(_) if answered => return self.dismiss(number, watch),
            Some(message) => match self.examine(message) {
                Ok(request) => {
                    let visitor = self.waiting.get_mut(&number).expect("it was just read");
                    visitor.request = Some(request);
                }
                Err(reply) => {
                    let visitor = self.waiting.get_mut(&number).expect("it was just read");
                    visitor.control.push(&reply);
                    return self.dismiss(number, watch);
                }
            },
            None => {}
        }
        if ended.is_some() {
            self.dismiss(number, watch);
        }
    }

    /// The request in `message`, or the answer that refuses it.
    fn examine(&self, message: &[u8]) -> Result<JoinRequest, JoinReply> {
        let (_, request) = JoinRequest::decode(message).unwrap_or_default();
        let request = request.ok_or_else(|| JoinReply::OtherVersion(VERSION.to_owned()))?;
        let wish = request.wish.unwrap_or(0);
        if let Some(differences) = Differences::between(&self.own, wish, &request) {
            return Err(JoinReply::Refused(JoinRefusal::Differs(differences)));
        }
        if self.one_host && request.peer.host != self.own.peer.host {
            return Err(JoinReply::Refused(JoinRefusal::OtherHost));
        }
        Ok(request)
    }
}
