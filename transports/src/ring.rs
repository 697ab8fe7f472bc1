//! A ring of bytes with one writer and one reader, in whatever memory both can reach.
//!
//! Nobody locks: the writer alone moves `written`, the reader alone moves `taken`, and each
//! publishes its own only after it is done with the bytes. Long copies are published piece by
//! piece, so that the reader works on one piece while the writer works on the next.

use crate::stream::Fault;
use maypole_kernels::{View, ViewMut};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are moved between two publications.
const PIECE: usize = 16 << 10;

/// What writer and reader tell one another. Fresh words are all zero; any value of them is safe.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Words {
    /// Bytes ever written. This and the next only grow; byte `n` lies at `n % capacity`.
    written: Line,
    /// Bytes ever taken.
    taken: Line,
    /// Not zero: the writer writes no more.
    ended: Line,
    /// Not zero: the reader reads no more.
    abandoned: Line,
}

/// Keeps what the writer changes apart from what the reader changes.
#[derive(Debug, Default)]
#[repr(C, align(128))]
struct Line(AtomicU64);

/// One direction of a stream. Cheap to make; it lives in its words and its bytes.
#[derive(Clone, Copy)]
pub(crate) struct Ring<'a> {
    pub(crate) words: &'a Words,
    /// At least one.
    pub(crate) bytes: ViewMut<'a>,
}

impl<'a> Ring<'a> {
    /// The writer writes no more.
    pub(crate) fn end(self) {
        self.words.ended.0.store(1, Ordering::Release);
    }

    /// The reader reads no more.
    pub(crate) fn abandon(self) {
        self.words.abandoned.0.store(1, Ordering::Release);
    }

    /// Takes in as much of `parts`, in order, as there is room for.
    pub(crate) fn put(self, parts: [View<'_>; 2]) -> Result<usize, Fault> {
        let Words { written, taken, ended, abandoned } = self.words;
        if ended.0.load(Ordering::Acquire) != 0 || abandoned.0.load(Ordering::Acquire) != 0 {
            return Err(Fault::Closed);
        }
        let start = written.0.load(Ordering::Relaxed);
        let mut at = start;
        let end = taken.0.load(Ordering::Acquire).wrapping_add(self.bytes.len() as u64);
        for part in parts {
            let mut put = 0;
            while put < part.len() && at < end {
                let room = self.stretch(at, end, part.len() - put);
                room.copy_from(part.slice(put, room.len()));
                put += room.len();
                at += room.len() as u64;
                written.0.store(at, Ordering::Release);
            }
        }
        Ok((at - start) as usize)
    }

    /// Gives out as much as there is and fits into `parts`, in order.
    pub(crate) fn take(self, parts: [ViewMut<'_>; 2]) -> Result<usize, Fault> {
        let Words { written, taken: taken_word, ended, abandoned } = self.words;
        // Asked before `written` is read: all that was written before the end is seen together with
        // the end.
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
                let there = self.stretch(at, end, part.len() - taken);
                part.slice(taken, there.len()).copy_from(there.as_view());
                taken += there.len();
                at += there.len() as u64;
                taken_word.0.store(at, Ordering::Release);
            }
        }
        Ok((at - start) as usize)
    }

    /// The longest piece from byte `at` on that lies together, ends by `end` and has at most `most`
    /// bytes.
    fn stretch(self, at: u64, end: u64, most: usize) -> ViewMut<'a> {
        let place = (at % self.bytes.len() as u64) as usize;
        let len = most.min(PIECE).min((end - at) as usize).min(self.bytes.len() - place);
        self.bytes.slice(place, len)
    }
}
