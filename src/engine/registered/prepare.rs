//! Preparing a call for memory that ranks reach in place or copy, besides its program for slots and
//! streams.

use super::announcement::ANNOUNCEMENT;
use crate::engine::Engine;
use crate::engine::calls::call::CollectiveCall;
use crate::engine::calls::order::schedules_of;
use crate::engine::calls::prepared::CallProgram;
use crate::error::Result;
use crate::lower::{LoweringInput, Program, RegisteredProgram, lower, lower_registered};
use crate::schedule::collective::Collective;
use crate::schedule::hosts::ReachedMemory;
use crate::schedule::{Layout, Placement};
use crate::tuner::{self, Candidate, Question, ReachingChoice};
use crate::world::calls::CallRecord;

impl Engine {
    /// How `call` runs on registered memory and by copies, for which it asks all ranks where its buffers
    /// lie; `None` where that takes longer than it saves. Equal on all ranks, which all prepare the call.
    pub(in crate::engine) fn prepare_asking(
        &mut self,
        call: CollectiveCall,
        record: &CallRecord,
    ) -> Result<[Option<Box<CallProgram>>; 2]> {
        if call.op.scales() {
            return Ok([None, None]);
        }
        let (mut registered, mut copied) = (None, None);
        if !self.registrations.is_empty() {
            let choice = self.chooser().reaching(call, ReachedMemory::Registered);
            registered = self.best_reaching(call, &choice, ReachedMemory::Registered);
        }
        if self.registrations.copies.objection().is_none() {
            copied = self.prepare_copying(call, record)?;
        }
        if registered.is_some() || copied.is_some() {
            self.make_asking();
        }
        Ok([registered, copied].map(|program| program.map(Box::new)))
    }

    /// How `call` copies; `None` if copies do not pay or cannot be made.
    fn prepare_copying(
        &mut self,
        call: CollectiveCall,
        record: &CallRecord,
    ) -> Result<Option<CallProgram>> {
        let best = |engine: &Self| {
            let choice = engine.chooser().reaching(call, ReachedMemory::Copied);
            engine.best_reaching(call, &choice, ReachedMemory::Copied)
        };
        let copied = best(self);
        let prices = self.conditions.costs.copy;
        if copied.is_none() || !self.can_copy(record)? {
            return Ok(None);
        }
        // Ranks that try to copy measure what it costs.
        let is_priced = prices == self.conditions.costs.copy;
        Ok(if is_priced { copied } else { best(self) })
    }

    /// The best plan that serves ranks in place, too, or else the best.
    fn best_reaching(
        &self,
        call: CollectiveCall,
        choice: &ReachingChoice,
        access: ReachedMemory,
    ) -> Option<CallProgram> {
        let mut chosen: Option<CallProgram> = None;
        for candidate in &choice.candidates {
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
        let world = self.boards.world();
        let collective = Collective::AllGather;
        let bytes = world * ANNOUNCEMENT;
        let boards = &self.boards;
        let question =
            Question { collective, boards, bytes, crowding: self.conditions.crowding, gpus: None };
        let plan = tuner::plan(&question, None, &self.conditions.prices());
        let plan = plan.expect("no algorithm was asked for");
        let schedules = schedules_of(plan.algorithm, collective, boards, None);
        let layout = Layout::even(bytes, world);
        let input = LoweringInput {
            collective,
            schedules: &schedules,
            layout: &layout,
            element: 1,
            boards,
            window: plan.window,
            fingerprint: 0,
        };
        let program = lower(&input, self.rank, Placement::Apart);
        let program: Program = program.expect("the algorithms of the table complete");
        self.registrations.asking = Some(Box::new(program));
    }
}
