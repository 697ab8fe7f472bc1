//! The calls of a communicator that have programs.
//!
//! Calls keep their programs, so that a call that is repeated only runs. A program that calls with
//! ever new lengths would keep ever more of them, so programs have a budget in bytes: before one is
//! added, the least recently used ones are dropped until it fits. Each rank does this by itself.
//! Dropping a program is local, like placement: a program that is made again is the same.

use crate::engine::calls::call::{CollectiveCall, ReadyCall};
use crate::engine::calls::choice::ChosenPlans;
use crate::engine::calls::counts::NamedCounts;
use crate::engine::calls::prepared::{PreparedCall, ProgramKey};
use crate::engine::calls::recent::RecentlyUsed;
use crate::engine::calls::report::{Counters, ProgramCache};
use crate::engine::calls::workspace::{Workspace, WorkspaceNeed};
use crate::execute::Buffers;
use crate::tuner::PlanOverride;

/// Stands for no call.
const NONE: usize = usize::MAX;

/// All prepared calls of a communicator, and the last one.
#[derive(Debug, Default)]
pub(crate) struct PreparedCalls {
    calls: Vec<PreparedCall>,
    /// The place of each call in `calls`.
    places: RecentlyUsed<ProgramKey, usize>,
    /// The counts of the next call.
    pub(crate) counts: NamedCounts,
    pub(crate) chosen: ChosenPlans,
    workspace: Workspace,
    /// The place of the last call, or [`NONE`] if the next one requires a lookup in the cache.
    current: usize,
    /// True if the current call is neither traced, checked nor timed. Gates the fast path.
    may_be_fast: bool,
    /// The bytes and messages of calls that were dropped.
    past: Counters,
    /// Programs that were made so far, and those that were dropped to make room.
    lowered: u64,
    evicted: u64,
}

impl PreparedCalls {
    /// The place of the call of `key`, if it has a program. It counts as used now.
    pub(crate) fn find(&mut self, key: ProgramKey) -> Option<usize> {
        self.places.get(&key).copied()
    }

    /// Grows the workspace for a call with this `need`. Returns false if there is no memory for it.
    pub(crate) fn reserve(&mut self, need: WorkspaceNeed) -> bool {
        self.workspace.grow(need)
    }

    /// Adds a call, for which [`reserve`](Self::reserve) has made room, and returns its place. First
    /// drops the least recently used ones, until all take at most `budget` bytes.
    pub(crate) fn add(&mut self, call: PreparedCall, budget: usize) -> usize {
        let bytes = call.bytes();
        while let Some(oldest) = self.places.evict(bytes, budget) {
            self.remove(oldest);
        }
        let at = self.calls.len();
        self.places.insert(call.key(), at, bytes);
        self.calls.push(call);
        self.lowered += 1;
        at
    }

    /// Drops the call at `at`, which is no longer in `places`. The last call takes its place.
    fn remove(&mut self, at: usize) {
        let gone = self.calls.swap_remove(at);
        gone.count(&mut self.past);
        self.evicted += 1;
        if let Some(moved) = self.calls.get(at) {
            self.places.replace(&moved.key(), at);
        }
        self.current = match self.current {
            place if place == at => NONE,
            place if place == self.calls.len() => at,
            place => place,
        };
    }

    /// The counts of cached programs, and of those that were lowered and evicted, under a budget of
    /// `budget` bytes.
    pub(crate) fn cache(&self, budget: usize) -> ProgramCache {
        ProgramCache {
            lowered: self.lowered,
            evicted: self.evicted,
            kept: self.places.len(),
            bytes: self.places.bytes(),
            budget,
        }
    }

    /// The memory of the current call.
    ///
    /// # Panics
    /// If there is none.
    #[inline(always)]
    pub(crate) fn buffers<'a>(&'a self, ready: ReadyCall<'a>) -> Buffers<'a> {
        self.workspace.buffers(self.current().need, ready)
    }

    /// The memory of a call that stages nothing.
    pub(crate) fn unstaged<'a>(&'a self, ready: ReadyCall<'a>) -> Buffers<'a> {
        self.workspace.buffers(WorkspaceNeed::default(), ReadyCall { scaling: None, ..ready })
    }

    /// # Panics
    /// If the next call requires a lookup in the cache.
    #[inline(always)]
    pub(crate) fn current(&self) -> &PreparedCall {
        &self.calls[self.current]
    }

    /// # Panics
    /// If the next call requires a lookup in the cache.
    #[inline(always)]
    pub(crate) fn current_mut(&mut self) -> &mut PreparedCall {
        &mut self.calls[self.current]
    }

    /// True if `call` under `plan` was made last.
    #[inline(always)]
    pub(crate) fn is_current(&self, call: CollectiveCall, plan: Option<PlanOverride>) -> bool {
        self.last().is_some_and(|prepared| prepared.call == call && prepared.plan == plan)
    }

    /// True if `call` under `plan` was made last and calls are not observed. Then it may run
    /// immediately.
    #[inline(always)]
    pub(crate) fn is_fast(&self, call: CollectiveCall, plan: Option<PlanOverride>) -> bool {
        self.may_be_fast && self.is_current(call, plan)
    }

    /// The call made last, unless the next one requires a lookup in the cache.
    #[inline(always)]
    pub(crate) fn last(&self) -> Option<&PreparedCall> {
        self.calls.get(self.current)
    }

    /// Makes the call at `at` the current one, under `plan`. `is_observed`: calls are traced or checked.
    pub(crate) fn select(&mut self, at: usize, plan: Option<PlanOverride>, is_observed: bool) {
        self.current = at;
        let prepared = self.current_mut();
        prepared.plan = plan;
        let has_ways = prepared.ways.is_some() || prepared.store.is_some();
        self.may_be_fast = !is_observed && !has_ways;
    }

    /// Makes the next call take the slow path: a lookup in the cache, and a record for peers.
    pub(crate) fn forget_current(&mut self) {
        self.current = NONE;
    }

    /// Drops all prepared calls.
    pub(crate) fn clear(&mut self) {
        while let Some(oldest) = self.places.evict(usize::MAX, 0) {
            self.remove(oldest);
        }
        self.calls = Vec::new();
        self.places = RecentlyUsed::default();
        self.workspace = Workspace::default();
        self.chosen.clear();
    }

    /// The traffic of collectives.
    pub(crate) fn counters(&self) -> Counters {
        let mut counters = self.past.clone();
        self.calls.iter().for_each(|prepared| prepared.count(&mut counters));
        counters
    }
}
