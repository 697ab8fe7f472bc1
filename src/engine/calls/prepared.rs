//! A call that has programs: one for each path that it may take.

use crate::engine::calls::call::CollectiveCall;
use crate::engine::calls::choice::CallKind;
use crate::engine::calls::counts::InternedCounts;
use crate::engine::calls::report::{CallPath, Counters, LastCall};
use crate::engine::calls::workspace::WorkspaceNeed;
use crate::engine::ways::CallWays;
use crate::execute::record::ProgramNotes;
use crate::execute::{Moved, StoreWay};
use crate::lower::Program;
use crate::tuner::{MeasuredTime, PlanOverride};
use crate::world::calls::CallRecord;
use maypole_kernels::Reducer;
use maypole_transports::HEAD;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(in crate::engine) enum ProgramSource {
    /// The table of algorithms, for calls under this plan.
    Table(Option<PlanOverride>),
    /// The user; the hash of the schedules.
    User(u64),
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(in crate::engine) struct ProgramKey {
    pub(in crate::engine) call: CollectiveCall,
    pub(in crate::engine) source: ProgramSource,
}

#[derive(Debug)]
pub(crate) struct CallProgram {
    pub(in crate::engine) algorithm: &'static str,
    pub(in crate::engine) program: Program,
    /// True if ranks may call with one buffer as input and output. Equal on all ranks.
    pub(in crate::engine) allows_in_place: bool,
    /// Completed runs.
    pub(in crate::engine) runs: u64,
    /// The durations of these runs, while calls are timed.
    pub(in crate::engine) times: Option<Box<CallTimes>>,
    /// The description of the program for a recorder, with a program of its own.
    pub(in crate::engine) notes: Option<Arc<ProgramNotes>>,
}

impl CallProgram {
    fn bytes(&self) -> usize {
        let notes = self.notes.as_ref().map_or(0, |notes| notes.program.bytes());
        size_of::<Self>() + self.program.bytes() + notes
    }
}

#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct CallTimes {
    runs: u64,
    /// Nanoseconds of the last runs, unordered.
    recent: Vec<u64>,
}

const RECENT: usize = 63;

impl CallTimes {
    fn note(&mut self, nanoseconds: u64) {
        match self.recent.len() < RECENT {
            true => self.recent.push(nanoseconds),
            false => self.recent[self.runs as usize % RECENT] = nanoseconds,
        }
        self.runs += 1;
    }

    /// The runs of both together.
    pub(in crate::engine) fn merged(mut self, other: &Self) -> Self {
        self.runs += other.runs;
        self.recent.extend(&other.recent);
        self
    }

    /// The median of the last ones, if there are any.
    pub(in crate::engine) fn measured(mut self) -> Option<MeasuredTime> {
        self.recent.sort_unstable();
        let median_ns = *self.recent.get(self.recent.len() / 2)?;
        Some(MeasuredTime { runs: self.runs, median_ns })
    }
}

/// The kind of calls for which a way is chosen: that of the table, and the hash of the user's own schedules.
/// Equal on all ranks.
pub(in crate::engine) type WayKind = (CallKind, Option<u64>);

/// The programs of a call that reach other ranks' buffers.
#[derive(Debug, Default)]
pub(in crate::engine) struct ReachingPrograms {
    /// For buffers that all ranks have registered. A call with this program exchanges the places of
    /// all buffers.
    pub(in crate::engine) registered: Option<Box<CallProgram>>,
    /// For buffers that all ranks can at least read.
    pub(in crate::engine) copied: Option<Box<CallProgram>>,
}

impl ReachingPrograms {
    pub(super) fn iter(&self) -> impl Iterator<Item = &CallProgram> {
        [&self.registered, &self.copied].into_iter().flatten().map(|it| &**it)
    }
}

/// A call that has a program for each path that it may take.
#[derive(Debug)]
pub(crate) struct PreparedCall {
    pub(in crate::engine) call: CollectiveCall,
    pub(in crate::engine) plan: Option<PlanOverride>,
    pub(in crate::engine) source: ProgramSource,
    /// The description of the call for other ranks.
    pub(in crate::engine) record: Arc<CallRecord>,
    /// For slots and streams.
    pub(in crate::engine) staged: CallProgram,
    pub(in crate::engine) reaching: ReachingPrograms,
    /// The ways in which its bytes may move, where there are several.
    pub(in crate::engine) ways: Option<Box<(WayKind, CallWays)>>,
    /// How large publications are stored where no way is chosen; `None` if there are none.
    pub(in crate::engine) store: Option<StoreWay>,
    /// How the last run went.
    pub(in crate::engine) path: CallPath,
    pub(in crate::engine) reducer: Reducer,
    /// The working memory of the program. It holds a copy of an input that is overwritten before it
    /// is read, or that is scaled first.
    pub(in crate::engine) need: WorkspaceNeed,
}

impl PreparedCall {
    pub(super) fn key(&self) -> ProgramKey {
        ProgramKey { call: self.call, source: self.source }
    }

    /// Bytes that the call takes in the cache, its entry in the map included.
    pub(super) fn bytes(&self, counts: &InternedCounts) -> usize {
        let entry = 2 * size_of::<ProgramKey>() + size_of::<Self>() - size_of::<CallProgram>();
        let programs =
            self.reaching.iter().map(CallProgram::bytes).sum::<usize>() + self.staged.bytes();
        let ways = self.ways.as_ref().map_or(0, |ways| size_of_val(&**ways));
        entry + programs + ways + self.record.memory() + counts.bytes(self.call.count)
    }

    /// The program for `path`, if the call has one.
    pub(in crate::engine) fn program(&self, path: CallPath) -> Option<&CallProgram> {
        match path {
            CallPath::Staged => Some(&self.staged),
            CallPath::Registered => self.reaching.registered.as_deref(),
            CallPath::Copied => self.reaching.copied.as_deref(),
        }
    }

    fn program_mut(&mut self, path: CallPath) -> Option<&mut CallProgram> {
        match path {
            CallPath::Staged => Some(&mut self.staged),
            CallPath::Registered => self.reaching.registered.as_deref_mut(),
            CallPath::Copied => self.reaching.copied.as_deref_mut(),
        }
    }

    /// Whether other ranks touch this rank's input, and its output, by any of the programs.
    pub(in crate::engine) fn exposes(&self) -> (bool, bool) {
        let of = |it: &CallProgram| {
            it.program
                .registered
                .as_ref()
                .map_or((false, false), |it| (it.exposes[0].is_some(), it.exposes[1].is_some()))
        };
        self.reaching.iter().map(of).fold((false, false), |a, b| (a.0 | b.0, a.1 | b.1))
    }

    pub(in crate::engine) fn note_time(&mut self, nanoseconds: u64) {
        if let Some(ran) = self.program_mut(self.path) {
            ran.times.get_or_insert_default().note(nanoseconds);
        }
    }

    /// How long the call took on `path` while calls were timed.
    pub(in crate::engine) fn times(&self, path: CallPath) -> Option<&CallTimes> {
        self.program(path).and_then(|it| it.times.as_deref())
    }

    /// How the last run went.
    pub(in crate::engine) fn last(&self) -> LastCall {
        let algorithm = self.program(self.path).unwrap_or(&self.staged).algorithm;
        LastCall { algorithm, path: self.path }
    }

    /// Records the way of the last run, which was counted as staged.
    pub(in crate::engine) fn note_path(&mut self, path: CallPath) {
        self.path = path;
        self.staged.runs -= 1;
        if let Some(ran) = self.program_mut(path) {
            ran.runs += 1;
        }
    }

    /// Adds the bytes and messages of all runs. `locals` are the ranks of this rank's board.
    pub(super) fn count(&self, locals: &[usize], counters: &mut Counters) {
        self.reaching
            .iter()
            .chain([&self.staged])
            .for_each(|it| self.count_runs(it, locals, counters));
        let runs = |program: &Option<Box<CallProgram>>| program.as_ref().map_or(0, |it| it.runs);
        counters.registered += runs(&self.reaching.registered);
        counters.copied += runs(&self.reaching.copied);
    }

    fn count_runs(&self, of: &CallProgram, locals: &[usize], counters: &mut Counters) {
        let CallProgram { runs, ref program, .. } = *of;
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
