//! Sleeping until a rank of the board publishes or consumes something.
//!
//! A rank that is about to sleep says so, looks once more, and sleeps until its bell changes. A rank that
//! has published or consumed looks whether one of those that it concerns sleeps, and rings. It looks
//! without a fence, so it may miss a rank that has just said it; that one sleeps out its time, which is
//! bounded. The word that says who sleeps seldom changes, so looking costs a read from the first cache.

use super::{Board, Publication};
use crate::wait::Sleep;
use rustix::thread::futex;
use std::sync::atomic::Ordering;
use std::sync::atomic::fence;

impl Board {
    /// Makes `out` readable, as [`BoardProtocol::commit`](super::BoardProtocol::commit) does, and wakes its
    /// readers that sleep.
    #[inline(always)]
    pub fn commit(&self, out: Publication) {
        self.protocol.commit(out);
        self.wake(out.audience);
    }

    /// Tells `peer` what this rank has consumed, as
    /// [`BoardProtocol::consume`](super::BoardProtocol::consume) does, and wakes it if it sleeps.
    ///
    /// # Panics
    /// If `peer` is not on the board.
    #[inline(always)]
    pub fn consume(&self, peer: usize, position: u64) {
        self.protocol.consume(peer, position);
        self.wake(1 << peer);
    }

    /// Takes the `sleep`, unless `is_over`. It ends early once another rank publishes something for this
    /// one, or consumes what it has published.
    pub fn sleep(&self, sleep: Sleep<'_>, is_over: impl Fn() -> bool) {
        let Some(length) = sleep.length() else { return sleep.take(std::iter::empty()) };
        let me = 1 << self.protocol.me;
        let bell = self.protocol.words.bell(self.protocol.me);
        let before = bell.load(Ordering::Acquire);
        self.protocol.words.sleepers().fetch_or(me, Ordering::SeqCst);
        // What others stored before they looked for sleepers is seen by `is_over`, or they see this rank.
        fence(Ordering::SeqCst);
        if !is_over() {
            let timeout = length.try_into().ok();
            // However the sleep ends, the caller polls again.
            let _ = futex::wait(bell, futex::Flags::empty(), before, timeout.as_ref());
        }
        self.protocol.words.sleepers().fetch_and(!me, Ordering::Relaxed);
    }

    /// Wakes those of `ranks`, one bit each, that sleep.
    #[inline(always)]
    fn wake(&self, ranks: u64) {
        let asleep = self.protocol.words.sleepers().load(Ordering::Relaxed) & ranks;
        if asleep != 0 {
            self.ring(asleep);
        }
    }

    #[cold]
    #[inline(never)]
    fn ring(&self, mut ranks: u64) {
        // A rank whose bell has rung is awake for others, too.
        self.protocol.words.sleepers().fetch_and(!ranks, Ordering::Relaxed);
        while ranks != 0 {
            let rank = ranks.trailing_zeros() as usize;
            ranks &= ranks - 1;
            if rank < self.ranks() {
                let bell = self.protocol.words.bell(rank);
                bell.fetch_add(1, Ordering::Release);
                // A rank that died meanwhile is not there to be woken.
                let _ = futex::wake(bell, futex::Flags::empty(), 1);
            }
        }
    }
}
