//! How many calls the ranks of this process have started: which of them a kernel waits for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};

/// A rank of a group on GPUs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GroupRank {
    /// The group: a number that no other group of the process is likely to have.
    pub group: u32,
    /// The rank in the group.
    pub rank: usize,
    /// Ranks of the group.
    pub ranks: usize,
}

/// The calls that a rank has started, those of graphs when they are captured.
#[derive(Debug)]
pub(super) struct StartedCalls {
    of: GroupRank,
    /// The thread that made the last call, or made the rank.
    thread: Mutex<ThreadId>,
    /// Of all ranks.
    common: AtomicU64,
    /// By peer.
    sent: Box<[AtomicU64]>,
    received: Box<[AtomicU64]>,
}

impl StartedCalls {
    pub(super) fn new(of: GroupRank) -> Self {
        let none = || (0..of.ranks).map(|_| AtomicU64::new(0)).collect();
        let thread = Mutex::new(thread::current().id());
        Self { of, thread, common: AtomicU64::new(0), sent: none(), received: none() }
    }

    /// This thread starts a call of all ranks, or a message to a rank (true) or from it.
    pub(super) fn add(&self, message: Option<(usize, bool)>) {
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = thread::current().id();
        let count = match message {
            None => &self.common,
            Some((peer, true)) => &self.sent[peer],
            Some((peer, false)) => &self.received[peer],
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// True if this thread makes the calls of the rank.
    pub(super) fn are_of_this_thread(&self) -> bool {
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) == thread::current().id()
    }

    /// True if a call that this rank has started waits for one that `other` has not started.
    pub(super) fn await_start_of(&self, other: &Self) -> bool {
        let more = |one: &AtomicU64, other: &AtomicU64| {
            one.load(Ordering::Relaxed) > other.load(Ordering::Relaxed)
        };
        let (me, peer) = (self.of.rank, other.of.rank);
        self.of.group == other.of.group
            && me != peer
            && (more(&self.common, &other.common)
                || more(&self.sent[peer], &other.received[me])
                || more(&self.received[peer], &other.sent[me]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_waits_for_the_ranks_that_have_started_fewer() {
        let of = |group, rank| StartedCalls::new(GroupRank { group, rank, ranks: 3 });
        let [one, two, three, other] = [of(1, 0), of(1, 1), of(1, 2), of(2, 1)];
        one.add(None);
        assert!(one.await_start_of(&two) && !two.await_start_of(&one));
        assert!(!one.await_start_of(&other), "another group");
        two.add(None);
        assert!(!one.await_start_of(&two) && two.await_start_of(&three));
        two.add(Some((0, true)));
        assert!(two.await_start_of(&one), "a message that is not received");
        one.add(Some((1, false)));
        assert!(!two.await_start_of(&one) && !one.await_start_of(&two));
        one.add(Some((1, false)));
        assert!(one.await_start_of(&two), "a message that is not sent");
        let elsewhere =
            std::thread::scope(|scope| scope.spawn(|| one.are_of_this_thread()).join().unwrap());
        assert!(one.are_of_this_thread() && !elsewhere);
    }
}
