//! Preparing a call for registered memory, besides its program for private memory.

use super::RegisteredCall;
use super::announcement::ANNOUNCEMENT;
use crate::comm::engine::Engine;
use crate::comm::engine::calls::call::CollectiveCall;
use crate::comm::engine::calls::order::schedules_of;
use crate::lower::{LoweringInput, Program, RegisteredProgram, lower, lower_registered};
use crate::schedule::collective::Collective;
use crate::schedule::{Layout, Placement};
use crate::tuner::{self, Candidate, MeasuredTime, Question};

impl Engine {
    /// How `call` runs on registered memory; `None` if it never does: no memory is registered, or
    /// asking all ranks takes longer than it saves. Equal on all ranks.
    pub(in crate::comm::engine) fn prepare_registered(
        &mut self,
        call: CollectiveCall,
    ) -> Option<Box<RegisteredCall>> {
        if self.registrations.is_empty() || call.op.scales() {
            return None;
        }
        let choice = self.chooser().registered(call);
        let mut chosen: Option<RegisteredCall> = None;
        for candidate in &choice.candidates {
            // The best plan that serves ranks in place, too, or else the best.
            if let Some(lowered) = self.lower_registered(call, candidate) {
                let serves_all = lowered.allows_in_place;
                if serves_all || chosen.is_none() {
                    chosen = Some(lowered);
                }
                if serves_all {
                    break;
                }
            }
        }
        let chosen = chosen?;
        self.make_asking();
        Some(Box::new(chosen))
    }

    fn lower_registered(
        &self,
        call: CollectiveCall,
        candidate: &Candidate,
    ) -> Option<RegisteredCall> {
        let plan = candidate.plan;
        let schedules = schedules_of(plan.algorithm, call.collective, &self.boards);
        let world = self.boards.world();
        let layout = call.layout(world, schedules[0].chunks, self.calls.counts());
        let element = call.kind.size();
        let input = LoweringInput {
            collective: call.collective,
            schedules: &schedules,
            layout: &layout,
            element,
            boards: &self.boards,
            window: plan.window,
            fingerprint: call.fingerprint(plan, world, self.calls.counts()),
        };
        let RegisteredProgram { program, allows_in_place } = lower_registered(&input, self.rank)?;
        let algorithm = plan.algorithm.name();
        let notes = self.notes(call, algorithm, layout.count() * element, &program);
        Some(RegisteredCall {
            algorithm,
            program,
            allows_in_place,
            runs: 0,
            ran_last: false,
            measured: MeasuredTime::default(),
            notes,
        })
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
        let question = Question { collective, boards, bytes, crowding: self.conditions.crowding };
        let plan = tuner::plan(&question, None, &self.conditions.costs);
        let plan = plan.expect("no algorithm was asked for");
        let schedules = schedules_of(plan.algorithm, collective, boards);
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
