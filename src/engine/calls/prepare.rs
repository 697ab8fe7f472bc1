//! Preparing a call at its first use: choose a plan, lower the schedules, connect the ranks.

use crate::algorithms::Algorithm;
use crate::engine::Engine;
use crate::engine::calls::call::{CollectiveCall, hash_of};
use crate::engine::calls::order::schedules_of;
use crate::engine::calls::prepared::{CallProgram, PreparedCall, ProgramSource, ReachingPrograms};
use crate::engine::calls::report::CallPath;
use crate::engine::calls::workspace::WorkspaceNeed;
use crate::engine::ways::{CallWays, Datapath, first_store, possible_ways};
use crate::error::Result;
use crate::execute::record::ProgramNotes;
use crate::execute::{StoreWay, large_publications};
use crate::lower::{LoweringInput, Program, lower, lower_symmetric};
use crate::schedule::hosts::Boards;
use crate::schedule::{Layout, Placement, Schedule};
use crate::tuner::Plan;
use crate::world::calls::CallRecord;
use maypole_kernels::{BinaryOp, BuiltInReducer};
use maypole_transports::turns;
use std::cell::Cell;
use std::sync::Arc;

/// Parameters of a program, in addition to its call and schedules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoweringLabel {
    /// The algorithm's name in traces.
    pub(crate) algorithm: &'static str,
    /// Most bytes of a window of the longest chunk.
    pub(crate) window: usize,
    /// The fingerprint that all ranks' calls are compared by.
    pub(crate) fingerprint: u64,
    /// The key of the program, in addition to its call.
    pub(crate) source: ProgramSource,
}

impl Engine {
    /// Prepares `call` by the plan that is chosen for it. Returns its place.
    pub(crate) fn prepare(&mut self, call: CollectiveCall) -> Result<usize> {
        call.check_operation(self.rank)?;
        let plan = self.chooser().plan(call)?;
        let label = self.label(call, plan);
        match self.lower_alone(call, plan.algorithm, label) {
            Some(lowered) => self.connect_lowered(call, lowered, label),
            None => {
                let schedules = schedules_of(plan.algorithm, call.collective, &self.boards, None);
                self.prepare_by(call, &schedules, label)
            }
        }
    }

    /// The parameters of a program of `call` by `plan`.
    pub(crate) fn label(&self, call: CollectiveCall, plan: Plan) -> LoweringLabel {
        let (algorithm, world) = (hash_of(plan.algorithm.name()), self.boards.world());
        LoweringLabel {
            algorithm: plan.algorithm.name(),
            window: plan.window,
            fingerprint: call.fingerprint(algorithm, plan.window, world, &self.calls.counts),
            source: ProgramSource::Table(self.settings.plan),
        }
    }

    /// Lowers `schedules`, which are proved, and connects the ranks that they name.
    pub(crate) fn prepare_by(
        &mut self,
        call: CollectiveCall,
        schedules: &[Schedule],
        label: LoweringLabel,
    ) -> Result<usize> {
        let boards = &self.boards;
        let lowered = self.lower_by(call, (schedules, boards), label, |input, rank, placement| {
            lower(input, rank, placement).ok()
        });
        let lowered = lowered.expect("schedules that the checker accepts complete");
        self.connect_lowered(call, lowered, label)
    }

    /// Lowers `call` by the schedules of this rank's board alone, if those of all ranks follow from them.
    fn lower_alone(
        &self,
        call: CollectiveCall,
        algorithm: Algorithm,
        label: LoweringLabel,
    ) -> Option<(Layout, Program)> {
        let symmetry = algorithm.symmetry(call.collective, &self.boards)?;
        let schedule = |rank| algorithm.schedule_on(call.collective, self.boards.numbers(), rank);
        let schedules: Option<Vec<_>> =
            self.boards.locals(self.rank).into_iter().map(schedule).collect();
        let schedules = schedules?;
        self.lower_by(call, (&schedules, &self.boards), label, |input, rank, placement| {
            lower_symmetric(input, symmetry, rank, placement)
        })
    }

    /// The program of `call` for ranks on `boards`, and how it cuts the whole into chunks.
    pub(crate) fn lower_by<P>(
        &self,
        call: CollectiveCall,
        (schedules, boards): (&[Schedule], &Boards),
        label: LoweringLabel,
        lower: impl FnOnce(&LoweringInput<'_>, usize, Placement) -> Option<P>,
    ) -> Option<(Layout, P)> {
        let layout = call.layout(self.boards.world(), schedules[0].chunks, &self.calls.counts);
        let input = LoweringInput {
            collective: call.collective,
            schedules,
            layout: &layout,
            element: call.element_bytes(),
            boards,
            window: label.window,
            fingerprint: label.fingerprint,
        };
        let placement = if call.in_place { Placement::InPlace } else { Placement::Apart };
        let program = lower(&input, self.rank, placement)?;
        Some((layout, program))
    }

    /// Connects the ranks that the program names, and caches it. Returns its place.
    fn connect_lowered(
        &mut self,
        call: CollectiveCall,
        (layout, program): (Layout, Program),
        label: LoweringLabel,
    ) -> Result<usize> {
        let bytes = layout.count() * call.element_bytes();
        let record = Arc::new(self.record_of(call, label, bytes));
        self.connect_for(&record, &program)?;
        let reaching = match label.source {
            ProgramSource::Table(_) => {
                self.prepare_reaching(call, &record, large_publications(&program) > 0)?
            }
            ProgramSource::User(_) => ReachingPrograms::default(),
        };
        let need = self.workspace_need(call, &layout, &program, &reaching);
        if !self.executor.streams().reserve(&program) {
            return Err(self.health.no_memory(&call.to_string(), program.longest_staged));
        }
        if !self.calls.reserve(need) {
            let bytes = need.scratch.saturating_add(need.staging);
            return Err(self.health.no_memory(&call.to_string(), bytes));
        }
        let (ways, store) = self.ways_of(&program, &reaching);
        let ways = ways.map(|ways| {
            self.make_asking();
            Box::new(((self.chooser().kind(call), label.source), ways))
        });
        let prepared = PreparedCall {
            call,
            plan: self.settings.plan,
            source: label.source,
            record,
            staged: self.call_program(call, label.algorithm, bytes, program),
            reaching,
            ways,
            store,
            path: CallPath::Staged,
            reducer: reducer(call).into(),
            need,
        };
        Ok(self.calls.add(prepared, self.settings.program_memory()))
    }

    /// A program of `call`, whose vector or blocks have `bytes` bytes.
    pub(crate) fn call_program(
        &self,
        call: CollectiveCall,
        algorithm: &'static str,
        bytes: usize,
        program: Program,
    ) -> CallProgram {
        let notes = self.recorder.as_ref().map(|_| {
            Arc::new(ProgramNotes {
                operation: call.to_string(),
                algorithm,
                bytes,
                rank: self.rank,
                locals: self.boards.locals(self.rank),
                program: program.clone(),
            })
        });
        CallProgram { algorithm, program, runs: Cell::new(0), notes }
    }

    /// The ways in which the bytes of a call with these programs may move, if there are several, and how large
    /// publications are stored where none is chosen, if there are any. Equal on all ranks of a board.
    fn ways_of(
        &self,
        staged: &Program,
        reaching: &ReachingPrograms,
    ) -> (Option<CallWays>, Option<StoreWay>) {
        let publications = large_publications(staged);
        let has_deep_ring = self.executor.has_deep_ring(staged);
        let forced = self.settings.way;
        let copies = reaching.copied.is_some();
        let private = possible_ways((publications > 0, has_deep_ring), copies, forced);
        let store = (publications > 0).then(|| first_store(&private));
        let may_register = reaching.registered.is_some()
            && forced.is_none_or(|forced| forced == Datapath::Registered);
        // Threads that take turns have no time of their own.
        let is_timed = turns::current().is_none();
        let ways = CallWays { private, publications, may_register };
        (Some(ways).filter(|ways| is_timed && ways.needs_exchanges()), store)
    }

    /// The working memory of `call`, by whichever program it runs.
    fn workspace_need(
        &self,
        call: CollectiveCall,
        layout: &Layout,
        program: &Program,
        reaching: &ReachingPrograms,
    ) -> WorkspaceNeed {
        let needs_staging = program.stages_input || call.stages_scaled(self.boards.world());
        let staging = match needs_staging {
            true => layout.held(call.collective.input(self.rank)).len() * call.element_bytes(),
            false => 0,
        };
        let reaching = reaching.iter().map(|it| it.program.scratch);
        let scratch = reaching.fold(program.scratch, usize::max);
        WorkspaceNeed { scratch, staging, stages_input: program.stages_input }
    }

    /// The description of `call` for other ranks, whose vector or blocks have `bytes` bytes.
    pub(crate) fn record_of(
        &self,
        call: CollectiveCall,
        label: LoweringLabel,
        bytes: usize,
    ) -> CallRecord {
        let counts = &self.calls.counts;
        let record = CallRecord::new(label.fingerprint, call.to_string());
        let record = call.add_arguments(record, counts).choosing("algorithm", label.algorithm);
        let record = match label.source {
            ProgramSource::Table(_) => record.choosing("bytes of a window", label.window),
            ProgramSource::User(hash) => {
                record.choosing("schedule of the user", format!("{:08x}", hash >> 32))
            }
        };
        CallRecord { bytes: bytes as u64, ..record }
    }
}

/// The reducer of `call`. A user's operation is an argument of each call, and a call that only
/// moves data needs none; both get an operation that every type has.
fn reducer(call: CollectiveCall) -> BuiltInReducer {
    let op = if call.collective.reduces() { call.op.binary() } else { None };
    BuiltInReducer::new(call.kind, op.unwrap_or(BinaryOp::Max))
}
