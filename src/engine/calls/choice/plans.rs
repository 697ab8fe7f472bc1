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
use std::num::NonZeroUsize;

const MOST: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// The choices for calls of a group. Cleared when the costs change.
#[derive(Debug)]
pub(crate) struct ChosenPlans {
    pub(super) plans: RefCell<LruCache<PlanKind, Plan>>,
    /// For copies of private memory.
    pub(super) copied: RefCell<LruCache<CallKind, ReachingChoice>>,
}

/// The kind of a call for slots: collective, bytes as they are priced, and the requested algorithm.
type PlanKind = (Collective, usize, Option<PlanOverride>);

/// The kind of a call for copies of private memory: collective, bytes as they are priced, whether
/// each rank has a count of its own, and the requested algorithm. Equal on all ranks.
pub(crate) type CallKind = (Collective, usize, bool, Option<Algorithm>);

impl ChosenPlans {
    pub(crate) fn clear(&self) {
        self.plans.borrow_mut().clear();
        self.copied.borrow_mut().clear();
    }
}

impl Default for ChosenPlans {
    fn default() -> Self {
        let plans = RefCell::new(LruCache::new(MOST));
        Self { plans, copied: RefCell::new(LruCache::new(MOST)) }
    }
}
