//! All messages that are posted: those of the running call and those of requests.

use super::batch::{MessageBatch, ReceiveHead, ReceiveState, SendHead};
use super::requests::{FIRST_REQUEST, MessageRequests};
use maypole_kernels::{View, ViewMut};

/// The messages that links send and receive, each by a number: its index in the batch of the
/// running call, or the number of its request.
#[derive(Debug)]
pub(super) struct Posted<'p, 'a> {
    pub(super) batch: &'p mut MessageBatch<'a>,
    pub(super) requests: &'p mut MessageRequests,
}

impl Posted<'_, '_> {
    #[inline(always)]
    pub(super) fn send(&self, at: usize) -> &SendHead {
        match at < FIRST_REQUEST {
            true => &self.batch.sends[at].head,
            false => self.requests.send(at).expect("a link names messages that are under way"),
        }
    }

    #[inline(always)]
    pub(super) fn send_mut(&mut self, at: usize) -> &mut SendHead {
        match at < FIRST_REQUEST {
            true => &mut self.batch.sends[at].head,
            false => self.requests.send_mut(at),
        }
    }

    /// The bytes of a message to send.
    #[inline(always)]
    pub(super) fn data(&self, at: usize) -> View<'_> {
        match at < FIRST_REQUEST {
            true => self.batch.sends[at].data,
            false => self.requests.data(at),
        }
    }

    #[inline(always)]
    pub(super) fn complete_send(&mut self, at: usize) {
        match at < FIRST_REQUEST {
            true => self.batch.sends[at].head.complete = true,
            false => self.requests.complete_send(at),
        }
    }

    #[inline(always)]
    pub(super) fn receive(&self, at: usize) -> &ReceiveHead {
        match at < FIRST_REQUEST {
            true => &self.batch.receives[at].head,
            false => self.requests.receive(at).expect("a link names messages that are under way"),
        }
    }

    /// The memory for a message to receive.
    #[inline(always)]
    pub(super) fn room(&mut self, at: usize) -> ViewMut<'_> {
        match at < FIRST_REQUEST {
            true => self.batch.receives[at].into,
            false => self.requests.room(at),
        }
    }

    /// Notes that a receive has taken message `number`, and how far it has come.
    #[inline(always)]
    pub(super) fn set_taken(&mut self, at: usize, number: u64, state: ReceiveState) {
        if at < FIRST_REQUEST {
            self.batch.receives[at].head.number = number;
        }
        self.set_state(at, state);
    }

    /// Notes how far a receive has come.
    #[inline(always)]
    pub(super) fn set_state(&mut self, at: usize, state: ReceiveState) {
        match at < FIRST_REQUEST {
            true => self.batch.receives[at].head.state = state,
            false => self.requests.set_state(at, state),
        }
    }

    /// The receive that takes the next message of `peer` with this tag: requests come first,
    /// because they were started before the running call.
    #[inline(always)]
    pub(super) fn first_open(&self, peer: usize, tag: u32) -> Option<usize> {
        let of_requests = || self.requests.first_open(peer, tag);
        match self.requests.is_idle() {
            true => self.batch.first_open(peer, tag),
            false => of_requests().or_else(|| self.batch.first_open(peer, tag)),
        }
    }
}
