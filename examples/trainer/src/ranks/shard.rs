//! One rank's part of something that is divided evenly.

use std::ops::Range;

/// One of several parts whose sizes differ by at most one element.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Shard {
    /// The number of the part, from 0.
    pub index: usize,
    /// The number of parts.
    pub of: usize,
}

impl Shard {
    /// The whole: part 0 of 1.
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// Returns the indices of this part, of `count` elements in all. Parts are in order, and their
    /// sizes differ by at most one.
    pub fn range(self, count: usize) -> Range<usize> {
        self.index * count / self.of..(self.index + 1) * count / self.of
    }
}
