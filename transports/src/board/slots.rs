//! The slots of a board: number and length of each class.

/// The most lines of a rank.
pub const MOST_LINES: usize = 256;
/// The most bytes of a payload that is part of its line.
pub const TINY: usize = 48;
/// Bytes of a short slot.
pub const SHORT: usize = 1 << 10;
/// Short slots of each rank. There are many, because where ranks outnumber cores, a rank that sends
/// to many others runs several calls ahead of them.
pub const SHORT_SLOTS: usize = 64;
/// Bytes of a small slot.
pub const SMALL: usize = 16 << 10;
/// Small slots of each rank.
pub const SMALL_SLOTS: usize = 8;
/// Bytes of a chunk slot. Several fit into a core's second-level cache.
pub const CHUNK: usize = 32 << 10;
/// The most chunk slots of a rank, and as many as it has on a deep board: 2 MiB, which is more than the
/// second-level cache of most cores holds. So a slot that is filled again is no longer in the
/// caches of its readers, which would have to be invalidated.
pub const MOST_CHUNK_SLOTS: usize = 64;

/// Returns the lines of each of `ranks` ranks, a power of two. A rank is never more publications
/// ahead of its slowest reader. In a call it may publish once for each other rank, so the more ranks
/// there are, the more lines it needs to be some calls ahead. Two ranks have few, which stay in a
/// core's first-level cache.
pub const fn lines(ranks: usize) -> usize {
    let lines = (32 * ranks).next_power_of_two();
    if lines < 64 {
        64
    } else if lines > MOST_LINES {
        MOST_LINES
    } else {
        lines
    }
}

/// The kind of slot that holds a payload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SlotClass {
    /// In the line itself: at most [`TINY`] bytes.
    Tiny,
    /// In a short slot: at most [`SHORT`] bytes.
    Short,
    /// In a small slot: at most [`SMALL`] bytes.
    Small,
    /// In a chunk slot: at most [`CHUNK`] bytes.
    Chunk,
}

impl SlotClass {
    /// Returns the smallest class that holds `bytes`, or `None` above [`CHUNK`].
    pub fn holding(bytes: usize) -> Option<Self> {
        let classes = [Self::Tiny, Self::Short, Self::Small, Self::Chunk];
        classes.into_iter().find(|class| bytes <= class.bytes())
    }

    /// Returns the number of slots of this class that each of `ranks` has: a power of two. On a deep
    /// board there are more chunk slots.
    pub const fn slots(self, ranks: usize) -> usize {
        match self {
            Self::Tiny => lines(ranks),
            Self::Short => SHORT_SLOTS,
            Self::Small => SMALL_SLOTS,
            Self::Chunk => chunk_slots(ranks),
        }
    }

    /// Returns the bytes of a slot.
    #[inline]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Tiny => TINY,
            Self::Short => SHORT,
            Self::Small => SMALL,
            Self::Chunk => CHUNK,
        }
    }
}

pub(super) const fn chunk_slots(ranks: usize) -> usize {
    let slots = (2 * ranks).next_power_of_two();
    if slots > MOST_CHUNK_SLOTS { MOST_CHUNK_SLOTS } else { slots }
}
