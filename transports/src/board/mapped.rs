//! The layout of a board in shared memory, and its words.

use super::{BoardWords, CHUNK, SHORT, SHORT_SLOTS, SMALL, SMALL_SLOTS, lines as lines_of};
use crate::bell::Bell;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Bytes from one line to the next: two cache lines, because CPUs prefetch the adjacent cache line.
pub(super) const LINE_STRIDE: usize = 128;
/// Offset of the payload in a line, after sequence and fingerprint.
pub(super) const PAYLOAD: usize = 16;
pub(super) const PAGE: usize = 4096;
/// Bytes of the short slots of one rank, and of its small slots.
pub(super) const SHORT_BYTES: usize = SHORT_SLOTS * SHORT;
pub(super) const SMALL_BYTES: usize = SMALL_SLOTS * SMALL;

/// Offsets and sizes, in bytes, of the parts of a board. All processes of a board use the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    pub(super) ranks: usize,
    /// Offset of the words with the bits of the present ranks.
    pub(super) occupied: usize,
    /// Offset of the set of ranks that sleep.
    pub(super) sleepers: usize,
    /// Offset of the bells, one a rank.
    pub(super) bells: usize,
    /// Bytes of one row of the table of consumed positions, which lies at offset 0.
    pub(super) row: usize,
    /// Offset of the lines.
    pub(super) lines: usize,
    /// Offset of the data slots.
    pub(super) data: usize,
    /// Bytes of the data slots of one rank.
    pub(super) stride: usize,
    /// Chunk slots of each rank.
    pub(super) chunk_slots: usize,
}

impl Geometry {
    pub(super) const fn new(ranks: usize, chunk_slots: usize) -> Self {
        let row = (ranks * size_of::<u64>()).next_multiple_of(LINE_STRIDE);
        let occupied = ranks * row;
        let sleepers = occupied + row;
        let bells = sleepers + LINE_STRIDE;
        let lines = (bells + ranks * LINE_STRIDE).next_multiple_of(PAGE);
        let data = (lines + lines_of(ranks) * ranks * LINE_STRIDE).next_multiple_of(PAGE);
        // Not a multiple of a page, so that equal slots of different ranks use different cache
        // sets.
        let stride = SHORT_BYTES + SMALL_BYTES + chunk_slots * CHUNK + 576;
        Self { ranks, occupied, sleepers, bells, row, lines, data, stride, chunk_slots }
    }

    /// Offset of a line of `rank`.
    #[inline(always)]
    pub(super) fn line(&self, rank: usize, line: usize) -> usize {
        debug_assert!(rank < self.ranks && line < lines_of(self.ranks));
        self.lines + (line * self.ranks + rank) * LINE_STRIDE
    }

    /// Offset of the data slots of `rank`.
    pub(super) const fn slots(self, rank: usize) -> usize {
        self.data + rank * self.stride
    }

    pub(super) const fn bytes(self) -> usize {
        self.data + self.ranks * self.stride
    }
}

/// The words of a board in shared memory.
#[derive(Debug)]
pub struct MappedWords {
    pub(super) start: NonNull<u8>,
    pub(super) geometry: Geometry,
}

impl MappedWords {
    #[inline(always)]
    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(size_of::<u64>()) && at < self.geometry.bytes());
        // SAFETY: `Board::new` checked that the memory covers the geometry, which places words at multiples
        // of eight. It lives as long as `self`.
        unsafe { self.start.add(at).cast::<AtomicU64>().as_ref() }
    }

    /// The ranks that sleep, one bit each.
    #[inline(always)]
    pub(super) fn sleepers(&self) -> &AtomicU64 {
        self.word(self.geometry.sleepers)
    }

    /// The word that changes when `rank` is woken.
    pub(super) fn bell(&self, rank: usize) -> &Bell {
        debug_assert!(rank < self.geometry.ranks);
        // SAFETY: the geometry has a line for this for each rank, in memory that lives as long as `self` and
        // begins zeroed. A bell is an atomic integer in a line of 128 bytes.
        unsafe { self.start.add(self.geometry.bells + rank * LINE_STRIDE).cast().as_ref() }
    }

    /// Not zero once there is a board of `rank`.
    pub(super) fn occupied(&self, rank: usize) -> &AtomicU64 {
        debug_assert!(rank < self.geometry.ranks);
        self.word(self.geometry.occupied + rank * size_of::<u64>())
    }
}

impl BoardWords for MappedWords {
    type Word = AtomicU64;

    #[inline(always)]
    fn ranks(&self) -> usize {
        self.geometry.ranks
    }

    fn lines(&self) -> usize {
        lines_of(self.geometry.ranks)
    }

    #[inline(always)]
    fn sequence(&self, rank: usize, line: usize) -> &AtomicU64 {
        self.word(self.geometry.line(rank, line))
    }

    #[inline(always)]
    fn fingerprint(&self, rank: usize, line: usize) -> &AtomicU64 {
        self.word(self.geometry.line(rank, line) + 8)
    }

    /// Where a payload begins that is in the line.
    #[inline(always)]
    fn slot(&self, rank: usize, line: usize) -> &AtomicU64 {
        self.word(self.geometry.line(rank, line) + PAYLOAD)
    }

    #[inline(always)]
    fn consumed(&self, reader: usize, writer: usize) -> &AtomicU64 {
        debug_assert!(reader < self.geometry.ranks && writer < self.geometry.ranks);
        self.word(reader * self.geometry.row + writer * size_of::<u64>())
    }
}
