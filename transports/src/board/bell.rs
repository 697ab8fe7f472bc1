//! Sleeping until a rank of the board publishes or consumes something.
//!
//! Each rank has a [bell](crate::bell). One word has a bit for each sleeping rank, so a publication
//! for many readers reads one word.

use super::{Board, Publication};
use crate::wait::Sleep;
use std::sync::atomic::Ordering;

impl Board {
    /// Makes `out` readable, as [`BoardProtocol::commit`](super::BoardProtocol::commit) does, and wakes its
    /// readers that sleep.
    #[inline(always)]
    pub fn commit(&self, out: Publication) {
        self.protocol.commit(out);
        self.wake(out.audience);
    }

    /// Acknowledges consumed publications to `peer`, as
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
    /// one, or consumes a publication of this one.
    pub fn sleep(&self, sleep: Sleep<'_>, is_over: impl FnOnce() -> bool) {
        let words = &self.protocol.words;
        let me = 1 << self.protocol.me;
        words.sleepers().fetch_or(me, Ordering::SeqCst);
        sleep.on(&[words.bell(self.protocol.me)], is_over);
        words.sleepers().fetch_and(!me, Ordering::Relaxed);
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
                self.protocol.words.bell(rank).ring();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alarm::Alarm;
    use crate::board::SlotClass;
    use maypole_kernels::SharedRegion;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    const LONG: Duration = Duration::from_secs(120);

    fn boards() -> [Board; 2] {
        let region = Arc::new(SharedRegion::new(Board::bytes(2)));
        [0, 1].map(|me| Board::new(Arc::clone(&region), 2, me))
    }

    fn slept(wakes: impl FnOnce(&Board) + Send) -> Duration {
        slept_by(Sleep::of(LONG), wakes)
    }

    /// Rank 1 takes the `sleep`; rank 0 does `wakes` once it sleeps. Returns how long the sleep was.
    fn slept_by(sleep: Sleep<'_>, wakes: impl FnOnce(&Board) + Send) -> Duration {
        let [mine, theirs] = boards();
        std::thread::scope(|threads| {
            threads.spawn(move || {
                let start = Instant::now();
                while !mine.protocol.words.bell(1).is_asleep() {
                    assert!(start.elapsed() < LONG, "rank 1 never sleeps");
                    std::thread::yield_now();
                }
                wakes(&mine);
            });
            let start = Instant::now();
            theirs.sleep(sleep, || false);
            assert_eq!(theirs.protocol.words.sleepers().load(Ordering::SeqCst), 0);
            start.elapsed()
        })
    }

    #[test]
    fn a_publication_and_a_consumption_wake_whom_they_concern() {
        let class = SlotClass::Tiny;
        let out = |audience, position| Publication {
            class,
            mask: 0,
            position,
            audience,
            fingerprint: 1,
            len: 0,
        };
        assert!(slept(|board| board.commit(out(0b10, 0))) < LONG / 2);
        assert!(slept(|board| board.consume(1, 1)) < LONG / 2);
        let others_first = |board: &Board| {
            board.commit(out(0b01, 0));
            assert_ne!(board.protocol.words.sleepers().load(Ordering::SeqCst), 0, "not for rank 1");
            board.commit(out(0b10, 1));
        };
        assert!(slept(others_first) < LONG / 2);
    }

    #[test]
    fn a_sleep_in_the_background_ends_with_a_publication_and_with_the_alarm() {
        let wakes: [fn(&Board, &Alarm); 3] = [
            |board, _| board.consume(1, 1),
            |_, alarm| drop(alarm.begin_foreground_wait()),
            |_, alarm| alarm.raise(),
        ];
        for wakes in wakes {
            let alarm = &Alarm::default();
            let sleep = Sleep::in_background(LONG, alarm);
            assert!(slept_by(sleep, |board| wakes(board, alarm)) < LONG / 2);
        }
    }

    #[test]
    fn what_is_over_needs_no_sleep() {
        let [board, _] = boards();
        let start = Instant::now();
        board.sleep(Sleep::of(LONG), || true);
        assert!(start.elapsed() < LONG / 2);
    }
}
