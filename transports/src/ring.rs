//! A ring of bytes with one writer and one reader, in memory that both can reach.
//!
//! The ring has no lock. The writer alone changes `written`, the reader alone changes `taken`, and
//! each stores its counter only after it has copied the bytes. A long copy is published piece by
//! piece, so that the reader copies one piece while the writer copies the next.

use crate::stream::Fault;
use maypole_kernels::{View, ViewMut};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes copied between two stores of a counter.
const PIECE: usize = 16 << 10;

/// The counters and flags of a ring. All are zero at first; any value of them is safe.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct RingCounters {
    /// Bytes written since the ring was made. Byte `n` lies at `n % capacity`.
    written: PaddedCounter,
    /// Bytes taken since the ring was made.
    taken: PaddedCounter,
    /// Nonzero once the writer has ended the stream.
    ended: PaddedCounter,
    /// Nonzero once the reader has stopped reading.
    abandoned: PaddedCounter,
}

/// An atomic alone on its cache lines, so that writer and reader do not share one. The alignment is
/// fixed, because two processes that map the ring must agree on the layout.
#[derive(Debug, Default)]
#[repr(C, align(128))]
struct PaddedCounter(AtomicU64);

/// One direction of a stream: a view of its counters and its bytes, which hold all of its state.
#[derive(Clone, Copy)]
pub(crate) struct ByteRing<'a> {
    pub(crate) counters: &'a RingCounters,
    /// At least one byte.
    pub(crate) bytes: ViewMut<'a>,
}

impl<'a> ByteRing<'a> {
    /// Ends the stream on the writer's side.
    pub(crate) fn end(self) {
        self.counters.ended.0.store(1, Ordering::Release);
    }

    /// Ends the stream on the reader's side.
    pub(crate) fn abandon(self) {
        self.counters.abandoned.0.store(1, Ordering::Release);
    }

    /// True if there are bytes to take, or the stream has ended.
    pub(crate) fn has_bytes(self) -> bool {
        let RingCounters { written, taken, ended, .. } = self.counters;
        let ended = ended.0.load(Ordering::Acquire) != 0;
        ended || written.0.load(Ordering::Acquire) != taken.0.load(Ordering::Relaxed)
    }

    /// True if there is room for bytes, or the reader is gone.
    pub(crate) fn has_room(self) -> bool {
        let RingCounters { written, taken, abandoned, .. } = self.counters;
        let full = taken.0.load(Ordering::Acquire).wrapping_add(self.bytes.len() as u64);
        abandoned.0.load(Ordering::Acquire) != 0 || written.0.load(Ordering::Relaxed) != full
    }

    /// Copies bytes of `parts`, in order, until the ring is full. Returns the number of bytes.
    pub(crate) fn put(self, parts: [View<'_>; 2]) -> Result<usize, Fault> {
        let RingCounters { written, taken, ended, abandoned } = self.counters;
        if ended.0.load(Ordering::Acquire) != 0 || abandoned.0.load(Ordering::Acquire) != 0 {
            return Err(Fault::Closed);
        }
        let start = written.0.load(Ordering::Relaxed);
        let mut at = start;
        let end = taken.0.load(Ordering::Acquire).wrapping_add(self.bytes.len() as u64);
        for part in parts {
            let mut put = 0;
            while put < part.len() && at < end {
                let room = self.piece(at, end, part.len() - put);
                room.copy_from(part.slice(put, room.len()));
                put += room.len();
                at += room.len() as u64;
                written.0.store(at, Ordering::Release);
            }
        }
        Ok((at - start) as usize)
    }

    /// Fills `parts`, in order, with as many bytes as there are. Returns their number.
    pub(crate) fn take(self, parts: [ViewMut<'_>; 2]) -> Result<usize, Fault> {
        let RingCounters { written, taken: taken_word, ended, abandoned } = self.counters;
        // Loaded before `written`: a reader that sees the end sees all bytes written before it.
        let ended = ended.0.load(Ordering::Acquire) != 0;
        let start = taken_word.0.load(Ordering::Relaxed);
        let end = written.0.load(Ordering::Acquire);
        if abandoned.0.load(Ordering::Relaxed) != 0 || (ended && start == end) {
            return Err(Fault::Closed);
        }
        let mut at = start;
        for part in parts {
            let mut taken = 0;
            while taken < part.len() && at < end {
                let there = self.piece(at, end, part.len() - taken);
                part.slice(taken, there.len()).copy_from(there.as_view());
                taken += there.len();
                at += there.len() as u64;
                taken_word.0.store(at, Ordering::Release);
            }
        }
        Ok((at - start) as usize)
    }

    /// Returns the longest contiguous piece from byte `at` on that ends by `end` and has at most
    /// `most` bytes.
    fn piece(self, at: u64, end: u64, most: usize) -> ViewMut<'a> {
        let place = (at % self.bytes.len() as u64) as usize;
        let len = most.min(PIECE).min((end - at) as usize).min(self.bytes.len() - place);
        self.bytes.slice(place, len)
    }
}
