//! Calls that are recorded for traces.
//!
//! Unobserved calls have no extra cost: their fast path makes one comparison in any case, whose
//! result is false while calls are observed.

use crate::engine::Engine;
use crate::engine::calls::call::{CollectiveCall, ReadyCall};
use crate::engine::calls::prepared::PreparedCall;
use crate::error::Result;
use crate::execute::record::{ProgramNotes, Recorder};
use crate::execute::{NoObserver, StoreWay};
use crate::lower::Program;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Observers {
    recorder: Recorder,
    trace: TraceName,
}

/// The name of a trace, and which part of it a world writes: the first one, or a later one after
/// processes were admitted.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct TraceName {
    pub(crate) file: String,
    part: u32,
}

impl TraceName {
    pub(crate) fn new(file: &str) -> Self {
        Self { file: file.to_owned(), part: 0 }
    }

    /// The part of the world after this one.
    pub(crate) fn next_part(&self) -> Self {
        Self { file: self.file.clone(), part: self.part + 1 }
    }

    /// The file: `trace.json`, of the next part `trace.1.json`.
    pub(crate) fn path(&self) -> PathBuf {
        let whole = PathBuf::from(&self.file);
        if self.part == 0 {
            return whole;
        }
        let part = self.part.to_string();
        match whole.extension().map(ToOwned::to_owned) {
            Some(extension) => {
                let part = Path::new(&part).with_extension(extension);
                whole.with_extension(part)
            }
            None => whole.with_extension(part),
        }
    }
}

impl Observers {
    /// The recorder, if it records now.
    pub(crate) fn recording(&mut self) -> Option<&mut Recorder> {
        self.recorder.is_recording().then_some(&mut self.recorder)
    }

    /// The observers of the `number`-th group that was split off. `members` are ranks of the group
    /// that it was split from.
    fn of_group(&self, members: &[usize], number: u64) -> Self {
        let name = match self.recorder.name() {
            "" => format!("group {number}"),
            outer => format!("{outer}.{number}"),
        };
        // Groups of one split have disjoint members, so the first member identifies the group.
        let recorder = self.recorder.of_group((number << 32) ^ members[0] as u64, &name);
        Self { recorder, trace: self.trace.clone() }
    }
}

impl Engine {
    /// Where calls are recorded, if they are.
    pub(crate) fn trace_name(&self) -> Option<&TraceName> {
        Some(&self.observers.as_ref()?.trace)
    }

    /// Records calls from now on, in the file that `name` means.
    pub(crate) fn record(&mut self, recorder: Recorder, name: TraceName) {
        self.observers = Some(Box::new(Observers { recorder, trace: name }));
        // Calls that were prepared before have no notes.
        self.calls.clear();
    }

    /// Observes the calls of this group, the `number`-th that was split off, as those of its
    /// `parent` are observed. `members` are ranks of the parent.
    pub(super) fn observe_like(&mut self, parent: &Self, members: &[usize], number: u64) {
        let observers = parent.observers.as_deref();
        self.observers = observers.map(|observers| Box::new(observers.of_group(members, number)));
    }

    /// Runs the current call while calls are observed.
    #[cold]
    #[inline(never)]
    pub(super) fn perform_observed(
        &mut self,
        at: usize,
        ready: ReadyCall<'_>,
        store: Option<StoreWay>,
    ) -> Result<()> {
        let sequence = self.health.sequence();
        self.health.enter();
        let PreparedCall { staged, reducer, .. } = self.calls.at(at);
        let buffers = self.calls.buffers(at, ready);
        let recorder = self.observers.as_mut().and_then(|observers| observers.recording());
        let (program, executor) = (&staged.program, &mut self.executor);
        let done = match (recorder, &staged.notes) {
            (Some(recorder), Some(notes)) => recorder.call(sequence, notes, |it| {
                executor.run_stored(store, program, reducer, &buffers, it)
            }),
            _ => executor.run_stored(store, program, reducer, &buffers, NoObserver),
        };
        self.finish(at, ready, done)
    }

    /// A recorder's entry of a call; `None` without a recorder.
    pub(super) fn notes(
        &self,
        call: CollectiveCall,
        algorithm: &'static str,
        bytes: usize,
        program: &Program,
    ) -> Option<Arc<ProgramNotes>> {
        self.observers.as_ref()?;
        Some(Arc::new(ProgramNotes {
            operation: call.to_string(),
            algorithm,
            bytes,
            rank: self.rank,
            locals: self.boards.locals(self.rank),
            program: program.clone(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_a_trace_has_a_file_of_its_own() {
        let paths = |file: &str| {
            let first = TraceName::new(file);
            let second = first.next_part();
            [&first, &second, &second.next_part()].map(|name| name.path().display().to_string())
        };
        assert_eq!(paths("a/trace.json"), ["a/trace.json", "a/trace.1.json", "a/trace.2.json"]);
        assert_eq!(paths("b.c/trace"), ["b.c/trace", "b.c/trace.1", "b.c/trace.2"]);
        assert_eq!(paths("{rank}.json")[1], "{rank}.1.json");
    }
}
