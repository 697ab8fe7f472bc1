//! Plans of calls that were chosen before.
//!
//! A program that calls with ever new lengths would have each of them priced, which takes up to sixty
//! times as long as the call. So lengths are rounded before they are priced, to one of eight in each
//! doubling, and what was chosen is kept. It is a function of what is equal on all ranks, so a rank that
//! has forgotten it finds the same again.

use crate::algorithms::Algorithm;
use crate::schedule::collective::Collective;
use crate::tuner::{Plan, PlanOverride, ReachingChoice};
use lru::LruCache;
use std::cell::RefCell;
use std::hash::Hash;
use std::num::NonZeroUsize;

/// Plans that are kept at most.
const MOST: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// What was chosen for calls of a group. Forgotten when the costs change.
#[derive(Debug, Default)]
pub(in crate::engine) struct ChosenPlans {
    /// By collective, bytes and what was asked for.
    pub(in crate::engine) plans: Memo<(Collective, usize, Option<PlanOverride>), Plan>,
    /// For copies of private memory.
    pub(in crate::engine) copied: Memo<CallKind, ReachingChoice>,
}

/// What calls are of one kind for copies of private memory: collective, bytes as they are priced, whether
/// each rank has a count of its own, and the algorithm that was asked for. Equal on all ranks.
pub(in crate::engine) type CallKind = (Collective, usize, bool, Option<Algorithm>);

impl ChosenPlans {
    pub(in crate::engine) fn clear(&self) {
        self.plans.0.borrow_mut().clear();
        self.copied.0.borrow_mut().clear();
    }
}

/// Values by what they follow from.
#[derive(Debug)]
pub(in crate::engine) struct Memo<K: Eq + Hash, V>(RefCell<LruCache<K, V>>);

impl<K: Eq + Hash, V> Default for Memo<K, V> {
    fn default() -> Self {
        Self(RefCell::new(LruCache::new(MOST)))
    }
}

impl<K: Eq + Hash, V: Clone> Memo<K, V> {
    /// The value of `key`, which `make` makes if it is not kept.
    pub(in crate::engine) fn get<E>(
        &self,
        key: K,
        make: impl FnOnce() -> Result<V, E>,
    ) -> Result<V, E> {
        let mut kept = self.0.borrow_mut();
        kept.try_get_or_insert(key, make).cloned()
    }
}

/// The number of bytes by which a call of `bytes` is priced: the next that is one of eight in each
/// doubling.
pub(in crate::engine) fn priced_bytes(bytes: usize) -> usize {
    let step = 1usize << bytes.checked_ilog2().unwrap_or(0).saturating_sub(3);
    bytes.checked_next_multiple_of(step).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_rounded_by_less_than_an_eighth() {
        let mut all: Vec<usize> = (0..20_000).map(priced_bytes).collect();
        for (bytes, priced) in all.iter().enumerate() {
            assert!(*priced >= bytes && (*priced - bytes) * 8 <= bytes, "{bytes}: {priced}");
        }
        all.dedup();
        assert!(all.len() < 8 * 15, "{} lengths", all.len());
        assert_eq!(
            [0, 1, 15, 16, 17, 100, 1 << 20].map(priced_bytes),
            [0, 1, 15, 16, 18, 104, 1 << 20]
        );
        assert_eq!(priced_bytes(usize::MAX), usize::MAX);
    }

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
