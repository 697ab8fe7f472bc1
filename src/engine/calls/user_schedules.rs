//! The user's schedules: proved once, then prepared like those of the table.

use crate::engine::Engine;
use crate::engine::calls::call::CollectiveCall;
use crate::engine::calls::order::objection_to_proof;
use crate::engine::calls::prepare::LoweringLabel;
use crate::engine::calls::prepared::{ProgramKey, ProgramSource};
use crate::engine::calls::recent::RecentlyUsed;
use crate::error::Result;
use crate::schedule::collective::Collective;
use crate::schedule::verify::{Proof, verify};
use crate::schedule::{Placement, Schedule, Span, Step};
use crate::tuner::OWN_WINDOW;
use maypole_kernels::mix;
use std::sync::Arc;

#[derive(Clone, Copy, Debug)]
struct ProvedSchedules {
    hash: u64,
    proof: Proof,
}

/// A cache of the user's proved schedules.
#[derive(Debug, Default)]
pub(in crate::engine) struct UserSchedules {
    proved: RecentlyUsed<(Collective, Arc<[Schedule]>), ProvedSchedules>,
}

impl UserSchedules {
    /// Proves `schedules`, unless they were proved before. The cache takes at most `budget` bytes,
    /// or has one entry.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) with the checker's words.
    fn prove(
        &mut self,
        rank: usize,
        call: CollectiveCall,
        schedules: &Arc<[Schedule]>,
        budget: usize,
    ) -> Result<ProvedSchedules> {
        let key = (call.collective, Arc::clone(schedules));
        if let Some(known) = self.proved.get(&key) {
            return Ok(*known);
        }
        // Schedules that are right between separate buffers are right in place, too: lowering makes
        // a staging copy of an input that would be overwritten too early.
        let proof = verify(call.collective, schedules, Placement::Apart).map_err(|flaw| {
            call.invalid(rank, format!("the schedules do something else: {flaw}"))
        })?;
        let known = ProvedSchedules { hash: hash(schedules), proof };
        let bytes = bytes(schedules);
        while self.proved.evict(bytes, budget).is_some() {}
        self.proved.insert(key, known, bytes);
        Ok(known)
    }
}

impl Engine {
    /// Makes `call` by the user's schedules, one for each rank, the current call. Proves and lowers
    /// them if they are new.
    pub(crate) fn make_current_by(
        &mut self,
        call: CollectiveCall,
        schedules: Vec<Schedule>,
    ) -> Result<()> {
        self.check_usable(|| call.to_string())?;
        call.check_operation(self.rank)?;
        let schedules = Arc::from(schedules);
        let budget = self.settings.program_memory();
        let ProvedSchedules { hash, proof } =
            self.user_schedules.prove(self.rank, call, &schedules, budget)?;
        if let Some(objection) = objection_to_proof(call, proof) {
            return Err(call.invalid(self.rank, format!("the user's algorithm {objection}")));
        }
        let source = ProgramSource::User(hash);
        self.use_program(ProgramKey { call, source }, |it| {
            let world = it.boards.world();
            let fingerprint = call.fingerprint_by(hash, OWN_WINDOW, world, it.calls.counts());
            let label = LoweringLabel { algorithm: "own", window: OWN_WINDOW, fingerprint, source };
            it.prepare_by(call, &schedules, label)
        })
    }
}

/// Bytes of all steps of all ranks.
fn bytes(schedules: &[Schedule]) -> usize {
    let steps: usize = schedules.iter().map(|schedule| schedule.steps.len()).sum();
    size_of_val(schedules) + steps * size_of::<Step>()
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
