//! Calls that can reach the buffers of other ranks: their programs for that.

use crate::engine::calls::report::CallPath;
use crate::execute::record::ProgramNotes;
use crate::lower::Program;
use crate::tuner::MeasuredTime;
use std::sync::Arc;

/// How a call runs that asks all ranks where their buffers lie, besides its program for slots and
/// streams.
#[derive(Debug, Default)]
pub(crate) struct AskingCall {
    /// For buffers that all ranks have registered.
    pub(in crate::engine) registered: Option<ReachingProgram>,
    /// For buffers that all ranks can at least read.
    pub(in crate::engine) copied: Option<ReachingProgram>,
    /// How the last call ran.
    pub(in crate::engine) last: CallPath,
}

/// A program that reaches other ranks' buffers.
#[derive(Debug)]
pub(crate) struct ReachingProgram {
    /// The name of the algorithm.
    pub(in crate::engine) algorithm: &'static str,
    pub(in crate::engine) program: Program,
    /// True if ranks may call with one buffer as input and output. Equal on all ranks.
    pub(in crate::engine) allows_in_place: bool,
    /// How often the call ran so.
    pub(in crate::engine) runs: u64,
    /// How long such a run took while calls were timed.
    pub(in crate::engine) measured: MeasuredTime,
    /// The description of the program for a recorder.
    pub(in crate::engine) notes: Option<Arc<ProgramNotes>>,
}

impl AskingCall {
    /// The program of each path, if the call has it.
    pub(in crate::engine) fn program(&self, path: CallPath) -> Option<&ReachingProgram> {
        match path {
            CallPath::Staged => None,
            CallPath::Registered => self.registered.as_ref(),
            CallPath::Copied => self.copied.as_ref(),
        }
    }

    pub(in crate::engine) fn programs(&self) -> impl Iterator<Item = &ReachingProgram> {
        self.registered.iter().chain(&self.copied)
    }

    /// Bytes that it takes while it is kept.
    pub(in crate::engine) fn bytes(&self) -> usize {
        let of = |it: &ReachingProgram| {
            it.program.bytes() + it.notes.as_ref().map_or(0, |notes| notes.program.bytes())
        };
        size_of::<Self>() + self.programs().map(of).sum::<usize>()
    }

    /// Bytes of scratch that its programs need.
    pub(in crate::engine) fn scratch(&self) -> usize {
        self.programs().map(|it| it.program.scratch).max().unwrap_or(0)
    }

    /// Notes how the last call ran.
    pub(in crate::engine) fn note_run(&mut self, path: CallPath) {
        self.last = path;
        if let Some(program) = self.ran_last() {
            program.runs += 1;
        }
    }

    /// How the last call ran.
    pub(in crate::engine) fn last(&self) -> CallPath {
        self.last
    }

    /// The program of the last call, if it ran by one of these.
    pub(in crate::engine) fn ran_last(&mut self) -> Option<&mut ReachingProgram> {
        match self.last {
            CallPath::Staged => None,
            CallPath::Registered => self.registered.as_mut(),
            CallPath::Copied => self.copied.as_mut(),
        }
    }

    /// Whether other ranks touch this rank's input, and its output, by any of the programs.
    pub(in crate::engine) fn exposes(&self) -> (bool, bool) {
        let of = |it: &ReachingProgram| {
            it.program.in_place.as_ref().map_or((false, false), |access| access.exposes)
        };
        self.programs().map(of).fold((false, false), |a, b| (a.0 | b.0, a.1 | b.1))
    }
}
