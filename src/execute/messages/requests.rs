//! Messages that no call waits for: each belongs to a request, which owns its memory.

use super::batch::{Misfit, ReceiveHead, ReceiveState, SendHead};
use crate::execute::polling::PollCounter;
use maypole_kernels::{DataType, View, ViewMut};
use maypole_transports::pipe::PipeWait;
use maypole_transports::{Bell, Sleep};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The number of the first request. Lower numbers are indices of messages of the running batch.
pub(super) const FIRST_REQUEST: usize = 1 << (usize::BITS - 1);

/// How a message of a request has ended.
#[derive(Debug)]
pub(crate) enum MessageEnd {
    /// All of it has left, or has arrived: its other rank, and its length in elements.
    Moved { peer: usize, count: usize },
    /// The message of rank `peer` is of another type or length than its receive, and is dropped.
    Misfit(Misfit),
    /// The group has failed. The error is that of the layer which drives the links.
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

/// The memory of a message to send, and what is told of its end.
pub(crate) trait OwnedSend: Send {
    /// The bytes, the same ones each time.
    fn data(&self) -> View<'_>;
    /// Gives the memory up and tells how the message has ended. Does not block.
    fn end(self: Box<Self>, end: MessageEnd);
}

/// The memory for a message to receive, and what is told of its end.
pub(crate) trait OwnedReceive: Send {
    /// The memory, the same each time.
    fn room(&mut self) -> ViewMut<'_>;
    /// Gives the memory up and tells how the message has ended. Does not block.
    fn end(self: Box<Self>, end: MessageEnd);
}

/// How long a message may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageDeadline {
    pub(crate) end: Instant,
    pub(crate) allowed: Duration,
}

/// A message of a request that has not been posted.
pub(crate) enum NewRequest {
    Send { to: usize, tag: u32, kind: DataType, owned: Box<dyn OwnedSend> },
    Receive { from: Option<usize>, tag: u32, kind: DataType, owned: Box<dyn OwnedReceive> },
}

/// What other threads tell the thread that drives the links: which requests they have started since it
/// looked, and that they wait for one.
#[derive(Default)]
pub(crate) struct RequestInbox {
    /// Of the thread that drives.
    bell: Bell,
    /// Threads that wait for a request, and drive if they can.
    waiters: AtomicUsize,
    is_filled: AtomicBool,
    new: Mutex<Vec<(NewRequest, MessageDeadline)>>,
}

impl RequestInbox {
    /// Adds a request behind all others.
    pub(crate) fn push(&self, new: NewRequest, deadline: MessageDeadline) {
        let mut all = self.new.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((new, deadline));
        self.is_filled.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// This thread waits, until the result is dropped: the thread in the background stands aside.
    pub(crate) fn wait(&self) -> Waiter<'_> {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        self.bell.ring();
        Waiter(self)
    }

    /// True if a thread waits.
    pub(crate) fn has_waiter(&self) -> bool {
        self.waiters.load(Ordering::SeqCst) > 0
    }

    /// True if there is a request.
    #[inline(always)]
    pub(crate) fn is_filled(&self) -> bool {
        self.is_filled.load(Ordering::Acquire)
    }

    fn take(&self) -> Vec<(NewRequest, MessageDeadline)> {
        let mut all = self.new.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_filled.store(false, Ordering::Release);
        std::mem::take(&mut all)
    }
}

/// A thread that waits.
pub(crate) struct Waiter<'a>(&'a RequestInbox);

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.waiters.fetch_sub(1, Ordering::AcqRel);
    }
}

struct RequestedSend {
    head: SendHead,
    deadline: MessageDeadline,
    owned: Box<dyn OwnedSend>,
}

struct RequestedReceive {
    head: ReceiveHead,
    deadline: MessageDeadline,
    owned: Box<dyn OwnedReceive>,
}

/// The messages of all requests under way, by number. A later request has a higher number.
#[derive(Default)]
pub(crate) struct MessageRequests {
    inbox: Arc<RequestInbox>,
    started: usize,
    sends: BTreeMap<usize, RequestedSend>,
    receives: BTreeMap<usize, RequestedReceive>,
    /// The receives that have taken no message: by tag, then by number.
    open: BTreeSet<(u32, usize)>,
    /// How many of them name this rank; none stands for any rank.
    awaited: BTreeMap<Option<usize>, usize>,
    deadlines: BTreeSet<(Instant, usize)>,
    /// Messages that are complete, and whose requests have not been told.
    complete: Vec<usize>,
    /// How many have ended since that was last asked.
    ended: usize,
    pub(super) polls: PollCounter,
}

impl MessageRequests {
    /// Where requests are left that are started while another thread drives the links.
    pub(crate) fn inbox(&self) -> Arc<RequestInbox> {
        Arc::clone(&self.inbox)
    }

    /// True if no request is under way or waits in the inbox.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_idle() && !self.inbox.is_filled()
    }

    /// True if no request is under way.
    #[inline(always)]
    pub(super) fn is_idle(&self) -> bool {
        self.sends.is_empty() && self.receives.is_empty()
    }

    /// Takes the `sleep`, which ends early once one of `waits` is over, there is a new request, or, on the
    /// thread in the background, another thread waits.
    pub(super) fn sleep(&self, waits: &[PipeWait<'_>], sleep: Sleep<'_>) {
        let yields = sleep.is_in_background();
        let is_over = || self.has_new() || yields && self.inbox.has_waiter();
        PipeWait::sleep(waits, &self.inbox.bell, sleep, is_over);
    }

    #[inline(always)]
    pub(super) fn has_new(&self) -> bool {
        self.inbox.is_filled()
    }

    /// Takes the requests of the inbox over. Returns their numbers, in order.
    pub(super) fn take_new(&mut self) -> Vec<usize> {
        let new = self.inbox.take();
        new.into_iter().map(|(new, deadline)| self.add(new, deadline)).collect()
    }

    fn add(&mut self, new: NewRequest, deadline: MessageDeadline) -> usize {
        let number = FIRST_REQUEST + self.started;
        self.started += 1;
        self.deadlines.insert((deadline.end, number));
        match new {
            NewRequest::Send { to, tag, kind, owned } => {
                let head = SendHead::new(to, tag, kind, owned.data().len());
                self.sends.insert(number, RequestedSend { head, deadline, owned });
            }
            NewRequest::Receive { from, tag, kind, mut owned } => {
                let head = ReceiveHead::new(from, tag, kind, owned.room().len());
                self.open.insert((tag, number));
                *self.awaited.entry(from).or_default() += 1;
                self.receives.insert(number, RequestedReceive { head, deadline, owned });
            }
        }
        number
    }

    pub(super) fn send(&self, number: usize) -> Option<&SendHead> {
        self.sends.get(&number).map(|send| &send.head)
    }

    pub(super) fn send_mut(&mut self, number: usize) -> &mut SendHead {
        &mut self.sends.get_mut(&number).expect(UNDER_WAY).head
    }

    pub(super) fn data(&self, number: usize) -> View<'_> {
        self.sends[&number].owned.data()
    }

    pub(super) fn receive(&self, number: usize) -> Option<&ReceiveHead> {
        self.receives.get(&number).map(|receive| &receive.head)
    }

    pub(super) fn room(&mut self, number: usize) -> ViewMut<'_> {
        self.receives.get_mut(&number).expect(UNDER_WAY).owned.room()
    }

    /// Notes which message a receive has taken, and how far it has come.
    pub(super) fn set_state(&mut self, number: usize, state: ReceiveState) {
        let head = &mut self.receives.get_mut(&number).expect(UNDER_WAY).head;
        let (before, tag, from) = (head.state, head.tag, head.from);
        head.state = state;
        if before == ReceiveState::Posted {
            self.close(number, tag, from);
        }
        if state.is_over() {
            self.complete.push(number);
        }
    }

    pub(super) fn complete_send(&mut self, number: usize) {
        self.send_mut(number).complete = true;
        self.complete.push(number);
    }

    /// The receive takes no message any more.
    fn close(&mut self, number: usize, tag: u32, from: Option<usize>) {
        self.open.remove(&(tag, number));
        if let Some(count) = self.awaited.get_mut(&from) {
            *count -= 1;
            if *count == 0 {
                self.awaited.remove(&from);
            }
        }
    }

    /// The first receive that takes a message of `peer` with this tag.
    pub(super) fn first_open(&self, peer: usize, tag: u32) -> Option<usize> {
        let mut of_tag = self.open.range((tag, 0)..=(tag, usize::MAX)).map(|(_, number)| *number);
        of_tag.find(|number| self.receives[number].head.is_from(peer))
    }

    /// True if a receive waits for a message that `peer` may send.
    pub(super) fn awaits(&self, peer: usize) -> bool {
        self.awaited.contains_key(&Some(peer)) || self.awaited.contains_key(&None)
    }

    /// The sends that have not left as a whole, in order.
    pub(super) fn open_sends(&self) -> impl Iterator<Item = (usize, &SendHead)> {
        let all = self.sends.iter().map(|(number, send)| (*number, &send.head));
        all.filter(|(_, head)| !head.complete)
    }

    /// The receives that are not over, in order.
    pub(super) fn open_receives(&self) -> impl Iterator<Item = (usize, &ReceiveHead)> {
        let all = self.receives.iter().map(|(number, receive)| (*number, &receive.head));
        all.filter(|(_, head)| !head.state.is_over())
    }

    /// Tells the requests whose messages are complete.
    #[inline]
    pub(super) fn tell(&mut self) {
        while let Some(number) = self.complete.pop() {
            let end = self.end_of(number);
            self.end(number, end);
        }
    }

    /// How the message of this number has ended.
    fn end_of(&self, number: usize) -> MessageEnd {
        if let Some(send) = self.send(number) {
            return MessageEnd::Moved { peer: send.to, count: send.count() };
        }
        let head = self.receive(number).expect(UNDER_WAY);
        match head.state {
            ReceiveState::Misfit(misfit) => MessageEnd::Misfit(misfit),
            ReceiveState::Complete { peer, bytes } => {
                MessageEnd::Moved { peer, count: bytes / head.kind.size() }
            }
            ReceiveState::Posted | ReceiveState::Cleared { .. } => {
                unreachable!("only what is over is told")
            }
        }
    }

    /// How many requests have ended since this was last asked.
    pub(crate) fn take_ended(&mut self) -> usize {
        std::mem::take(&mut self.ended)
    }

    fn end(&mut self, number: usize, end: MessageEnd) {
        self.ended += 1;
        if let Some(send) = self.sends.remove(&number) {
            self.deadlines.remove(&(send.deadline.end, number));
            return send.owned.end(end);
        }
        if let Some(receive) = self.receives.remove(&number) {
            self.deadlines.remove(&(receive.deadline.end, number));
            if receive.head.state == ReceiveState::Posted {
                self.close(number, receive.head.tag, receive.head.from);
            }
            receive.owned.end(end);
        }
    }

    /// When the first deadline of a request passes.
    pub(crate) fn first_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(end, _)| *end)
    }

    /// How long the message of this number was allowed to take.
    pub(crate) fn allowed(&self, number: usize) -> Option<Duration> {
        let of_send = self.sends.get(&number).map(|send| send.deadline.allowed);
        of_send.or_else(|| Some(self.receives.get(&number)?.deadline.allowed))
    }

    /// The request whose deadline has passed at `now`: the one that was started first.
    pub(super) fn late(&self, now: Instant) -> Option<usize> {
        let passed = self.deadlines.range(..=(now, usize::MAX));
        passed.map(|(_, number)| *number).min()
    }

    /// The request that waits and was started first.
    pub(crate) fn first(&self) -> Option<usize> {
        let send = self.sends.keys().next().copied();
        let receive = self.receives.keys().next().copied();
        send.into_iter().chain(receive).min()
    }

    /// The message of this number in words, and the rank that it waits for, if that is known.
    pub(crate) fn describe(&self, number: usize) -> Option<(String, Option<usize>)> {
        if let Some(send) = self.send(number) {
            return Some((send.to_string(), Some(send.to)));
        }
        self.receive(number).map(|head| (head.to_string(), head.peer()))
    }

    /// Ends all requests under way, each with the error that `error` makes of its number.
    ///
    /// The links may still name their messages, so no link can be driven any more.
    pub(crate) fn end_all<E: std::error::Error + Send + Sync + 'static>(
        &mut self,
        mut error: impl FnMut(&Self, usize) -> E,
    ) {
        self.tell();
        self.take_new();
        while let Some(number) = self.first() {
            let error = error(self, number);
            self.end(number, MessageEnd::Failed(Box::new(error)));
        }
    }
}

const UNDER_WAY: &str = "the message of a request that is under way";

impl fmt::Debug for MessageRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageRequests")
            .field("sends", &self.sends.len())
            .field("receives", &self.receives.len())
            .finish_non_exhaustive()
    }
}
