//! Measures what slots cost between the ranks of a group, before its first long calls.
//!
//! A table of costs is of another machine, or of this one in another state: on some, calls through slots take
//! nine times as long as the built-in table says. So before the first call of each of three [lengths](LENGTHS), and
//! again after many more, ranks that share one board make a few all-gathers of that length in each way of
//! storing. The quickest way counts, by the time of the rank that found it slowest. It scales the prices that
//! are shown, and those by which copies are weighed before they were tried. Which algorithm runs does not
//! depend on it, so that the same calls give the same bits on every run.
//!
//! All ranks count the calls of a group alike, so they measure before the same call.

use crate::element::DataType;
use crate::engine::Engine;
use crate::engine::calls::call::CollectiveCall;
use crate::engine::calls::order::schedules_of;
use crate::error::Result;
use crate::execute::{Buffers, MOST_WAYS, StoreWay};
use crate::lower::{LoweringInput, Program, lower};
use crate::schedule::collective::Collective;
use crate::schedule::hosts::Boards;
use crate::schedule::{Layout, Placement};
use crate::tuner::{self, LENGTHS, Plan, Question};
use crate::world::calls::CallRecord;
use maypole_kernels::{BinaryOp, BuiltInReducer, Reducer, View, ViewMut, mix};
use maypole_transports::turns;
use std::sync::Arc;
use std::time::Instant;

/// Rows of calls in each way of storing, by length. The quickest counts, because a rank may be interrupted.
const ROWS: [usize; LENGTHS.len()] = [10, 6, 2];
/// Calls of a row. As in a program, a rank begins one before others have ended the last one.
const CALLS: u32 = 2;

/// Nanoseconds of a call, by way of storing; the most there are where a rank cannot store so.
type WayTimes = [u64; MOST_WAYS];

impl Engine {
    /// Measures slots with calls of the length with the number `at`, if there is one, before `call`, which all
    /// ranks make now.
    pub(super) fn measure_slots(
        &mut self,
        at: Option<usize>,
        call: CollectiveCall,
        record: &Arc<CallRecord>,
    ) -> Result<()> {
        let world = self.boards.world();
        let Some(at) = at else { return Ok(()) };
        // Threads that take turns have no time of their own.
        if world < 2 || self.executor.locals().len() < world || turns::current().is_some() {
            return Ok(());
        }
        let bytes = LENGTHS[at] - LENGTHS[at] % world;
        let (plan, program) = self.lower_all_gather(bytes, mix(record.fingerprint ^ at as u64) | 1);
        let mine = self.time_stores((call, record), &program, bytes, ROWS[at])?;
        let told: Vec<WayTimes> = self.tell_all(CallRecord::clone(record), &mine)?;
        let slowest = |way| told.iter().map(|times| times[way]).max().unwrap_or(u64::MAX);
        let least = (0..MOST_WAYS).map(slowest).min().unwrap_or(u64::MAX);
        let question = question(&self.boards, bytes, self.conditions.crowding);
        let prices = self.conditions.prices();
        self.conditions.slots.note(at, (&question, plan), &prices, least);
        Ok(())
    }

    /// Runs `program` in each way of storing, and returns how long this rank needed.
    fn time_stores(
        &mut self,
        (call, record): (CollectiveCall, &Arc<CallRecord>),
        program: &Program,
        bytes: usize,
        rows: usize,
    ) -> Result<WayTimes> {
        let input = vec![0; bytes / self.boards.world()];
        let (mut output, mut scratch) = (vec![0; bytes], vec![0; program.scratch]);
        let buffers = Buffers {
            input: View::of(&input),
            output: ViewMut::of(&mut output),
            scratch: ViewMut::of(&mut scratch),
        };
        let copies: Reducer = BuiltInReducer::new(DataType::U8, BinaryOp::Max).into();
        let mut times = [u64::MAX; MOST_WAYS];
        self.health.record(record);
        self.health.enter();
        for way in StoreWay::ALL {
            for _ in 0..rows {
                let start = Instant::now();
                for _ in 0..CALLS {
                    let done = self.executor.run_storing(way, program, &copies, &buffers);
                    done.map_err(|failed| self.explain_program(call, *failed))?;
                }
                let took = (start.elapsed() / CALLS).as_nanos();
                if self.executor.can_store(way, program) {
                    let took = u64::try_from(took).unwrap_or(u64::MAX);
                    times[way as usize] = times[way as usize].min(took);
                }
            }
        }
        self.health.exit_uncounted();
        Ok(times)
    }

    /// The tuner's all-gather of `bytes` bytes in all, which every rank makes by this rank's program.
    pub(super) fn lower_all_gather(&self, bytes: usize, fingerprint: u64) -> (Plan, Program) {
        let boards = &self.boards;
        let question = question(boards, bytes, self.conditions.crowding);
        let plan = tuner::plan(&question, None, &self.conditions.prices());
        let plan = plan.expect("no algorithm was asked for");
        let collective = Collective::AllGather;
        let schedules = schedules_of(plan.algorithm, collective, boards, None);
        let layout = Layout::even(bytes, boards.world());
        let input = LoweringInput {
            collective,
            schedules: &schedules,
            layout: &layout,
            element: 1,
            boards,
            window: plan.window,
            fingerprint,
        };
        let program = lower(&input, self.rank, Placement::Apart);
        (plan, program.expect("the algorithms of the table complete"))
    }
}

/// The question to the tuner about an all-gather of `bytes` bytes.
fn question(boards: &Boards, bytes: usize, crowding: usize) -> Question<'_> {
    Question { collective: Collective::AllGather, boards, bytes, crowding, gpus: None }
}
