//! The user's schedules: proved when a program is made of them, and prepared like those of the table.

use crate::engine::Engine;
use crate::engine::calls::call::CollectiveCall;
use crate::engine::calls::order::objection_to_proof;
use crate::engine::calls::prepare::LoweringLabel;
use crate::engine::calls::prepared::{ProgramKey, ProgramSource};
use crate::error::Result;
use crate::schedule::verify::verify;
use crate::schedule::{Placement, Schedule, Span, Step};
use crate::tuner::OWN_WINDOW;
use maypole_kernels::mix;

impl Engine {
    /// Makes `call` by the user's schedules, one for each rank, the current call. Proves and lowers
    /// them if no program is kept of them.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) with the checker's words.
    pub(crate) fn make_current_by(
        &mut self,
        call: CollectiveCall,
        schedules: &[Schedule],
    ) -> Result<()> {
        self.check_usable(|| call.to_string())?;
        call.check_operation(self.rank)?;
        let hash = hash(schedules);
        let source = ProgramSource::User(hash);
        self.use_program(ProgramKey { call, source }, |it| {
            // Schedules that are right between separate buffers are right in place, too: lowering makes
            // a staging copy of an input that would be overwritten too early.
            let proof = verify(call.collective, schedules, Placement::Apart).map_err(|flaw| {
                call.invalid(it.rank, format!("the schedules do something else: {flaw}"))
            })?;
            if let Some(objection) = objection_to_proof(call, proof) {
                return Err(call.invalid(it.rank, format!("the user's algorithm {objection}")));
            }
            let world = it.boards.world();
            let fingerprint = call.fingerprint(hash, OWN_WINDOW, world, &it.calls.counts);
            let label = LoweringLabel { algorithm: "own", window: OWN_WINDOW, fingerprint, source };
            it.prepare_by(call, schedules, label)
        })
    }
}

/// A hash of all steps of all ranks, equal in every process. Never zero.
fn hash(schedules: &[Schedule]) -> u64 {
    let span = |span: Span| mix(span.buffer as u64 ^ mix(span.chunk as u64));
    let step = |step: &Step| match *step {
        Step::Send { from, to } => [1, span(from), to as u64],
        Step::Recv { into, from } => [2, span(into), from as u64],
        Step::RecvReduce { into, from } => [3, span(into), from as u64],
        Step::Copy { from, into } => [4, span(from), span(into)],
        Step::Reduce { from, into } => [5, span(from), span(into)],
    };
    let words = schedules.iter().flat_map(|schedule| {
        let sizes = [schedule.chunks as u64, schedule.scratch as u64, schedule.steps.len() as u64];
        sizes.into_iter().chain(schedule.steps.iter().flat_map(step))
    });
    words.fold(schedules.len() as u64, |hash, word| mix(hash ^ word).wrapping_add(word)) | 1
}
