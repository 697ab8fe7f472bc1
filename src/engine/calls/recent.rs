//! A map whose entries have a size. It evicts the least recently used entries, to keep the sum of
//! the sizes within a budget.

use lru::LruCache;
use std::hash::Hash;

/// Values by key, ordered by their last use.
#[derive(Debug)]
pub(crate) struct RecentlyUsed<K: Eq + Hash, V> {
    /// With the size of each.
    entries: LruCache<K, (V, usize)>,
    /// The sum over all entries.
    bytes: usize,
}

impl<K: Eq + Hash, V> Default for RecentlyUsed<K, V> {
    fn default() -> Self {
        Self { entries: LruCache::unbounded(), bytes: 0 }
    }
}

impl<K: Eq + Hash, V> RecentlyUsed<K, V> {
    /// The value of `key`, which counts as used now.
    pub(crate) fn get(&mut self, key: &K) -> Option<&V> {
        Some(&self.entries.get(key)?.0)
    }

    /// Changes the value of `key`, if there is one. Does not count as a use.
    pub(crate) fn replace(&mut self, key: &K, value: V) {
        if let Some(entry) = self.entries.peek_mut(key) {
            entry.0 = value;
        }
    }

    /// Adds a value of `bytes` bytes, which counts as used now.
    pub(crate) fn insert(&mut self, key: K, value: V, bytes: usize) {
        self.bytes += bytes;
        let before = self.entries.put(key, (value, bytes));
        self.bytes -= before.map_or(0, |before| before.1);
    }

    /// Takes out the least recently used value, if there is one and `more` bytes do not fit into
    /// `budget` together with all values.
    pub(crate) fn evict(&mut self, more: usize, budget: usize) -> Option<V> {
        if self.bytes.saturating_add(more) <= budget {
            return None;
        }
        let (_, (value, bytes)) = self.entries.pop_lru()?;
        self.bytes -= bytes;
        Some(value)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_value_that_was_not_used_for_the_longest_time_goes_first() {
        let mut recent = RecentlyUsed::default();
        for key in ["a", "b", "c"] {
            recent.insert(key, key, 10);
        }
        assert_eq!(recent.get(&"a"), Some(&"a"));
        recent.replace(&"b", "B");
        assert_eq!(recent.evict(0, 30), None);
        assert_eq!(recent.evict(1, 30), Some("B"), "a change is no use");
        assert_eq!(recent.evict(11, 30), Some("c"));
        assert_eq!((recent.len(), recent.bytes()), (1, 10));
        assert_eq!(recent.evict(usize::MAX, 30), Some("a"));
        assert_eq!(recent.evict(usize::MAX, 30), None, "nothing is left to give up");
    }

    proptest! {
        #[test]
        fn the_sum_is_that_of_the_entries(
            inserts in prop::collection::vec((0u8..8, 0usize..50, 0usize..120), 0..60),
        ) {
            let mut recent = RecentlyUsed::default();
            for (key, bytes, budget) in inserts {
                while recent.evict(bytes, budget).is_some() {}
                recent.insert(key, key, bytes);
                let sum: usize = recent.entries.iter().map(|(_, entry)| entry.1).sum();
                prop_assert_eq!(recent.bytes(), sum);
                prop_assert!(sum <= budget || recent.len() == 1);
            }
        }
    }
}
