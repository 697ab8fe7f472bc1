//! The links and the requests of one rank in one group, and the thread that drives them.

use crate::control::Control;
use crate::control::departures::LeavingThread;
use crate::engine::Engine;
use crate::engine::conditions::RunConditions;
use crate::engine::health::Health;
use crate::execute::messages::{
    AllowedTime, BatchContext, MessageError, MessageLinks, MessageRequests, RequestInbox,
    RequestedMessage,
};
use crate::schedule::hosts::Boards;
use maypole_transports::turns::{self, poll_until};
use maypole_transports::{Alarm, OwnerProcess, Sleep, Waiting};
use std::iter;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// After an interruption, how long the requests are polled before the wait begins again, and the
/// time between two polls.
const SETTLING: Duration = Duration::from_millis(1);
const PAUSE: Duration = Duration::from_micros(50);
/// Polls after which a wait is noted for status requests of peers.
const POLLS_BEFORE_NOTE: u32 = 1024;

/// The state that the driving thread locks.
pub(crate) struct DrivenMessages {
    pub(crate) links: MessageLinks,
    pub(crate) requests: MessageRequests,
}

/// The messages of one rank in one group.
pub(crate) struct Messages {
    pub(super) rank: usize,
    boards: Boards,
    pub(crate) control: Arc<dyn Control>,
    pub(crate) conditions: RunConditions,
    /// Wakes the thread that runs requests, too, when another thread begins to wait for one of them.
    pub(crate) alarm: Arc<Alarm>,
    pub(super) inbox: Arc<RequestInbox>,
    driven: Mutex<DrivenMessages>,
    pub(super) background: Mutex<Option<BackgroundThread>>,
    /// True while the background thread need not be woken.
    pub(super) is_roused: AtomicBool,
    /// True once no further request will be started.
    pub(super) is_closing: AtomicBool,
}

/// The thread that drives while no other does, and the channel that wakes it.
pub(super) struct BackgroundThread {
    pub(super) wake: Sender<()>,
    pub(super) thread: LeavingThread,
}

impl Messages {
    pub(crate) fn new(engine: &Engine) -> Arc<Self> {
        let requests = MessageRequests::default();
        let inbox = Arc::clone(&requests.inbox);
        let links = MessageLinks::new(engine.rank, engine.boards.world());
        Arc::new(Self {
            rank: engine.rank,
            boards: engine.boards.clone(),
            control: Arc::clone(&engine.health.control),
            conditions: engine.conditions.clone(),
            alarm: engine.health.control.alarm(),
            inbox,
            driven: Mutex::new(DrivenMessages { links, requests }),
            background: Mutex::new(None),
            is_roused: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
        })
    }

    /// Locks the state, so that only this thread drives until the returned guard is dropped.
    #[inline]
    pub(crate) fn drive(&self) -> MutexGuard<'_, DrivenMessages> {
        self.try_drive().unwrap_or_else(|| self.drive_after_others())
    }

    #[cold]
    fn drive_after_others(&self) -> MutexGuard<'_, DrivenMessages> {
        let _waiter = self.inbox.wait();
        match turns::wait(None, || self.try_drive()) {
            Some(Ok(driven)) => driven,
            _ => self.driven.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Drives, if no other thread does.
    #[inline]
    pub(super) fn try_drive(&self) -> Option<MutexGuard<'_, DrivenMessages>> {
        match self.driven.try_lock() {
            Ok(driven) => Some(driven),
            // The links are marked as broken while a panic could leave them so.
            Err(TryLockError::Poisoned(driven)) => Some(driven.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Starts a request. Moves the bytes that can be moved now, unless another thread drives.
    pub(crate) fn start(self: &Arc<Self>, new: RequestedMessage) {
        self.inbox.push(new);
        if !self.poll() {
            self.rouse();
        }
    }

    /// True once this rank leaves the group.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// True while a request is in flight.
    pub(crate) fn is_busy(&self) -> bool {
        self.try_drive().is_none_or(|driven| !driven.links.is_done_with(&driven.requests))
    }

    /// Moves the bytes of all requests that can be moved now, unless another thread drives. Returns
    /// true if no request is in flight.
    pub(crate) fn poll(&self) -> bool {
        let Some(mut driven) = self.try_drive() else { return false };
        let DrivenMessages { links, requests } = &mut *driven;
        let moved = match links.is_broken {
            true => Ok(()),
            false => links.drive_requests(requests, &self.context(self.conditions.waiting)),
        };
        // Messages that arrived before the group failed are complete.
        if self.alarm.raised() {
            self.give_up(links, requests, None);
        } else if let Err(failed) = moved {
            self.give_up(links, requests, Some(failed));
        }
        match std::mem::take(&mut requests.ended) {
            0 => {}
            ended => self.control.activity().count_messages(ended),
        }
        links.is_done_with(requests)
    }

    /// The parts of the communicator that a batch with this kind of wait needs.
    pub(crate) fn context(&self, waiting: Waiting) -> BatchContext<'_> {
        let Self { control, alarm, boards, .. } = self;
        BatchContext { connector: &**control, waiting, alarm, boards }
    }

    /// Ends all requests, because a message of theirs has `failed`, or the group has.
    #[cold]
    fn give_up(
        &self,
        links: &mut MessageLinks,
        requests: &mut MessageRequests,
        failed: Option<MessageError>,
    ) {
        links.is_broken = true;
        if requests.is_empty() {
            return;
        }
        let owner = OwnerProcess::current();
        let mut health = Health::new(self.rank, owner, Arc::clone(&self.control));
        let timeout = AllowedTime { time: self.conditions.waiting.timeout(), is_own: false };
        let first = failed.map(|failed| {
            let request = failed.request;
            let allowed = request.and_then(|request| requests.allowed(request));
            (request, health.explain_message(failed, allowed.unwrap_or(timeout)))
        });
        requests.end_all(|failed| match &first {
            Some((request, error)) if *request == failed.request => error.clone(),
            _ => health.explain_message(failed, timeout),
        });
    }

    /// Drives until `is_over`, unless another thread drives. Each request has its deadline.
    pub(crate) fn drive_until(self: &Arc<Self>, is_over: &mut dyn FnMut() -> bool) {
        if is_over() {
            return;
        }
        let waiter = self.inbox.wait();
        let (mut polls, mut is_noted) = (0u32, false);
        let mut polled = || {
            self.poll();
            let is_over = is_over();
            polls = polls.saturating_add(1);
            if !is_over && polls == POLLS_BEFORE_NOTE {
                is_noted = self.note_wait();
            }
            is_over
        };
        let sleep = |sleep: Sleep<'_>| match self.try_drive() {
            Some(mut driven) => driven.sleep(sleep),
            None => sleep.take(iter::empty()),
        };
        self.poll_until_over(self.conditions.waiting, sleep, &mut polled);
        if is_noted {
            self.control.activity().end_message_beside();
        }
        drop(waiter);
        if self.is_busy() {
            self.rouse();
        }
    }

    /// Notes the message that this thread waits for, for status requests of peers, unless the rank
    /// is in a call.
    #[cold]
    fn note_wait(&self) -> bool {
        let first = self.try_drive().and_then(|driven| driven.requests.first());
        let activity = self.control.activity();
        let Some((words, peer)) = first.filter(|_| !activity.is_inside()) else { return false };
        activity.begin_message_beside(words, peer);
        true
    }

    /// Polls until `is_over`. Each request has its deadline, and time after it to end.
    pub(super) fn poll_until_over(
        &self,
        waiting: Waiting,
        mut sleep: impl FnMut(Sleep<'_>),
        is_over: &mut dyn FnMut() -> bool,
    ) {
        let mut ready = || is_over().then_some(());
        loop {
            let waiting = waiting.on_streams().with_deadline(self.first_deadline());
            if waiting.until(&self.alarm, &mut sleep, &mut ready).is_ok()
                || poll_until(turns::now() + SETTLING, PAUSE, &mut ready).is_some()
            {
                return;
            }
        }
    }

    /// The first deadline of a request; `None` without one, or while another thread drives.
    fn first_deadline(&self) -> Option<Instant> {
        self.try_drive()?.requests.first_deadline()
    }

    /// Waits for the requests in flight, for no longer than `most`.
    pub(crate) fn finish(self: &Arc<Self>, most: Option<Duration>) {
        let end = most.map(|most| turns::now() + most);
        let late = || end.is_some_and(|end| turns::now() >= end);
        self.drive_until(&mut || !self.is_busy() || late());
    }

    /// Ends the background thread. Waits until sent bytes have arrived, unless the group has
    /// `failed`, and closes all links.
    pub(crate) fn leave(self: &Arc<Self>, failed: bool) {
        // Ends the requests in flight if the group has failed.
        self.poll();
        self.end_background();
        let links = &mut self.drive().links;
        links.leave(failed || links.is_broken, &*self.control);
    }
}

impl DrivenMessages {
    /// Takes the `sleep`, which ends early if a link can progress for requests, or there is a new
    /// one.
    pub(super) fn sleep(&mut self, sleep: Sleep<'_>) {
        self.links.sleep_on(&[], &[], &self.requests, sleep);
    }
}
