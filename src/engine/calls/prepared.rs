//! The calls of a communicator that have programs.
//!
//! Calls keep their programs, so that a call that is repeated only runs. A program that calls with
//! ever new lengths would keep ever more of them, so programs have a budget in bytes: before one is
//! added, those that were not used for the longest time are dropped until it fits. Each rank does
//! this by itself. Dropping a program is a local fact like placement: no other rank notices, because
//! a program that is made again is the same.

use crate::engine::calls::call::CollectiveCall;
use crate::engine::calls::counts::{CallCount, InternedCounts, RankCounts};
use crate::engine::calls::reaching::{AskingCall, ReachingProgram};
use crate::engine::calls::recent::RecentlyUsed;
use crate::engine::calls::report::{CallPath, Counters, LastCall, ProgramCache};
use crate::engine::calls::workspace::{Workspace, WorkspaceNeed};
use crate::execute::record::ProgramNotes;
use crate::execute::{Buffers, Moved};
use crate::lower::Program;
use crate::tuner::{MeasuredTime, PlanOverride};
use crate::world::calls::CallRecord;
use maypole_kernels::{Reducer, Scalar, View, ViewMut};
use maypole_transports::HEAD;
use std::sync::Arc;

/// Stands for no call.
const NONE: usize = usize::MAX;

/// Where the schedules of a program come from.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(in crate::engine) enum ProgramSource {
    /// The table of algorithms, for calls under this plan.
    Table(Option<PlanOverride>),
    /// The user; the hash of the schedules.
    User(u64),
}

/// What a program is found by.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(in crate::engine) struct ProgramKey {
    pub(in crate::engine) call: CollectiveCall,
    pub(in crate::engine) source: ProgramSource,
}

/// A call that has a program.
#[derive(Debug)]
pub(crate) struct PreparedCall {
    pub(in crate::engine) call: CollectiveCall,
    pub(in crate::engine) plan: Option<PlanOverride>,
    pub(in crate::engine) source: ProgramSource,
    /// The name of the algorithm of `program`.
    pub(in crate::engine) algorithm: &'static str,
    /// How long the call took on private memory while calls were timed.
    pub(in crate::engine) measured: MeasuredTime,
    /// How often the call ran to its end.
    pub(in crate::engine) runs: u64,
    /// What other ranks are told of the call.
    pub(in crate::engine) record: Arc<CallRecord>,
    pub(in crate::engine) program: Program,
    /// How the call runs if all ranks can reach its buffers; `None` if it does not ask.
    pub(in crate::engine) asking: Option<Box<AskingCall>>,
    /// The description of the program for a recorder.
    pub(in crate::engine) notes: Option<Arc<ProgramNotes>>,
    pub(in crate::engine) reducer: Reducer,
    /// The working memory of the program. It holds a copy of the input where the program overwrites
    /// the caller's input before it is read, or where the input is multiplied first.
    pub(in crate::engine) need: WorkspaceNeed,
    /// The number that the result is divided by.
    pub(in crate::engine) divisor: Option<u64>,
}

impl PreparedCall {
    fn key(&self) -> ProgramKey {
        ProgramKey { call: self.call, source: self.source }
    }

    /// Bytes that the call takes while it is kept, its entry in the map among them.
    fn bytes(&self, counts: &InternedCounts) -> usize {
        let entry = 2 * size_of::<ProgramKey>();
        let program = size_of::<Self>() + self.program.bytes();
        // Notes have a program of their own.
        let notes = self.notes.as_ref().map_or(0, |notes| notes.program.bytes());
        let asking = self.asking.as_ref().map_or(0, |asking| asking.bytes());
        entry + program + notes + asking + self.record.memory() + counts.bytes(self.call.count)
    }

    /// Notes how long the last run took.
    pub(in crate::engine) fn note_time(&mut self, nanoseconds: u64) {
        let reaching = self.asking.as_mut().and_then(|asking| asking.ran_last());
        reaching.map_or(&mut self.measured, |it| &mut it.measured).note(nanoseconds);
    }

    /// How long the call took on `path` while calls were timed.
    pub(in crate::engine) fn measured(&self, path: CallPath) -> MeasuredTime {
        match path {
            CallPath::Staged => self.measured,
            path => self.reaching(path).map_or_else(MeasuredTime::default, |it| it.measured),
        }
    }

    fn reaching(&self, path: CallPath) -> Option<&ReachingProgram> {
        self.asking.as_ref()?.program(path)
    }

    /// How the last run went.
    pub(in crate::engine) fn last(&self) -> LastCall {
        let path = self.asking.as_ref().map_or(CallPath::Staged, |asking| asking.last());
        let algorithm = self.reaching(path).map_or(self.algorithm, |it| it.algorithm);
        LastCall { algorithm, path }
    }

    /// Notes how the last run went.
    pub(in crate::engine) fn note_path(&mut self, path: CallPath) {
        if let Some(asking) = &mut self.asking {
            asking.note_run(path);
            self.runs -= u64::from(path != CallPath::Staged);
        }
    }

    /// Adds the bytes and messages of all runs. `locals` are the ranks of this rank's board.
    fn count(&self, locals: &[usize], counters: &mut Counters) {
        self.count_runs(self.runs, &self.program, locals, counters);
        if let Some(registered) = self.reaching(CallPath::Registered) {
            self.count_runs(registered.runs, &registered.program, locals, counters);
            counters.registered += registered.runs;
        }
        if let Some(copied) = self.reaching(CallPath::Copied) {
            self.count_runs(copied.runs, &copied.program, locals, counters);
            counters.copied += copied.runs;
        }
    }

    fn count_runs(&self, runs: u64, program: &Program, locals: &[usize], counters: &mut Counters) {
        if runs == 0 {
            return;
        }
        let traffic = program.traffic();
        *counters.calls.entry(self.call.collective.name()).or_default() += runs;
        for (local, bytes) in locals.iter().zip(&traffic.to_locals) {
            counters.peers[*local].board += runs * bytes;
        }
        for (link, bytes) in program.streams.iter().zip(&traffic.to_streams) {
            counters.peers[link.peer as usize].stream += runs * bytes;
        }
        let read = traffic.to_locals.iter().sum();
        counters.board += moved(runs, traffic.publications, read, traffic.published);
        let streamed = traffic.to_streams.iter().sum();
        counters.stream += moved(runs, traffic.messages, streamed, streamed);
    }
}

fn moved(runs: u64, messages: u64, payload: u64, bytes: u64) -> Moved {
    let heads = messages * HEAD as u64;
    Moved { messages: runs * messages, payload: runs * payload, written: runs * (bytes + heads) }
}

/// All prepared calls of a communicator, and which of them was made last.
#[derive(Debug)]
pub(crate) struct PreparedCalls {
    calls: Vec<PreparedCall>,
    /// The place of each call in `calls`.
    places: RecentlyUsed<ProgramKey, usize>,
    counts: InternedCounts,
    workspace: Workspace,
    /// The call made last, or [`NONE`] if the next one must be looked up.
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
    /// No calls yet, of a group of `world` ranks.
    pub(in crate::engine) fn new(world: usize) -> Self {
        Self {
            calls: Vec::new(),
            places: RecentlyUsed::default(),
            counts: InternedCounts::default(),
            workspace: Workspace::default(),
            current: NONE,
            fast: NONE,
            past: Counters::new(world),
            lowered: 0,
            evicted: 0,
        }
    }

    /// The place of the call of `key`, if it has a program. It counts as used now.
    pub(in crate::engine) fn find(&mut self, key: ProgramKey) -> Option<usize> {
        self.places.get(&key).copied()
    }

    /// Makes sure that a call with this `need` can run. Returns false if there is no memory for it.
    pub(in crate::engine) fn reserve(&mut self, need: WorkspaceNeed) -> bool {
        self.workspace.grow(need)
    }

    /// Adds a call, for which [`reserve`](Self::reserve) has made room, and returns its place. First
    /// drops those that were not used for the longest time, until all take at most `budget` bytes.
    /// `locals` are the ranks of this rank's board.
    pub(in crate::engine) fn add(
        &mut self,
        call: PreparedCall,
        budget: usize,
        locals: &[usize],
    ) -> usize {
        self.counts.retain(call.call.count);
        let bytes = call.bytes(&self.counts);
        let mut grown_for_a_dropped_call = false;
        while let Some(oldest) = self.places.evict(bytes, budget) {
            grown_for_a_dropped_call |= self.workspace.is_due_to(self.calls[oldest].need);
            self.remove(oldest, locals);
        }
        if grown_for_a_dropped_call {
            let all = self.calls.iter().map(|kept| kept.need);
            self.workspace.shrink(all.fold(call.need, WorkspaceNeed::and));
        }
        let at = self.calls.len();
        self.places.insert(call.key(), at, bytes);
        self.calls.push(call);
        self.lowered += 1;
        at
    }

    /// Drops the call at `at`, which is no longer in `places`. The last call takes its place.
    fn remove(&mut self, at: usize, locals: &[usize]) {
        let gone = self.calls.swap_remove(at);
        gone.count(locals, &mut self.past);
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

    pub(in crate::engine) fn iter(&self) -> impl Iterator<Item = &PreparedCall> {
        self.calls.iter()
    }

    /// The programs that are kept, and those that were made and dropped, under a budget of `budget`
    /// bytes.
    pub(in crate::engine) fn cache(&self, budget: usize) -> ProgramCache {
        ProgramCache {
            lowered: self.lowered,
            evicted: self.evicted,
            kept: self.places.len(),
            bytes: self.places.bytes(),
            budget,
        }
    }

    /// The memory that the call at `at` works on, from `input` to `output`.
    ///
    /// # Panics
    /// If there is no such call.
    #[inline(always)]
    pub(in crate::engine) fn buffers<'a>(
        &'a self,
        at: usize,
        factor: Option<Scalar>,
        input: View<'a>,
        output: ViewMut<'a>,
    ) -> Buffers<'a> {
        self.workspace.buffers(self.calls[at].need, factor, input, output)
    }

    /// The memory of a call that stages nothing.
    pub(in crate::engine) fn unstaged<'a>(
        &'a self,
        input: View<'a>,
        output: ViewMut<'a>,
    ) -> Buffers<'a> {
        self.workspace.buffers(WorkspaceNeed::default(), None, input, output)
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

    /// True if `call` under `plan` was made last and calls are not observed. Then it may run at
    /// once.
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

    /// The place of the call made last.
    pub(in crate::engine) fn current(&self) -> usize {
        self.current
    }

    /// The call made last, unless the next one must be looked up.
    pub(in crate::engine) fn last(&self) -> Option<&PreparedCall> {
        self.calls.get(self.current)
    }

    /// Makes the call at `at` the current one.
    pub(in crate::engine) fn set_current(&mut self, at: usize, observed: bool) {
        self.current = at;
        self.fast = if observed { NONE } else { at };
    }

    /// Makes sure that the next call is looked up, and recorded for peers that ask.
    pub(in crate::engine) fn forget_current(&mut self) {
        self.current = NONE;
        self.fast = NONE;
    }

    /// Drops all prepared calls. `locals` are the ranks of this rank's board.
    pub(in crate::engine) fn clear(&mut self, locals: &[usize]) {
        while let Some(oldest) = self.places.evict(usize::MAX, 0) {
            self.remove(oldest, locals);
        }
        self.calls = Vec::new();
        self.places = RecentlyUsed::default();
        self.workspace = Workspace::default();
    }

    /// What collectives have moved. `locals` are the ranks of this rank's board.
    pub(in crate::engine) fn counters(&self, locals: &[usize]) -> Counters {
        let mut counters = self.past.clone();
        self.calls.iter().for_each(|prepared| prepared.count(locals, &mut counters));
        counters
    }

    /// The counts that calls have named.
    pub(in crate::engine) fn counts(&self) -> &InternedCounts {
        &self.counts
    }

    /// The name of `counts`, by which calls are compared. It is good for the next call.
    pub(in crate::engine) fn intern(&mut self, counts: RankCounts) -> CallCount {
        self.counts.intern(counts)
    }
}
