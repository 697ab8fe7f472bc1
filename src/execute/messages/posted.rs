//! All messages that are posted: those of the running call and those of requests.

use super::MessageError;
use super::batch::MessageBatch;
use super::message::{MessageHead, MessageMemory, MessageState};
use super::requests::{FIRST_REQUEST, MessageRequests};
use crate::execute::LinkError;

/// The messages that links send and receive, each by a number: its index in the batch of the
/// running call, or the number of its request.
pub(super) struct Posted<'p, 'a> {
    pub(super) batch: &'p mut MessageBatch<'a>,
    pub(super) requests: &'p mut MessageRequests,
}

impl Posted<'_, '_> {
    #[inline(always)]
    pub(super) fn head(&self, at: usize) -> &MessageHead {
        if at < FIRST_REQUEST { &self.batch.messages[at].head } else { self.requests.head(at) }
    }

    #[inline(always)]
    pub(super) fn head_mut(&mut self, at: usize) -> &mut MessageHead {
        match at < FIRST_REQUEST {
            true => &mut self.batch.messages[at].head,
            false => self.requests.head_mut(at),
        }
    }

    #[inline(always)]
    pub(super) fn memory(&mut self, at: usize) -> MessageMemory<'_> {
        if at < FIRST_REQUEST { self.batch.messages[at].memory } else { self.requests.memory(at) }
    }

    #[inline(always)]
    pub(super) fn set_state(&mut self, at: usize, state: MessageState) {
        let before = std::mem::replace(&mut self.head_mut(at).state, state);
        if at >= FIRST_REQUEST {
            self.requests.note_change(at, before);
        }
    }

    /// Completes a send, whose memory is free then.
    #[inline(always)]
    pub(super) fn complete_send(&mut self, at: usize) {
        let MessageHead { rank, bytes, .. } = *self.head(at);
        let peer = rank.expect("a send names its receiver");
        self.set_state(at, MessageState::Complete { peer, bytes });
    }

    /// The receive that takes the next message of `peer` with this tag: requests precede the batch,
    /// because they were started before the running call.
    #[inline(always)]
    pub(super) fn first_open(&self, peer: usize, tag: u32) -> Option<usize> {
        let of_requests = || self.requests.first_open(peer, tag);
        match self.requests.is_idle() {
            true => self.batch.first_open(peer, tag),
            false => of_requests().or_else(|| self.batch.first_open(peer, tag)),
        }
    }

    /// The sends or receives that have not completed: those of the batch, then those of requests.
    pub(super) fn open(&self, sends: bool) -> impl Iterator<Item = (usize, &MessageHead)> {
        let batch = self.batch.messages.iter().map(|message| &message.head).enumerate();
        let all = batch.chain(self.requests.heads());
        all.filter(move |(_, head)| head.sends == sends && !head.is_over())
    }

    /// The error of message `at`, which waits for `peer`.
    pub(super) fn error(&self, at: usize, peer: Option<usize>, error: LinkError) -> MessageError {
        if at >= FIRST_REQUEST {
            return self.requests.error(at, peer, error);
        }
        let (operation, step) = (self.batch.describe(at), self.batch.step(at));
        MessageError { operation, step, peer, error, request: None }
    }
}
