//! Plans of calls that were chosen before.
//!
//! A program that calls with ever new lengths would have each of them priced, which takes up to sixty
//! times as long as the call. So lengths are rounded before they are priced
//! ([`priced_bytes`](crate::tuner::priced_bytes)), and the choice is cached. It is a function of
//! values that are equal on all ranks, so a rank that has evicted it computes the same again.

use crate::algorithms::Algorithm;
use crate::schedule::collective::Collective;
use crate::tuner::{Plan, PlanOverride, ReachingChoice};
use lru::LruCache;
use std::cell::RefCell;
use std::hash::Hash;
use std::num::NonZeroUsize;

const MOST: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// The choices for calls of a group. Cleared when the costs change.
#[derive(Debug, Default)]
pub(in crate::engine) struct ChosenPlans {
    /// By collective, bytes and requested algorithm.
    pub(in crate::engine) plans: Memo<(Collective, usize, Option<PlanOverride>), Plan>,
    /// For copies of private memory.
    pub(in crate::engine) copied: Memo<CallKind, ReachingChoice>,
}

/// The kind of a call for copies of private memory: collective, bytes as they are priced, whether
/// each rank has a count of its own, and the requested algorithm. Equal on all ranks.
pub(in crate::engine) type CallKind = (Collective, usize, bool, Option<Algorithm>);

impl ChosenPlans {
    pub(in crate::engine) fn clear(&self) {
        self.plans.0.borrow_mut().clear();
        self.copied.0.borrow_mut().clear();
    }
}

/// A cache of choices.
#[derive(Debug)]
pub(in crate::engine) struct Memo<K: Eq + Hash, V>(RefCell<LruCache<K, V>>);

impl<K: Eq + Hash, V> Default for Memo<K, V> {
    fn default() -> Self {
        Self(RefCell::new(LruCache::new(MOST)))
    }
}

impl<K: Eq + Hash, V: Clone> Memo<K, V> {
    /// The value of `key`, which `make` makes if it is not cached.
    pub(in crate::engine) fn get<E>(
        &self,
        key: K,
        make: impl FnOnce() -> Result<V, E>,
    ) -> Result<V, E> {
        let mut kept = self.0.borrow_mut();
        kept.try_get_or_insert(key, make).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_not_made_again() {
        let memo = Memo::<usize, usize>::default();
        assert_eq!(memo.get(7, || Err::<usize, _>("no")), Err("no"));
        assert_eq!(memo.get(7, || Ok::<_, &str>(1)), Ok(1));
        assert_eq!(memo.get(7, || Ok::<_, &str>(2)), Ok(1));
        (0..2 * MOST.get())
            .for_each(|key| assert_eq!(memo.get(key + 100, || Ok::<_, ()>(key)), Ok(key)));
        assert!(memo.0.borrow().len() <= MOST.get());
    }
}
