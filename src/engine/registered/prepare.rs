//! Preparing a call for memory that ranks access directly or copy, in addition to its program for
//! slots and streams.

use super::announcement::ANNOUNCEMENT;
use crate::engine::Engine;
use crate::engine::calls::call::CollectiveCall;
use crate::engine::calls::order::schedules_of;
use crate::engine::calls::prepared::{CallProgram, ReachingPrograms};
use crate::engine::ways::Datapath;
use crate::error::Result;
use crate::lower::{LoweringInput, lower, lower_registered};
use crate::schedule::collective::Collective;
use crate::schedule::hosts::{Boards, ReachedMemory};
use crate::schedule::{Layout, Placement};
use crate::tuner::{self, Candidate, Question};
use crate::world::calls::CallRecord;

impl Engine {
    /// How `call` runs on registered memory, unless the exchange of places takes longer than it
    /// saves; and how it copies, if it `is_long` or that is forced. Equal on all ranks, which all
    /// prepare the call.
    pub(crate) fn prepare_reaching(
        &mut self,
        call: CollectiveCall,
        record: &CallRecord,
        is_long: bool,
    ) -> Result<ReachingPrograms> {
        let mut reaching = ReachingPrograms::default();
        if call.hides_inputs(self.boards.world()) {
            return Ok(reaching);
        }
        if !self.registrations.list.is_empty() {
            reaching.registered = self.best_reaching(call, ReachedMemory::Registered);
        }
        let is_copied = is_long || self.settings.way == Some(Datapath::Copied);
        let copies = || self.chooser().reaching(call, ReachedMemory::Copied).best.is_some();
        let may_copy = is_copied && self.registrations.copies.objection().is_none() && copies();
        if may_copy && self.can_copy(record)? {
            reaching.copied = self.best_reaching(call, ReachedMemory::Copied);
        }
        Ok(reaching)
    }

    /// The best plan that serves ranks in place, too, or else the best.
    fn best_reaching(
        &self,
        call: CollectiveCall,
        access: ReachedMemory,
    ) -> Option<Box<CallProgram>> {
        let mut first = None;
        for candidate in &self.chooser().reaching(call, access).candidates {
            match self.lower_reaching(call, candidate, access) {
                Some(lowered) if lowered.program.allows_in_place() => {
                    return Some(Box::new(lowered));
                }
                lowered => first = first.or(lowered),
            }
        }
        first.map(Box::new)
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
        let (layout, program) = lowered?;
        let bytes = layout.count() * call.element_bytes();
        Some(self.call_program(call, label.algorithm, bytes, program))
    }

    /// Lowers the program by which the ranks of a board exchange announcements.
    pub(crate) fn make_asking(&mut self) {
        if self.registrations.asking.is_some() {
            return;
        }
        let boards = Boards::new(&vec![0; self.boards.locals(self.rank).len()]);
        let (collective, world) = (Collective::AllGather, boards.world());
        let bytes = world * ANNOUNCEMENT;
        let crowding = self.conditions.crowding;
        let question = Question { collective, boards: &boards, bytes, crowding, gpus: None };
        let plan = tuner::plan(&question, None, &self.conditions.prices());
        let plan = plan.expect("no algorithm was asked for");
        let schedules = schedules_of(plan.algorithm, collective, &boards, None);
        let layout = Layout::even(bytes, world);
        let input = LoweringInput {
            collective,
            schedules: &schedules,
            layout: &layout,
            element: 1,
            boards: &boards,
            window: plan.window,
            fingerprint: 0,
        };
        let program = lower(&input, self.boards.index(self.rank), Placement::Apart);
        let program = program.expect("the algorithms of the table complete");
        self.registrations.asking = Some(Box::new(program));
    }
}
