//! One rank's part of something that is divided evenly.

use std::ops::Range;

/// One of some equal parts, or as equal as they can be.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Shard {
    /// The number of the part, from 0.
    pub index: usize,
    /// The number of parts.
    pub of: usize,
}

impl Shard {
    /// All of it.
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// Which of `count` things are in this part. Parts are in order, and their sizes differ by at
    /// most one.
    pub fn range(self, count: usize) -> Range<usize> {
        self.index * count / self.of..(self.index + 1) * count / self.of
    }
}
