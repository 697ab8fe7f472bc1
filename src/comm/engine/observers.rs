//! Calls that are observed: timed for explanations, or recorded for traces.
//!
//! Other calls pay nothing for this. Their fast path makes one comparison in any case, and while
//! calls are observed its result is false.

use crate::comm::engine::Engine;
use crate::comm::engine::calls::call::CollectiveCall;
use crate::comm::engine::calls::prepared::PreparedCall;
use crate::comm::error::Result;
use crate::execute::record::{ProgramNotes, Recorder};
use crate::execute::{Buffers, ExecuteError, Executor};
use crate::lower::Program;
use maypole_kernels::{Scalar, View, ViewMut};
use std::sync::Arc;
use std::time::Instant;

/// The observers of a communicator's calls.
#[derive(Debug, Default)]
pub(crate) struct Observers {
    /// Whether calls are timed.
    timed: bool,
    recorder: Option<Recorder>,
}

impl Observers {
    /// The recorder, if it records now.
    pub(crate) fn recording(&mut self) -> Option<&mut Recorder> {
        self.recorder.as_mut().filter(|recorder| recorder.is_recording())
    }

    /// The observers of the `number`-th group that was split off. `members` are ranks of the group
    /// that it was split from.
    fn of_group(&self, members: &[usize], number: u64) -> Self {
        let of_group = |recorder: &Recorder| {
            let name = match recorder.name() {
                "" => format!("group {number}"),
                outer => format!("{outer}.{number}"),
            };
            // Groups of one split have disjoint members, so the first one tells them apart.
            recorder.of_group((number << 32) ^ members[0] as u64, &name)
        };
        Self { timed: self.timed, recorder: self.recorder.as_ref().map(of_group) }
    }
}

impl Engine {
    /// Times calls from now on.
    pub(crate) fn time(&mut self) {
        self.observers.get_or_insert_default().timed = true;
        self.calls.forget_current();
    }

    /// Records calls from now on.
    pub(crate) fn record(&mut self, recorder: Recorder) {
        self.observers.get_or_insert_default().recorder = Some(recorder);
        // Calls that were prepared before have no notes.
        self.calls.clear(self.executor.locals());
    }

    /// Takes the observers away, to be [restored](Self::restore_observers).
    pub(crate) fn take_observers(&mut self) -> Option<Box<Observers>> {
        self.observers.take()
    }

    pub(crate) fn restore_observers(&mut self, observers: Option<Box<Observers>>) {
        self.observers = observers;
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
        call: CollectiveCall,
        factor: Option<Scalar>,
        input: View<'_>,
        output: ViewMut<'_>,
    ) -> Result<()> {
        let start = Instant::now();
        let sequence = self.health.sequence();
        self.health.enter();
        let at = self.calls.current();
        let prepared = self.calls.at(at);
        let buffers = self.calls.buffers(at, factor, input, output);
        let observers = self.observers.as_deref_mut();
        let done = run_recorded(&mut self.executor, prepared, &buffers, observers, sequence);
        self.finish(at, call, output, done)?;
        self.note_time(at, start);
        Ok(())
    }

    /// Notes how long the call at `at` took, if calls are timed.
    pub(super) fn note_time(&mut self, at: usize, start: Instant) {
        if self.observers.as_ref().is_some_and(|observers| observers.timed) {
            let nanoseconds = start.elapsed().as_nanos().try_into().unwrap_or(u64::MAX);
            self.calls.at_mut(at).note_time(nanoseconds);
        }
    }

    /// What a recorder needs to know of a call; `None` if there is no recorder.
    pub(super) fn notes(
        &self,
        call: CollectiveCall,
        algorithm: &'static str,
        bytes: usize,
        program: &Program,
    ) -> Option<Arc<ProgramNotes>> {
        self.observers.as_ref()?.recorder.as_ref()?;
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

/// Runs the program of a call for private memory, and records it if calls are recorded.
pub(super) fn run_recorded(
    executor: &mut Executor,
    prepared: &PreparedCall,
    buffers: &Buffers<'_>,
    observers: Option<&mut Observers>,
    sequence: u64,
) -> std::result::Result<(), Box<ExecuteError>> {
    let recorder = observers.and_then(Observers::recording);
    match (recorder, &prepared.notes) {
        (Some(recorder), Some(notes)) => recorder.call(sequence, notes, |it| {
            executor.run_observed(&prepared.program, &prepared.reducer, buffers, it)
        }),
        _ => executor.run(&prepared.program, &prepared.reducer, buffers),
    }
}
