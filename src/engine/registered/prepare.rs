//! Preparing a call for memory that ranks reach in place or copy, besides its program for slots and
//! streams.

use super::announcement::ANNOUNCEMENT;
use crate::engine::Engine;
use crate::engine::calls::call::CollectiveCall;
use crate::engine::calls::order::schedules_of;
use crate::engine::calls::prepared::{CallProgram, ReachingPrograms};
use crate::error::Result;
use crate::lower::{RegisteredProgram, lower_registered};
use crate::schedule::hosts::ReachedMemory;
use crate::tuner::Candidate;
use crate::world::calls::CallRecord;

impl Engine {
    /// How `call` runs on registered memory, for which it asks all ranks where its buffers lie, and by
    /// copies; not where that takes longer than it saves. Equal on all ranks, which all prepare the call.
    pub(in crate::engine) fn prepare_asking(
        &mut self,
        call: CollectiveCall,
        record: &CallRecord,
    ) -> Result<ReachingPrograms> {
        if call.hides_inputs(self.boards.world()) {
            return Ok(ReachingPrograms::default());
        }
        let (mut registered, mut copied) = (None, None);
        if !self.registrations.is_empty() {
            let choice = self.chooser().reaching(call, ReachedMemory::Registered);
            registered = self.best_reaching(call, &choice.candidates, ReachedMemory::Registered);
        }
        if self.registrations.copies.objection().is_none() {
            copied = self.prepare_copying(call, record)?;
        }
        if registered.is_some() || copied.is_some() {
            self.make_asking();
        }
        let (copied, copies_first) = copied.unzip();
        let tried = copies_first.map(|first| Box::new((self.chooser().kind(call), first)));
        let [registered, copied] = [registered, copied].map(|program| program.map(Box::new));
        Ok(ReachingPrograms { registered, copied, tried })
    }

    /// How `call` copies, and whether it begins so; `None` if copies are not worth a trial or cannot be made.
    fn prepare_copying(
        &mut self,
        call: CollectiveCall,
        record: &CallRecord,
    ) -> Result<Option<(CallProgram, bool)>> {
        let choose = |engine: &Self| engine.chooser().reaching(call, ReachedMemory::Copied);
        let mut choice = choose(self);
        if choice.worth_trying().is_empty() || !self.can_copy(record)? {
            return Ok(None);
        }
        // Ranks that found out whether they can have measured what it costs.
        choice = choose(self);
        let copied = self.best_reaching(call, choice.worth_trying(), ReachedMemory::Copied);
        Ok(copied.map(|copied| (copied, !choice.candidates.is_empty())))
    }

    /// The best plan that serves ranks in place, too, or else the best.
    fn best_reaching(
        &self,
        call: CollectiveCall,
        candidates: &[Candidate],
        access: ReachedMemory,
    ) -> Option<CallProgram> {
        let mut chosen: Option<CallProgram> = None;
        for candidate in candidates {
            if let Some(lowered) = self.lower_reaching(call, candidate, access) {
                let serves_all = lowered.allows_in_place;
                if serves_all || chosen.is_none() {
                    chosen = Some(lowered);
                }
                if serves_all {
                    break;
                }
            }
        }
        chosen
    }

    fn lower_reaching(
        &self,
        call: CollectiveCall,
        candidate: &Candidate,
        access: ReachedMemory,
    ) -> Option<CallProgram> {
        let plan = candidate.plan;
        let schedules = schedules_of(plan.algorithm, call.collective, &self.boards, None);
        let label = self.label(call, plan);
        let lowered = self.lower_by(call, (&schedules, &self.boards), label, |input, rank, _| {
            lower_registered(input, rank, access)
        });
        let (layout, RegisteredProgram { program, allows_in_place }) = lowered?;
        let bytes = layout.count() * call.kind.size();
        Some(self.call_program(call, label.algorithm, bytes, program, allows_in_place))
    }

    /// Lowers the program by which ranks tell each other about their buffers.
    fn make_asking(&mut self) {
        if self.registrations.asking.is_some() {
            return;
        }
        let (_, program) = self.lower_all_gather(self.boards.world() * ANNOUNCEMENT, 0);
        self.registrations.asking = Some(Box::new(program));
    }
}
