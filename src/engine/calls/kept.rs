//! The calls of a communicator that have programs.
//!
//! Calls keep their programs, so that a call that is repeated only runs. A program that calls with
//! ever new lengths would keep ever more of them, so programs have a budget in bytes: before one is
//! added, the least recently used ones are dropped until it fits. Each rank does this by itself.
//! Dropping a program is local, like placement: a program that is made again is the same.

use crate::engine::calls::call::{CollectiveCall, ReadyCall};
use crate::engine::calls::choice::ChosenPlans;
use crate::engine::calls::counts::InternedCounts;
use crate::engine::calls::prepared::{PreparedCall, ProgramKey};
use crate::engine::calls::recent::RecentlyUsed;
use crate::engine::calls::report::{Counters, ProgramCache};
use crate::engine::calls::workspace::{Workspace, WorkspaceNeed};
use crate::execute::Buffers;
use crate::tuner::PlanOverride;

/// Stands for no call.
const NONE: usize = usize::MAX;

/// All prepared calls of a communicator, and the last one.
#[derive(Debug)]
pub(crate) struct PreparedCalls {
    calls: Vec<PreparedCall>,
    /// The place of each call in `calls`.
    places: RecentlyUsed<ProgramKey, usize>,
    counts: InternedCounts,
    chosen: ChosenPlans,
    workspace: Workspace,
    /// The last call, or [`NONE`] if the next one requires a lookup in the cache.
    current: usize,
    /// Equal to `current`, or [`NONE`] while calls are traced or timed. Gates the fast path.
    fast: usize,
    /// The bytes and messages of calls that were dropped.
    past: Counters,
    /// Programs that were made so far, and those that were dropped to make room.
    lowered: u64,
    evicted: u64,
}

impl PreparedCalls {
    pub(in crate::engine) fn new() -> Self {
        Self {
            calls: Vec::new(),
            places: RecentlyUsed::default(),
            counts: InternedCounts::default(),
            chosen: ChosenPlans::default(),
            workspace: Workspace::default(),
            current: NONE,
            fast: NONE,
            past: Counters::default(),
            lowered: 0,
            evicted: 0,
        }
    }

    /// The place of the call of `key`, if it has a program. It counts as used now.
    pub(in crate::engine) fn find(&mut self, key: ProgramKey) -> Option<usize> {
        self.places.get(&key).copied()
    }

    /// Grows the workspace for a call with this `need`. Returns false if there is no memory for it.
    pub(in crate::engine) fn reserve(&mut self, need: WorkspaceNeed) -> bool {
        self.workspace.grow(need)
    }

    /// Adds a call, for which [`reserve`](Self::reserve) has made room, and returns its place. First
    /// drops the least recently used ones, until all take at most `budget` bytes.
    pub(in crate::engine) fn add(&mut self, call: PreparedCall, budget: usize) -> usize {
        self.counts.retain(call.call.count);
        let bytes = call.bytes(&self.counts);
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
        self.counts.release(gone.call.count);
        self.evicted += 1;
        if let Some(moved) = self.calls.get(at) {
            self.places.replace(&moved.key(), at);
        }
        let last = self.calls.len();
        for place in [&mut self.current, &mut self.fast] {
            *place = match *place {
                place if place == at => NONE,
                place if place == last => at,
                place => place,
            };
        }
    }

    /// The counts of cached programs, and of those that were lowered and evicted, under a budget of
    /// `budget` bytes.
    pub(in crate::engine) fn cache(&self, budget: usize) -> ProgramCache {
        ProgramCache {
            lowered: self.lowered,
            evicted: self.evicted,
            kept: self.places.len(),
            bytes: self.places.bytes(),
            budget,
        }
    }

    /// The memory of the call at `at`.
    ///
    /// # Panics
    /// If there is no such call.
    #[inline(always)]
    pub(in crate::engine) fn buffers<'a>(&'a self, at: usize, ready: ReadyCall<'a>) -> Buffers<'a> {
        self.workspace.buffers(self.calls[at].need, ready)
    }

    /// The memory of a call that stages nothing.
    pub(in crate::engine) fn unstaged<'a>(&'a self, ready: ReadyCall<'a>) -> Buffers<'a> {
        self.workspace.buffers(WorkspaceNeed::default(), ReadyCall { scaling: None, ..ready })
    }

    /// # Panics
    /// If there is no such call.
    #[inline(always)]
    pub(in crate::engine) fn at(&self, at: usize) -> &PreparedCall {
        &self.calls[at]
    }

    /// # Panics
    /// If there is no such call.
    #[inline(always)]
    pub(in crate::engine) fn at_mut(&mut self, at: usize) -> &mut PreparedCall {
        &mut self.calls[at]
    }

    /// True if the call at `at` is `call` under `plan`.
    #[inline(always)]
    fn is_at(&self, at: usize, call: CollectiveCall, plan: Option<PlanOverride>) -> bool {
        self.calls.get(at).is_some_and(|prepared| prepared.call == call && prepared.plan == plan)
    }

    /// True if `call` under `plan` was made last.
    #[inline(always)]
    pub(in crate::engine) fn is_current(
        &self,
        call: CollectiveCall,
        plan: Option<PlanOverride>,
    ) -> bool {
        self.is_at(self.current, call, plan)
    }

    /// True if `call` under `plan` was made last and calls are not observed. Then it may run
    /// immediately.
    #[inline(always)]
    pub(in crate::engine) fn is_fast(
        &self,
        call: CollectiveCall,
        plan: Option<PlanOverride>,
    ) -> bool {
        self.is_at(self.fast, call, plan)
    }

    /// The place of the call made last, for which [`is_fast`](Self::is_fast) was true.
    #[inline(always)]
    pub(in crate::engine) fn fast(&self) -> usize {
        self.fast
    }

    pub(in crate::engine) fn current(&self) -> usize {
        self.current
    }

    /// The call made last, unless the next one requires a lookup in the cache.
    pub(in crate::engine) fn last(&self) -> Option<&PreparedCall> {
        self.calls.get(self.current)
    }

    pub(in crate::engine) fn set_current(&mut self, at: usize, observed: bool) {
        self.current = at;
        self.fast = if observed { NONE } else { at };
    }

    /// Makes the next call take the slow path: a lookup in the cache, and a record for peers.
    pub(in crate::engine) fn forget_current(&mut self) {
        self.current = NONE;
        self.fast = NONE;
    }

    /// Drops all prepared calls.
    pub(in crate::engine) fn clear(&mut self) {
        while let Some(oldest) = self.places.evict(usize::MAX, 0) {
            self.remove(oldest);
        }
        self.calls = Vec::new();
        self.places = RecentlyUsed::default();
        self.workspace = Workspace::default();
        self.chosen.clear();
    }

    pub(in crate::engine) fn chosen(&self) -> &ChosenPlans {
        &self.chosen
    }

    /// The traffic of collectives.
    pub(in crate::engine) fn counters(&self) -> Counters {
        let mut counters = self.past.clone();
        self.calls.iter().for_each(|prepared| prepared.count(&mut counters));
        counters
    }

    pub(in crate::engine) fn counts(&self) -> &InternedCounts {
        &self.counts
    }

    /// The counts that calls will name: each is good for the next call.
    pub(in crate::engine) fn counts_mut(&mut self) -> &mut InternedCounts {
        &mut self.counts
    }
}
