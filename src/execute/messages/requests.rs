//! Messages of requests, each of which owns its memory.

use super::MessageError;
use super::message::{MessageHead, MessageMemory, MessageState, Misfit};
use crate::execute::LinkError;
use crate::execute::polling::PollCounter;
use maypole_kernels::DataType;
use maypole_transports::pipe::PipeWait;
use maypole_transports::{Bell, Sleep};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The number of the first request. Lower numbers are indices of messages of the running batch.
pub(super) const FIRST_REQUEST: usize = 1 << (usize::BITS - 1);

/// The end of the message of a request: its other rank, and its length in elements, all of which
/// have left or arrived.
pub(crate) type MessageEnd = Result<(usize, usize), MessageFailure>;

/// Why the message of a request has failed.
#[derive(Debug)]
pub(crate) enum MessageFailure {
    /// It is of another type or length than its receive, and is dropped.
    Misfit(Misfit),
    /// The group has failed. The error is that of the layer which drives the links.
    Group(Box<dyn std::error::Error + Send + Sync>),
}

/// The memory of a message, and the receiver of its end.
pub(crate) trait OwnedMessage: Send {
    /// The memory, the same each time.
    fn memory(&mut self) -> MessageMemory<'_>;
    /// Releases the memory and passes the end on. Non-blocking.
    fn end(self: Box<Self>, end: MessageEnd);
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageDeadline {
    pub(crate) end: Instant,
    pub(crate) allowed: AllowedTime,
}

/// How long a wait may last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllowedTime {
    pub(crate) time: Duration,
    /// The caller gave this call a deadline, rather than the timeout of every wait.
    pub(crate) is_own: bool,
}

pub(crate) struct RequestedMessage {
    head: MessageHead,
    deadline: MessageDeadline,
    owned: Box<dyn OwnedMessage>,
}

impl RequestedMessage {
    /// A message with elements of `kind` to or from rank `peer`; `None` to receive from any rank.
    pub(crate) fn new(
        mut owned: Box<dyn OwnedMessage>,
        (kind, peer, tag): (DataType, Option<usize>, u32),
        deadline: MessageDeadline,
    ) -> Self {
        Self { head: MessageHead::new(owned.memory(), kind, peer, tag), deadline, owned }
    }
}

/// The queue from other threads to the thread that drives the links: requests that they have
/// started since its last poll, and their number of waits.
#[derive(Default)]
pub(crate) struct RequestInbox {
    /// Wakes the driving thread.
    bell: Bell,
    /// Threads that wait for a request, and drive if they can.
    waiters: AtomicUsize,
    is_filled: AtomicBool,
    new: Mutex<Vec<RequestedMessage>>,
}

impl RequestInbox {
    pub(crate) fn push(&self, new: RequestedMessage) {
        self.new.lock().unwrap_or_else(PoisonError::into_inner).push(new);
        self.is_filled.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Registers this thread as a waiter until the result is dropped. The background thread does
    /// not drive meanwhile.
    pub(crate) fn wait(&self) -> Waiter<'_> {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        self.bell.ring();
        Waiter(self)
    }

    pub(crate) fn has_waiter(&self) -> bool {
        self.waiters.load(Ordering::SeqCst) > 0
    }

    /// True if there is a request.
    #[inline(always)]
    pub(crate) fn is_filled(&self) -> bool {
        self.is_filled.load(Ordering::Acquire)
    }

    fn take(&self) -> Vec<RequestedMessage> {
        let mut all = self.new.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_filled.store(false, Ordering::Release);
        std::mem::take(&mut all)
    }
}

pub(crate) struct Waiter<'a>(&'a RequestInbox);

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.waiters.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The messages of all requests in flight, by number. A later request has a higher number.
#[derive(Default)]
pub(crate) struct MessageRequests {
    /// Requests that are started while another thread drives the links.
    pub(crate) inbox: Arc<RequestInbox>,
    started: usize,
    messages: BTreeMap<usize, RequestedMessage>,
    /// The receives that have taken no message: by tag, then by number.
    open: BTreeSet<(u32, usize)>,
    /// The number of them by source; `None` is any rank.
    awaited: BTreeMap<Option<usize>, usize>,
    deadlines: BTreeSet<(Instant, usize)>,
    /// Completed messages whose requests have not been notified.
    complete: Vec<usize>,
    /// The number that have ended and were not counted.
    pub(crate) ended: usize,
    pub(super) polls: PollCounter,
}

impl MessageRequests {
    /// True if no request is in flight or waits in the inbox.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_idle() && !self.inbox.is_filled()
    }

    /// True if no request is in flight.
    #[inline(always)]
    pub(super) fn is_idle(&self) -> bool {
        self.messages.is_empty()
    }

    /// Takes the `sleep`, which ends early once one of `waits` has ended, there is a new request,
    /// or, on the background thread, another thread waits.
    pub(super) fn sleep(&self, waits: &[PipeWait<'_>], sleep: Sleep<'_>) {
        let yields = sleep.is_in_background();
        let is_over = || self.inbox.is_filled() || yields && self.inbox.has_waiter();
        PipeWait::sleep(waits, &self.inbox.bell, sleep, is_over);
    }

    /// Takes the requests of the inbox. Returns their numbers, in order.
    pub(super) fn take_new(&mut self) -> Vec<usize> {
        self.inbox.take().into_iter().map(|new| self.add(new)).collect()
    }

    fn add(&mut self, new: RequestedMessage) -> usize {
        let number = FIRST_REQUEST + self.started;
        self.started += 1;
        self.deadlines.insert((new.deadline.end, number));
        if !new.head.sends {
            self.open.insert((new.head.tag, number));
            *self.awaited.entry(new.head.rank).or_default() += 1;
        }
        self.messages.insert(number, new);
        number
    }

    fn message(&mut self, number: usize) -> &mut RequestedMessage {
        self.messages.get_mut(&number).expect("a link names messages that are under way")
    }

    pub(super) fn head(&self, number: usize) -> &MessageHead {
        &self.messages[&number].head
    }

    pub(super) fn head_mut(&mut self, number: usize) -> &mut MessageHead {
        &mut self.message(number).head
    }

    pub(super) fn memory(&mut self, number: usize) -> MessageMemory<'_> {
        self.message(number).owned.memory()
    }

    pub(super) fn heads(&self) -> impl Iterator<Item = (usize, &MessageHead)> {
        self.messages.iter().map(|(number, message)| (*number, &message.head))
    }

    /// Updates the indices after a message's state changed from `before`.
    pub(super) fn note_change(&mut self, number: usize, before: MessageState) {
        let MessageHead { sends, tag, rank, .. } = *self.head(number);
        if !sends && before == MessageState::Posted {
            self.close(number, tag, rank);
        }
        if self.head(number).is_over() {
            self.complete.push(number);
        }
    }

    /// Removes a receive from the indices of open ones.
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
        of_tag.find(|number| self.head(*number).is_from(peer))
    }

    /// True if a receive waits for a message that `peer` may send.
    pub(super) fn awaits(&self, peer: usize) -> bool {
        self.awaited.contains_key(&Some(peer)) || self.awaited.contains_key(&None)
    }

    /// Notifies the requests whose messages have completed.
    #[inline]
    pub(super) fn tell(&mut self) {
        while let Some(number) = self.complete.pop() {
            let end = self.head(number).arrival();
            self.end(number, end.map_err(MessageFailure::Misfit));
        }
    }

    fn end(&mut self, number: usize, end: MessageEnd) {
        self.ended += 1;
        let Some(RequestedMessage { head, deadline, owned }) = self.messages.remove(&number) else {
            return;
        };
        self.deadlines.remove(&(deadline.end, number));
        if !head.sends && head.state == MessageState::Posted {
            self.close(number, head.tag, head.rank);
        }
        owned.end(end);
    }

    /// The first deadline of a request.
    pub(crate) fn first_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(end, _)| *end)
    }

    /// The timeout of the message of this number.
    pub(crate) fn allowed(&self, number: usize) -> Option<AllowedTime> {
        Some(self.messages.get(&number)?.deadline.allowed)
    }

    /// The request whose deadline has passed at `now`: the one that was started first.
    pub(super) fn late(&self, now: Instant) -> Option<usize> {
        let passed = self.deadlines.range(..=(now, usize::MAX));
        passed.map(|(_, number)| *number).min()
    }

    /// The message that was started first: in words, with the rank that it waits for, if there is
    /// one.
    pub(crate) fn first(&self) -> Option<(String, Option<usize>)> {
        let (_, head) = self.heads().next()?;
        Some((head.to_string(), head.peer()))
    }

    /// The error of the message of this number, which waits for `peer`.
    pub(super) fn error(&self, at: usize, peer: Option<usize>, error: LinkError) -> MessageError {
        let operation = self.head(at).to_string();
        MessageError { operation, step: 0, peer, error, request: Some(at) }
    }

    /// Ends all requests in flight, each with the result of `error` for its own error.
    ///
    /// The links may still hold their numbers, so no link may be driven afterwards.
    pub(crate) fn end_all<E: std::error::Error + Send + Sync + 'static>(
        &mut self,
        mut error: impl FnMut(MessageError) -> E,
    ) {
        self.tell();
        self.take_new();
        while let Some(number) = self.messages.keys().next().copied() {
            let own = self.error(number, self.head(number).peer(), LinkError::Aborted);
            self.end(number, Err(MessageFailure::Group(Box::new(error(own)))));
        }
    }
}
