//! The used and free parts of an arena.

use std::collections::BTreeMap;

/// The free ranges of an arena, by offset. Neighbours are joined, so it holds at most one range more
/// than there are buffers.
#[derive(Debug)]
pub(super) struct FreeRanges {
    /// Offset and bytes.
    free: BTreeMap<usize, usize>,
    /// Bytes from here on were never in use, and are zero.
    fresh: usize,
}

/// A range that was taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct TakenRange {
    pub(super) offset: usize,
    /// Bytes from the start of the range that were in use before.
    pub(super) used: usize,
}

impl FreeRanges {
    /// All of `bytes` bytes.
    pub(super) fn new(bytes: usize) -> Self {
        let free = (bytes > 0).then_some((0, bytes));
        Self { free: free.into_iter().collect(), fresh: 0 }
    }

    /// Takes `bytes` bytes, more than zero, from the first range that has as many; `None` if there
    /// is none.
    pub(super) fn take(&mut self, bytes: usize) -> Option<TakenRange> {
        let (&offset, &len) = self.free.iter().find(|(_, len)| **len >= bytes)?;
        self.free.remove(&offset);
        if len > bytes {
            self.free.insert(offset + bytes, len - bytes);
        }
        let used = self.fresh.saturating_sub(offset).min(bytes);
        self.fresh = self.fresh.max(offset + bytes);
        Some(TakenRange { offset, used })
    }

    /// Gives a range back that was taken.
    pub(super) fn give_back(&mut self, offset: usize, bytes: usize) {
        let mut start = offset;
        let mut len = bytes;
        if let Some((&before, &its)) = self.free.range(..offset).next_back()
            && before + its == offset
        {
            self.free.remove(&before);
            start = before;
            len += its;
        }
        if let Some(its) = self.free.remove(&(offset + bytes)) {
            len += its;
        }
        self.free.insert(start, len);
    }

    /// Bytes that are free, and those of the longest free range.
    pub(super) fn left(&self) -> (usize, usize) {
        (self.free.values().sum(), self.free.values().max().copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_never_overlap_and_all_come_back(
            steps in prop::collection::vec((any::<bool>(), 1..9usize), 1..60),
        ) {
            let mut ranges = FreeRanges::new(32);
            let mut taken: Vec<(usize, usize)> = Vec::new();
            let mut used = [false; 32];
            for (gives_back, some) in steps {
                if gives_back && !taken.is_empty() {
                    let (offset, len) = taken.swap_remove(some % taken.len());
                    ranges.give_back(offset, len);
                } else if let Some(range) = ranges.take(some) {
                    let end = range.offset + some;
                    prop_assert!(end <= 32);
                    let start = range.offset;
                    let is_apart = |(at, len): &(usize, usize)| *at >= end || at + len <= start;
                    prop_assert!(taken.iter().all(is_apart), "{:?} {:?}", taken, range);
                    let fresh = &used[range.offset + range.used..end];
                    prop_assert!(fresh.iter().all(|used| !used));
                    used[range.offset..end].fill(true);
                    taken.push((range.offset, some));
                } else {
                    prop_assert!(ranges.left().1 < some);
                }
                let held: usize = taken.iter().map(|(_, len)| len).sum();
                prop_assert_eq!(ranges.left().0 + held, 32);
            }
            taken.iter().for_each(|(offset, len)| ranges.give_back(*offset, *len));
            prop_assert_eq!(ranges.left(), (32, 32));
        }
    }
}
