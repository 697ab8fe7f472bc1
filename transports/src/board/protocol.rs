//! Who may write and who may read which slot when: the protocol of boards, apart from payloads and
//! from memory.

use super::{ExpectedPublication, LINES, MAX_RANKS, Mismatch, Publication, SMALL_SLOTS, SlotClass};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// One word that several ranks share. A trait, so that a model checker can stand in for the
/// hardware.
pub trait SharedWord {
    /// Reads; what the writer did before its release is visible after.
    fn acquire(&self) -> u64;
    /// Writes; what we did before is visible to whoever acquires this value.
    fn release(&self, value: u64);
    /// Reads, ordered by nothing.
    fn relaxed(&self) -> u64;
    /// Writes, ordered by nothing.
    fn store(&self, value: u64);
}

impl SharedWord for AtomicU64 {
    #[inline(always)]
    fn acquire(&self) -> u64 {
        self.load(Ordering::Acquire)
    }
    #[inline(always)]
    fn release(&self, value: u64) {
        self.store(value, Ordering::Release);
    }
    #[inline(always)]
    fn relaxed(&self) -> u64 {
        self.load(Ordering::Relaxed)
    }
    #[inline(always)]
    fn store(&self, value: u64) {
        self.store(value, Ordering::Relaxed);
    }
}

/// The words of a board.
pub trait BoardWords {
    /// A shared word.
    type Word: SharedWord;
    /// One more than the position of what line `line` of `rank` holds.
    fn sequence(&self, rank: usize, line: usize) -> &Self::Word;
    /// The fingerprint in line `line` of `rank`.
    fn fingerprint(&self, rank: usize, line: usize) -> &Self::Word;
    /// How far `reader` has consumed the publications of `writer`.
    fn consumed(&self, reader: usize, writer: usize) -> &Self::Word;
}

/// What a slot of ours holds: who has to read it, and one more than its position.
#[derive(Clone, Copy, Debug, Default)]
struct SlotState {
    audience: u64,
    upto: u64,
}

/// The publication protocol, apart from the payloads: who may write and who may read which slot
/// when.
///
/// `loom` runs this very code on its own atomics (`tests/loom.rs`).
#[derive(Debug)]
pub struct BoardProtocol<W> {
    pub(super) words: W,
    pub(super) me: usize,
    credits: [Cell<u64>; MAX_RANKS],
    lines: [Cell<SlotState>; LINES],
    small: [Cell<SlotState>; SMALL_SLOTS],
    chunk: [Cell<SlotState>; LINES],
}

impl<W: BoardWords> BoardProtocol<W> {
    /// The view of local rank `me`.
    pub fn new(words: W, me: usize) -> Self {
        Self {
            words,
            me,
            credits: [const { Cell::new(0) }; MAX_RANKS],
            lines: std::array::from_fn(|_| Cell::default()),
            small: std::array::from_fn(|_| Cell::default()),
            chunk: std::array::from_fn(|_| Cell::default()),
        }
    }

    /// True if the slots of `out` are free: everybody has consumed what they held.
    #[inline(always)]
    pub fn writable(&self, out: Publication) -> bool {
        self.free(&self.lines[line(out.position)])
            && self.data_slot(out).is_none_or(|slot| self.free(slot))
    }

    /// Makes `out` readable; its payload must be in place.
    #[inline(always)]
    pub fn commit(&self, out: Publication) {
        let held = SlotState { audience: out.audience, upto: out.position + 1 };
        self.words.fingerprint(self.me, line(out.position)).store(out.fingerprint);
        self.words.sequence(self.me, line(out.position)).release(out.position + 1);
        self.lines[line(out.position)].set(held);
        if let Some(slot) = self.data_slot(out) {
            slot.set(held);
        }
    }

    /// True once the publication is there.
    ///
    /// # Errors
    /// [`Mismatch`] if something else lies where it should.
    #[inline(always)]
    pub fn readable(&self, from: ExpectedPublication) -> Result<bool, Mismatch> {
        let sequence = self.words.sequence(from.peer, line(from.position)).acquire();
        if sequence <= from.position {
            return Ok(false);
        }
        let theirs = self.words.fingerprint(from.peer, line(from.position)).relaxed();
        // A later publication in its place means that the peer did not count us among its readers.
        if sequence != from.position + 1 || theirs != from.fingerprint {
            return Err(Mismatch { peer: from.peer, theirs });
        }
        Ok(true)
    }

    /// The fingerprint of the peer's publication at `position`, if it lies there now. For waits
    /// that have become slow: it tells what a peer does that never publishes what we await.
    pub fn peek_fingerprint(&self, peer: usize, position: u64) -> Option<u64> {
        let sequence = self.words.sequence(peer, line(position)).acquire();
        (sequence > position).then(|| self.words.fingerprint(peer, line(position)).relaxed())
    }

    /// Says that we have used every publication of `peer` below `position` that we read at all.
    #[inline(always)]
    pub fn consume(&self, peer: usize, position: u64) {
        self.words.consumed(self.me, peer).release(position);
    }

    /// Learns, without a counter, that `peer` has consumed our publications below `position`.
    #[inline(always)]
    pub fn credit(&self, peer: usize, position: u64) {
        if self.credits[peer].get() < position {
            self.credits[peer].set(position);
        }
    }

    #[inline(always)]
    fn data_slot(&self, out: Publication) -> Option<&Cell<SlotState>> {
        let slot = (out.position & out.mask) as usize;
        match out.class {
            SlotClass::Tiny => None,
            SlotClass::Small => Some(&self.small[slot % SMALL_SLOTS]),
            SlotClass::Chunk => Some(&self.chunk[slot % LINES]),
        }
    }

    #[inline(always)]
    fn free(&self, slot: &Cell<SlotState>) -> bool {
        let SlotState { mut audience, upto } = slot.get();
        while audience != 0 {
            let reader = audience.trailing_zeros() as usize;
            if self.credits[reader].get() < upto {
                // The counter may lag behind what is known already, never the other way round.
                self.credit(reader, self.words.consumed(reader, self.me).acquire());
                if self.credits[reader].get() < upto {
                    slot.set(SlotState { audience, upto });
                    return false;
                }
            }
            audience &= audience - 1;
        }
        true
    }
}

#[inline(always)]
pub(super) const fn line(position: u64) -> usize {
    (position % LINES as u64) as usize
}
