//! The calls of a communicator that have programs.

use crate::comm::api::observe::counters::Counters;
use crate::comm::engine::calls::call::CollectiveCall;
use crate::comm::engine::calls::counts::{CallCount, InternedCounts, RankCounts};
use crate::execute::record::ProgramNotes;
use crate::execute::{Buffers, Moved};
use crate::lower::Program;
use crate::tuner::{MeasuredTime, PlanOverride};
use crate::world::calls::CallRecord;
use maypole_kernels::{Reducer, Region, Scalar, View, ViewMut, scale};
use maypole_transports::HEAD;
use std::collections::HashMap;
use std::sync::Arc;

/// Stands for no call.
const NONE: usize = usize::MAX;
/// How many different sets of counts have programs at a time.
const MAX_COUNTS: usize = 256;

/// A call that has a program.
#[derive(Debug)]
pub(crate) struct PreparedCall {
    pub(in crate::comm::engine) call: CollectiveCall,
    pub(in crate::comm::engine) plan: Option<PlanOverride>,
    /// The hash of the user's schedules that the program was lowered from; zero for algorithms of
    /// the table.
    pub(in crate::comm::engine) user_schedules: u64,
    /// How long the call took while calls were timed.
    pub(in crate::comm::engine) measured: MeasuredTime,
    /// How often the call ran to its end.
    pub(in crate::comm::engine) runs: u64,
    /// What other ranks are told of the call.
    pub(in crate::comm::engine) record: Arc<CallRecord>,
    pub(in crate::comm::engine) program: Program,
    /// The description of the program for a recorder.
    pub(in crate::comm::engine) notes: Option<Arc<ProgramNotes>>,
    pub(in crate::comm::engine) reducer: Reducer,
    pub(in crate::comm::engine) scratch: Region,
    /// A copy of the input, where the program overwrites the caller's input before it is read, or
    /// where the input is multiplied first.
    pub(in crate::comm::engine) staging: Region,
    /// The number that the result is divided by.
    pub(in crate::comm::engine) divisor: Option<u64>,
}

impl PreparedCall {
    /// The memory that the program works on. If the program needs a staging copy of the input, this
    /// makes it.
    #[inline(always)]
    pub(in crate::comm::engine) fn buffers<'a>(
        &'a self,
        factor: Option<Scalar>,
        input: View<'a>,
        output: ViewMut<'a>,
    ) -> Buffers<'a> {
        let mut buffers = Buffers { input, output, scratch: self.scratch.view() };
        if let Some(factor) = factor {
            scale(self.staging.view(), input, factor);
            buffers.input = self.staging.view().as_view();
        } else if self.program.stages_input {
            self.staging.view().copy_from(input);
            buffers.input = self.staging.view().as_view();
        }
        buffers
    }

    /// Adds the bytes and messages of all runs. `locals` are the ranks of this rank's board.
    fn count(&self, locals: &[usize], counters: &mut Counters) {
        let runs = self.runs;
        let traffic = self.program.traffic();
        *counters.calls.entry(self.call.collective.name()).or_default() += runs;
        for (local, bytes) in locals.iter().zip(&traffic.to_locals) {
            counters.peers[*local].board += runs * bytes;
        }
        for (link, bytes) in self.program.streams.iter().zip(&traffic.to_streams) {
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
    by_call: HashMap<(CollectiveCall, Option<PlanOverride>), usize>,
    counts: InternedCounts,
    /// The call made last, or [`NONE`] if the next one must be looked up.
    current: usize,
    /// Equal to `current`, or [`NONE`] while calls are traced or timed. Gates the fast path.
    fast: usize,
    /// The bytes and messages of calls that were dropped.
    past: Counters,
}

impl PreparedCalls {
    /// No calls yet, of a group of `world` ranks.
    pub(in crate::comm::engine) fn new(world: usize) -> Self {
        Self {
            calls: Vec::new(),
            by_call: HashMap::new(),
            counts: InternedCounts::default(),
            current: NONE,
            fast: NONE,
            past: Counters::new(world),
        }
    }

    /// The place of `call` under `plan`, if it was prepared from the table of algorithms.
    pub(in crate::comm::engine) fn find(
        &self,
        call: CollectiveCall,
        plan: Option<PlanOverride>,
    ) -> Option<usize> {
        self.by_call.get(&(call, plan)).copied()
    }

    /// Adds a call and returns its place.
    pub(in crate::comm::engine) fn add(&mut self, call: PreparedCall) -> usize {
        self.calls.push(call);
        self.calls.len() - 1
    }

    /// Makes the call at `at` the answer to [`find`](Self::find) for `call` under `plan`.
    pub(in crate::comm::engine) fn insert(
        &mut self,
        call: CollectiveCall,
        plan: Option<PlanOverride>,
        at: usize,
    ) {
        self.by_call.insert((call, plan), at);
    }

    pub(in crate::comm::engine) fn get(&self, at: usize) -> Option<&PreparedCall> {
        self.calls.get(at)
    }

    pub(in crate::comm::engine) fn iter(&self) -> impl Iterator<Item = &PreparedCall> {
        self.calls.iter()
    }

    /// # Panics
    /// If there is no such call.
    #[inline(always)]
    pub(in crate::comm::engine) fn at(&self, at: usize) -> &PreparedCall {
        &self.calls[at]
    }

    /// # Panics
    /// If there is no such call.
    #[inline(always)]
    pub(in crate::comm::engine) fn at_mut(&mut self, at: usize) -> &mut PreparedCall {
        &mut self.calls[at]
    }

    /// True if the call at `at` is `call` under `plan`.
    #[inline(always)]
    fn is_at(&self, at: usize, call: CollectiveCall, plan: Option<PlanOverride>) -> bool {
        self.calls.get(at).is_some_and(|prepared| prepared.call == call && prepared.plan == plan)
    }

    /// True if `call` under `plan` was made last.
    #[inline(always)]
    pub(in crate::comm::engine) fn is_current(
        &self,
        call: CollectiveCall,
        plan: Option<PlanOverride>,
    ) -> bool {
        self.is_at(self.current, call, plan)
    }

    /// True if `call` under `plan` was made last and calls are not observed. Then it may run at
    /// once.
    #[inline(always)]
    pub(in crate::comm::engine) fn is_fast(
        &self,
        call: CollectiveCall,
        plan: Option<PlanOverride>,
    ) -> bool {
        self.is_at(self.fast, call, plan)
    }

    /// The place of the call made last, for which [`is_fast`](Self::is_fast) was true.
    #[inline(always)]
    pub(in crate::comm::engine) fn fast(&self) -> usize {
        self.fast
    }

    /// The place of the call made last.
    pub(in crate::comm::engine) fn current(&self) -> usize {
        self.current
    }

    /// Makes the call at `at` the current one.
    pub(in crate::comm::engine) fn set_current(&mut self, at: usize, observed: bool) {
        self.current = at;
        self.fast = if observed { NONE } else { at };
    }

    /// Makes sure that the next call is looked up, and recorded for peers that ask.
    pub(in crate::comm::engine) fn forget_current(&mut self) {
        self.current = NONE;
        self.fast = NONE;
    }

    /// Drops all prepared calls. `locals` are the ranks of this rank's board.
    pub(in crate::comm::engine) fn clear(&mut self, locals: &[usize]) {
        self.past = self.counters(locals);
        self.calls = Vec::new();
        self.by_call = HashMap::new();
        self.forget_current();
    }

    /// What collectives have moved. `locals` are the ranks of this rank's board.
    pub(in crate::comm::engine) fn counters(&self, locals: &[usize]) -> Counters {
        let mut counters = self.past.clone();
        let ran = self.calls.iter().filter(|prepared| prepared.runs > 0);
        ran.for_each(|prepared| prepared.count(locals, &mut counters));
        counters
    }

    /// The counts that calls have named.
    pub(in crate::comm::engine) fn counts(&self) -> &InternedCounts {
        &self.counts
    }

    /// The name of `counts`, by which calls are compared. Every call may bring new counts, so all
    /// counts and their programs are dropped once there are too many.
    pub(in crate::comm::engine) fn intern(
        &mut self,
        counts: RankCounts,
        locals: &[usize],
    ) -> CallCount {
        if self.counts.len() > MAX_COUNTS {
            self.counts = InternedCounts::default();
            self.clear(locals);
        }
        self.counts.intern(counts)
    }
}
