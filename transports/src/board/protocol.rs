//! The protocol of a board, apart from payloads and memory: which rank may write or read which
//! slot, and when.

use super::{
    ExpectedPublication, MAX_RANKS, MOST_CHUNK_SLOTS, MOST_LINES, Mismatch, Publication,
    SHORT_SLOTS, SMALL_SLOTS, SlotClass,
};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// One atomic word that several ranks share. It is a trait, so that tests can run the protocol on
/// the atomics of a model checker.
pub trait SharedWord {
    /// Loads with acquire ordering.
    fn acquire(&self) -> u64;
    /// Stores with release ordering.
    fn release(&self, value: u64);
    /// Loads with relaxed ordering.
    fn relaxed(&self) -> u64;
    /// Stores with relaxed ordering.
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
    /// How many ranks share the board.
    fn ranks(&self) -> usize;
    /// The lines of each rank: a power of two, at most [`MOST_LINES`].
    fn lines(&self) -> usize;
    /// One more than the position of the publication in line `line` of `rank`; 0 if there was
    /// none.
    fn sequence(&self, rank: usize, line: usize) -> &Self::Word;
    /// The fingerprint in line `line` of `rank`.
    fn fingerprint(&self, rank: usize, line: usize) -> &Self::Word;
    /// The slot of the publication in line `line` of `rank`, if its payload is not in the line.
    fn slot(&self, rank: usize, line: usize) -> &Self::Word;
    /// The position up to which `reader` has consumed the publications of `writer`.
    fn consumed(&self, reader: usize, writer: usize) -> &Self::Word;
}

/// The last publication in a slot of this rank, and its readers.
#[derive(Clone, Copy, Debug, Default)]
struct SlotState {
    /// Readers that may not have consumed the publication: bit `r` stands for local rank `r`.
    audience: u64,
    /// One more than the position of the publication.
    end: u64,
}

/// The state that one rank keeps of the protocol.
///
/// `loom` runs this very code on its own atomics (`tests/loom.rs`).
#[derive(Debug)]
pub struct BoardProtocol<W> {
    pub(super) words: W,
    pub(super) me: usize,
    credits: [Cell<u64>; MAX_RANKS],
    /// Lines of each rank, less one.
    mask: u64,
    lines: Box<[Cell<SlotState>]>,
    short: Box<[Cell<SlotState>]>,
    small: [Cell<SlotState>; SMALL_SLOTS],
    chunk: [Cell<SlotState>; MOST_CHUNK_SLOTS],
}

impl<W: BoardWords> BoardProtocol<W> {
    /// Returns the state of local rank `me` on a fresh board.
    ///
    /// # Panics
    /// If the number of lines is not a power of two, or above [`MOST_LINES`].
    pub fn new(words: W, me: usize) -> Self {
        let lines = words.lines();
        assert!(lines.is_power_of_two() && lines <= MOST_LINES, "{lines} lines");
        Self {
            words,
            me,
            mask: lines as u64 - 1,
            credits: [const { Cell::new(0) }; MAX_RANKS],
            lines: vec![Cell::default(); lines].into(),
            short: vec![Cell::default(); SHORT_SLOTS].into(),
            small: std::array::from_fn(|_| Cell::default()),
            chunk: std::array::from_fn(|_| Cell::default()),
        }
    }

    #[inline(always)]
    pub(super) fn check_peer(&self, peer: usize) {
        let ranks = self.words.ranks();
        assert!(peer < ranks, "local rank {peer} is not on a board of {ranks} ranks");
    }

    /// Returns true if the slots of `out` are free: every reader has consumed their contents.
    #[inline(always)]
    pub fn writable(&self, out: Publication) -> bool {
        self.free(self.own_line(out.position))
            && self.data_slot(out).is_none_or(|slot| self.free(slot))
    }

    /// Returns the readers that have not consumed the last contents of the slots of `out`. These
    /// are the ranks that the writer waits for while the slots are not
    /// [`writable`](Self::writable).
    pub fn holders(&self, out: Publication) -> u64 {
        let slots = [Some(self.own_line(out.position)), self.data_slot(out)];
        let states = slots.into_iter().flatten().map(Cell::get);
        states.fold(0, |all, state| all | self.late(state.audience, state.end))
    }

    /// Returns those of `readers`, one bit each, that have not consumed the publications of this rank
    /// below `end`.
    pub fn late(&self, readers: u64, end: u64) -> u64 {
        let each = (0..MAX_RANKS as u64).map(|reader| readers & 1 << reader);
        each.filter(|reader| self.unfinished(*reader, end) != 0).sum()
    }

    /// Makes `out` readable. Its payload must be in place.
    #[inline(always)]
    pub fn commit(&self, out: Publication) {
        let state = SlotState { audience: out.audience, end: out.position + 1 };
        self.words.fingerprint(self.me, self.line(out.position)).store(out.fingerprint);
        if out.class != SlotClass::Tiny {
            self.words.slot(self.me, self.line(out.position)).store(out.slot());
        }
        self.words.sequence(self.me, self.line(out.position)).release(out.position + 1);
        self.own_line(out.position).set(state);
        if let Some(slot) = self.data_slot(out) {
            slot.set(state);
        }
    }

    /// Returns true once the publication has arrived.
    ///
    /// # Errors
    /// [`Mismatch`] if its line holds something else.
    ///
    /// # Panics
    /// If `from.peer` is not on the board.
    #[inline(always)]
    pub fn readable(&self, from: ExpectedPublication) -> Result<bool, Mismatch> {
        self.check_peer(from.peer);
        let sequence = self.words.sequence(from.peer, self.line(from.position)).acquire();
        if sequence <= from.position {
            return Ok(false);
        }
        let theirs = self.words.fingerprint(from.peer, self.line(from.position)).relaxed();
        // A later publication in this line means that its audience did not contain this rank.
        if sequence != from.position + 1 || theirs != from.fingerprint {
            return Err(Mismatch { peer: from.peer, theirs });
        }
        Ok(true)
    }

    /// Returns the slot in which the peer stored the payload of a publication that is
    /// [`readable`](Self::readable), and that is not in its line.
    #[inline(always)]
    pub fn slot_of(&self, from: ExpectedPublication) -> u64 {
        self.words.slot(from.peer, self.line(from.position)).relaxed()
    }

    /// Returns the fingerprint in the line of `position` of `peer`, if the line holds that
    /// publication or a later one. A slow wait reads it to learn which call the peer is in.
    ///
    /// # Panics
    /// If `peer` is not on the board.
    pub fn peek_fingerprint(&self, peer: usize, position: u64) -> Option<u64> {
        self.check_peer(peer);
        let sequence = self.words.sequence(peer, self.line(position)).acquire();
        (sequence > position).then(|| self.words.fingerprint(peer, self.line(position)).relaxed())
    }

    /// Acknowledges to `peer` that this rank has consumed all of its publications below `position`.
    ///
    /// # Panics
    /// If `peer` is not on the board.
    #[inline(always)]
    pub fn consume(&self, peer: usize, position: u64) {
        self.check_peer(peer);
        self.words.consumed(self.me, peer).release(position);
    }

    /// Returns true once all of `readers`, one bit each, have consumed the publications of this rank
    /// below `end`.
    pub fn is_consumed(&self, readers: u64, end: u64) -> bool {
        self.unfinished(readers, end) == 0
    }

    /// Records that `peer` has consumed the publications of this rank below `position`. Reads no
    /// counter: the proof is a later publication of the peer.
    #[inline(always)]
    pub fn credit(&self, peer: usize, position: u64) {
        if self.credits[peer].get() < position {
            self.credits[peer].set(position);
        }
    }

    /// The line of `position`.
    #[inline(always)]
    pub(super) fn line(&self, position: u64) -> usize {
        (position & self.mask) as usize
    }

    #[inline(always)]
    fn own_line(&self, position: u64) -> &Cell<SlotState> {
        &self.lines[self.line(position)]
    }

    #[inline(always)]
    fn data_slot(&self, out: Publication) -> Option<&Cell<SlotState>> {
        let slot = out.slot() as usize;
        match out.class {
            SlotClass::Tiny => None,
            SlotClass::Short => Some(&self.short[slot % SHORT_SLOTS]),
            SlotClass::Small => Some(&self.small[slot % SMALL_SLOTS]),
            SlotClass::Chunk => Some(&self.chunk[slot % MOST_CHUNK_SLOTS]),
        }
    }

    #[inline(always)]
    fn free(&self, slot: &Cell<SlotState>) -> bool {
        let SlotState { audience, end } = slot.get();
        let unfinished = self.unfinished(audience, end);
        if unfinished != 0 {
            slot.set(SlotState { audience: unfinished, end });
        }
        unfinished == 0
    }

    /// Those of `readers`, from the first that has not consumed all publications below `end` on.
    #[inline(always)]
    fn unfinished(&self, mut readers: u64, end: u64) -> u64 {
        while readers != 0 {
            let reader = readers.trailing_zeros() as usize;
            if self.credits[reader].get() < end {
                // The counter may be lower than the credit: not every consumption is counted.
                self.credit(reader, self.words.consumed(reader, self.me).acquire());
                if self.credits[reader].get() < end {
                    break;
                }
            }
            readers &= readers - 1;
        }
        readers
    }
}
