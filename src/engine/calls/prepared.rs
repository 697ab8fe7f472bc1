//! A call that has programs: one for each path that it may take.

use crate::engine::calls::call::CollectiveCall;
use crate::engine::calls::choice::CallKind;
use crate::engine::calls::report::{CallPath, Counters, LastCall};
use crate::engine::calls::workspace::WorkspaceNeed;
use crate::engine::ways::CallWays;
use crate::execute::record::ProgramNotes;
use crate::execute::{Moved, StoreWay};
use crate::lower::{Program, ProgramTraffic};
use crate::tuner::PlanOverride;
use crate::world::calls::CallRecord;
use maypole_kernels::Reducer;
use maypole_transports::HEAD;
use std::cell::Cell;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum ProgramSource {
    /// The table of algorithms, for calls under this plan.
    Table(Option<PlanOverride>),
    /// The user; the hash of the schedules.
    User(u64),
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct ProgramKey {
    pub(crate) call: CollectiveCall,
    pub(crate) source: ProgramSource,
}

#[derive(Debug)]
pub(crate) struct CallProgram {
    pub(crate) algorithm: &'static str,
    pub(crate) program: Program,
    /// Completed runs.
    pub(crate) runs: Cell<u64>,
    /// The description of the program for a recorder, with a program of its own.
    pub(crate) notes: Option<Arc<ProgramNotes>>,
}

impl CallProgram {
    fn bytes(&self) -> usize {
        let notes = self.notes.as_ref().map_or(0, |notes| notes.program.bytes());
        size_of::<Self>() + self.program.bytes() + notes
    }
}

/// The kind of calls for which a way is chosen. Equal on all ranks.
pub(crate) type WayKind = (CallKind, ProgramSource);

/// The programs of a call that reach other ranks' buffers.
#[derive(Debug, Default)]
pub(crate) struct ReachingPrograms {
    /// For buffers that all ranks have registered. A call with this program exchanges the places of
    /// all buffers.
    pub(crate) registered: Option<Box<CallProgram>>,
    /// For buffers that all ranks can at least read.
    pub(crate) copied: Option<Box<CallProgram>>,
}

impl ReachingPrograms {
    pub(super) fn iter(&self) -> impl Iterator<Item = &CallProgram> {
        [&self.registered, &self.copied].into_iter().flatten().map(|it| &**it)
    }
}

/// A call that has a program for each path that it may take.
#[derive(Debug)]
pub(crate) struct PreparedCall {
    pub(crate) call: CollectiveCall,
    pub(crate) plan: Option<PlanOverride>,
    pub(crate) source: ProgramSource,
    /// The description of the call for other ranks.
    pub(crate) record: Arc<CallRecord>,
    /// For slots and streams.
    pub(crate) staged: CallProgram,
    pub(crate) reaching: ReachingPrograms,
    /// The ways in which its bytes may move, where there are several.
    pub(crate) ways: Option<Box<(WayKind, CallWays)>>,
    /// How large publications are stored where no way is chosen; `None` if there are none.
    pub(crate) store: Option<StoreWay>,
    /// How the last run went.
    pub(crate) path: CallPath,
    pub(crate) reducer: Reducer,
    /// The working memory of the program. It holds a copy of an input that is overwritten before it
    /// is read, or that is scaled first.
    pub(crate) need: WorkspaceNeed,
}

impl PreparedCall {
    pub(super) fn key(&self) -> ProgramKey {
        ProgramKey { call: self.call, source: self.source }
    }

    /// Bytes that the call takes in the cache, its entry in the map included.
    pub(super) fn bytes(&self) -> usize {
        let entry = 2 * size_of::<ProgramKey>() + size_of::<Self>() - size_of::<CallProgram>();
        let programs =
            self.reaching.iter().map(CallProgram::bytes).sum::<usize>() + self.staged.bytes();
        let ways = self.ways.as_ref().map_or(0, |ways| size_of_val(&**ways));
        entry + programs + ways + self.record.memory()
    }

    /// The program for `path`, if the call has one.
    pub(crate) fn program(&self, path: CallPath) -> Option<&CallProgram> {
        match path {
            CallPath::Staged => Some(&self.staged),
            CallPath::Registered => self.reaching.registered.as_deref(),
            CallPath::Copied => self.reaching.copied.as_deref(),
        }
    }

    /// Whether other ranks touch this rank's input, and its output, by any of the programs.
    pub(crate) fn exposes(&self) -> (bool, bool) {
        let of = |it: &CallProgram| {
            it.program.registered.as_ref().map_or((false, false), |it| it.exposes)
        };
        self.reaching.iter().map(of).fold((false, false), |a, b| (a.0 | b.0, a.1 | b.1))
    }

    /// How the last run went.
    pub(crate) fn last(&self) -> LastCall {
        let algorithm = self.program(self.path).unwrap_or(&self.staged).algorithm;
        LastCall { algorithm, path: self.path }
    }

    /// Records the way of the last run, which was counted as staged.
    pub(crate) fn note_path(&mut self, path: CallPath) {
        self.path = path;
        self.staged.runs.update(|runs| runs - 1);
        if let Some(ran) = self.program(path) {
            ran.runs.update(|runs| runs + 1);
        }
    }

    /// Adds the bytes and messages of all runs.
    pub(super) fn count(&self, counters: &mut Counters) {
        for CallProgram { runs, program, .. } in self.reaching.iter().chain([&self.staged]) {
            let runs = runs.get();
            let ProgramTraffic { publications, published, read, messages, streamed } =
                program.traffic();
            if runs > 0 {
                *counters.calls.entry(self.call.collective.name()).or_default() += runs;
            }
            counters.board += moved(runs, publications, read, published);
            counters.stream += moved(runs, messages, streamed, streamed);
        }
        let runs =
            |program: &Option<Box<CallProgram>>| program.as_ref().map_or(0, |it| it.runs.get());
        counters.registered += runs(&self.reaching.registered);
        counters.copied += runs(&self.reaching.copied);
    }
}

fn moved(runs: u64, messages: u64, payload: u64, bytes: u64) -> Moved {
    let heads = messages * HEAD as u64;
    Moved { messages: runs * messages, payload: runs * payload, written: runs * (bytes + heads) }
}
