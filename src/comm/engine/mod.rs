//! From a call to a program that runs: choose, lower once, connect, execute, and explain what
//! failed.

pub(crate) mod call;
pub(crate) mod choice;
pub(crate) mod counts;
pub(crate) mod failure;
pub(crate) mod memory;
pub(crate) mod order;
pub(crate) mod own_schedules;
pub(crate) mod surroundings;
pub(crate) mod watched;

use crate::algorithms::Algorithm;
use crate::comm::api::counters::Counters;
use crate::comm::control::Control;
use crate::comm::element::{Factor, ReduceOp};
use crate::comm::engine::call::{Call, Reduction, held};
use crate::comm::engine::choice::Means;
use crate::comm::engine::counts::{Count, Counts, Interned};
use crate::comm::engine::own_schedules::Own;
use crate::comm::engine::surroundings::Surroundings;
use crate::comm::engine::watched::Watching;
use crate::comm::error::{Error, Result};
use crate::execute::record::ProgramNotes;
use crate::execute::{Buffers, ExecuteError, Executor};
use crate::lower::{LoweringInput, Program, lower};
use crate::schedule::collective::{Collective, HeldChunks};
use crate::schedule::hosts::Boards;
use crate::schedule::{Placement, Schedule};
use crate::tuner::{MeasuredTime, PlanOverride};
use crate::world::service::Pulse;
use maypole_kernels::{
    BinaryOp, BuiltInReducer, DataType, Reducer, Region, Scalar, View, ViewMut, divide, scale,
};
use maypole_transports::Board;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// No call that is ready.
const NONE: usize = usize::MAX;
/// Different counts for which programs are kept.
const MOST_GIVEN: usize = 256;

/// What a group of ranks runs calls with, on one of them.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) rank: usize,
    pub(crate) world: usize,
    /// Which ranks share a board.
    pub(crate) boards: Boards,
    pub(crate) control: Arc<dyn Control>,
    pub(crate) timeout: Duration,
    /// What the user asked for by name.
    pub(crate) wanted: Option<PlanOverride>,
    /// The algorithm to use wherever it fits.
    pub(crate) preferred: Option<Algorithm>,
    /// Whether reductions must be the plain loop over the ranks.
    pub(crate) deterministic: bool,
    /// What choices depend on, equal on all ranks.
    pub(crate) surroundings: Surroundings,
    /// Most bytes of shared memory for this rank.
    pub(crate) memory: Option<usize>,
    /// Operations so far.
    pub(crate) sequence: u64,
    pub(crate) executor: Executor,
    connected: bool,
    pub(crate) ready: Vec<Ready>,
    known: HashMap<(Call, Option<PlanOverride>), usize>,
    pub(crate) given: Interned,
    /// Schedules of the user's own.
    pub(crate) own: Own,
    /// The call made last, by its place among those that are ready; [`NONE`] if the next one must
    /// be looked up.
    pub(crate) current: usize,
    /// The same while nobody looks at calls, else [`NONE`]: one comparison tells whether a call may
    /// run as it stands.
    quick: usize,
    /// The first failure.
    pub(crate) failed: Option<Error>,
    /// When calls made now must end, and what they were given; the innermost is last.
    pub(crate) limits: Vec<(Instant, Duration)>,
    /// Whether it is with a thread that runs requests.
    pub(crate) beside: bool,
    /// Groups split off so far: they are numbered alike on all ranks.
    pub(crate) splits: u64,
    /// What calls have moved whose programs are not kept any more.
    pub(crate) past: Counters,
    pub(crate) pulse: Arc<Pulse>,
    /// Who looks at calls, if anybody does.
    pub(crate) watching: Option<Box<Watching>>,
}

/// A call that has its program.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) call: Call,
    pub(crate) wanted: Option<PlanOverride>,
    /// What schedules of the user's it runs by; zero for those of the table.
    pub(crate) own: u64,
    /// What it took, while calls were timed.
    pub(crate) measured: MeasuredTime,
    /// How often it ran to its end.
    pub(crate) runs: u64,
    pub(crate) program: Program,
    /// What the recorder wants to know.
    pub(crate) notes: Option<Arc<ProgramNotes>>,
    pub(crate) combine: Reducer,
    scratch: Region,
    /// Where an input lies while its own place is being written, or once it is multiplied.
    aside: Region,
    /// The result is divided by this.
    pub(crate) divisor: Option<u64>,
}

impl Ready {
    /// What the program works on: the caller's memory, or an input that has been put aside first.
    #[inline(always)]
    pub(crate) fn buffers<'a>(
        &'a self,
        factor: Option<Scalar>,
        input: View<'a>,
        output: ViewMut<'a>,
    ) -> Buffers<'a> {
        let mut buffers = Buffers { input, output, scratch: self.scratch.view() };
        if let Some(factor) = factor {
            scale(self.aside.view(), input, factor);
            buffers.input = self.aside.view().as_view();
        } else if self.program.stages_input {
            self.aside.view().copy_from(input);
            buffers.input = self.aside.view().as_view();
        }
        buffers
    }
}

impl Engine {
    pub(crate) fn new(
        rank: usize,
        boards: Boards,
        control: Arc<dyn Control>,
        surroundings: Surroundings,
    ) -> Self {
        let world = boards.world();
        let waiting = surroundings.waiting;
        let gone = Arc::clone(&control);
        let gone = Box::new(move |peer| gone.has_left(peer));
        let alone = Executor::new(rank, waiting, control.alarm(), gone);
        let connected = boards.locals(rank).len() == 1;
        Self {
            rank,
            world,
            boards,
            pulse: control.pulse(),
            control,
            timeout: waiting.timeout(),
            wanted: None,
            preferred: None,
            deterministic: false,
            surroundings,
            memory: None,
            sequence: 0,
            executor: alone,
            connected,
            ready: Vec::new(),
            known: HashMap::new(),
            given: Interned::default(),
            own: Own::default(),
            current: NONE,
            quick: NONE,
            failed: None,
            limits: Vec::new(),
            beside: false,
            splits: 0,
            past: Counters::new(world),
            watching: None,
        }
    }

    /// Runs one call.
    #[inline]
    pub(crate) fn call(&mut self, call: Call, input: View<'_>, output: ViewMut<'_>) -> Result<()> {
        self.perform(call, None, input, output)
    }

    /// Runs one call whose input is first multiplied by `factor`. The product lies aside, so
    /// nothing is in place.
    pub(crate) fn call_scaled(
        &mut self,
        call: Call,
        factor: Factor,
        input: View<'_>,
        output: ViewMut<'_>,
    ) -> Result<()> {
        let scalar = factor.scalar(call.kind).ok_or_else(|| {
            let why = format!(
                "the factor {} is no number that {} holds",
                factor.value(),
                call.kind.name()
            );
            self.invalid(call, why)
        })?;
        self.perform(Call { in_place: false, ..call }, Some(scalar), input, output)
    }

    /// Makes `call` the current one, if it is not.
    #[inline]
    pub(crate) fn make_current(&mut self, call: Call) -> Result<()> {
        if self.is_at(self.current, call) { Ok(()) } else { self.turn_to(call) }
    }

    #[inline(always)]
    fn is_at(&self, at: usize, call: Call) -> bool {
        self.ready.get(at).is_some_and(|ready| ready.call == call && ready.wanted == self.wanted)
    }

    pub(crate) fn set_current(&mut self, at: usize) {
        self.current = at;
        self.quick = if self.watching.is_some() { NONE } else { at };
    }

    /// The next call must be looked up, and says anew what it is.
    pub(crate) fn forget_current(&mut self) {
        self.set_current(NONE);
    }

    #[inline(always)]
    fn perform(
        &mut self,
        call: Call,
        factor: Option<Scalar>,
        input: View<'_>,
        output: ViewMut<'_>,
    ) -> Result<()> {
        if !self.is_at(self.quick, call) {
            return self.perform_anew(call, factor, input, output);
        }
        self.perform_at(self.quick, call, factor, input, output)
    }

    #[cold]
    #[inline(never)]
    fn perform_anew(
        &mut self,
        call: Call,
        factor: Option<Scalar>,
        input: View<'_>,
        output: ViewMut<'_>,
    ) -> Result<()> {
        self.make_current(call)?;
        match self.watching {
            Some(_) => self.perform_watched(call, factor, input, output),
            None => self.perform_at(self.current, call, factor, input, output),
        }
    }

    #[inline(always)]
    fn perform_at(
        &mut self,
        at: usize,
        call: Call,
        factor: Option<Scalar>,
        input: View<'_>,
        output: ViewMut<'_>,
    ) -> Result<()> {
        self.pulse.enter(self.sequence);
        let ready = &self.ready[at];
        let buffers = ready.buffers(factor, input, output);
        let done = self.executor.run(&ready.program, &ready.combine, &buffers);
        self.finish(at, call, output, done)
    }

    /// What comes after a run.
    #[inline(always)]
    pub(crate) fn finish(
        &mut self,
        at: usize,
        call: Call,
        output: ViewMut<'_>,
        done: std::result::Result<(), Box<ExecuteError>>,
    ) -> Result<()> {
        if let Err(failure) = done {
            return Err(self.explain_program(call, *failure));
        }
        self.pulse.exit(self.sequence);
        self.sequence += 1;
        let ready = &mut self.ready[at];
        ready.runs += 1;
        if let Some(divisor) = ready.divisor {
            divide(output, call.kind, divisor);
        }
        Ok(())
    }

    /// The name that a call knows these counts by.
    pub(crate) fn name_counts(&mut self, counts: Counts) -> Count {
        // Counts of every call may be new ones; what was made for old ones is given up now and
        // then.
        if self.given.len() > MOST_GIVEN {
            self.given = Interned::default();
            self.forget();
        }
        self.given.number(counts)
    }

    /// Gives up what was made ready.
    pub(crate) fn forget(&mut self) {
        self.past = self.counters();
        (self.ready, self.known) = (Vec::new(), HashMap::new());
        self.forget_current();
    }

    pub(crate) fn invalid(&self, call: Call, why: String) -> Error {
        Error::Invalid { rank: self.rank, operation: call.collective.name(), why }
    }

    /// Makes `call` the current one.
    #[cold]
    #[inline(never)]
    fn turn_to(&mut self, call: Call) -> Result<()> {
        self.check()?;
        let at = match self.known.get(&(call, self.wanted)) {
            Some(known) => *known,
            None => self.prepare(call)?,
        };
        self.set_current(at);
        self.control.record(self.sequence, call.to_string());
        Ok(())
    }

    /// Refuses operations that mean nothing for the type.
    pub(crate) fn check_operation(&self, call: Call) -> Result<()> {
        if call.op.binary().is_none_or(|op| op.supports(call.kind)) {
            return Ok(());
        }
        let why = match call.kind {
            DataType::Bool => {
                format!("bool has no {}: use 'and', 'or' or 'xor', or sum integers", call.op)
            }
            kind => format!("'{}' works on the bits of integers, not on {}", call.op, kind.name()),
        };
        Err(self.invalid(call, why))
    }

    fn prepare(&mut self, call: Call) -> Result<usize> {
        self.check_operation(call)?;
        let plan = self.plan(call)?;
        let schedules = self.schedules(call.collective, plan.algorithm);
        let fingerprint = call.fingerprint(plan, self.world, &self.given);
        let means = Means { name: plan.algorithm.name(), window: plan.window, fingerprint };
        let ready = self.prepare_by(call, &schedules, means)?;
        self.known.insert((call, self.wanted), ready);
        Ok(ready)
    }

    /// Lowers `schedules`, which are proved, and connects what they need.
    pub(crate) fn prepare_by(
        &mut self,
        call: Call,
        schedules: &[Schedule],
        means: Means,
    ) -> Result<usize> {
        let layout = call.layout(self.world, schedules[0].chunks, &self.given);
        let collective = call.collective;
        let element = call.kind.size();
        let boards = &self.boards;
        let Means { window, fingerprint, .. } = means;
        let request = LoweringInput {
            collective,
            schedules,
            layout: &layout,
            element,
            boards,
            window,
            fingerprint,
        };
        let placement = if call.in_place { Placement::InPlace } else { Placement::Apart };
        let program = lower(&request, self.rank, placement).expect("what is proved completes");
        self.connect(&program).map_err(|why| self.unconnected(call.to_string(), why))?;
        let aside = program.stages_input || call.op.scales();
        let input = if aside {
            held(call.collective.input(self.rank), &layout) * call.kind.size()
        } else {
            0
        };
        self.ready.push(Ready {
            call,
            wanted: self.wanted,
            own: 0,
            measured: MeasuredTime::default(),
            runs: 0,
            // A function of the user's comes with each call.
            combine: BuiltInReducer::new(call.kind, call.op.binary().unwrap_or(BinaryOp::Sum))
                .into(),
            scratch: Region::new(program.scratch),
            aside: Region::new(input),
            divisor: self.divisor(call),
            notes: self.notes(call, means.name, layout.count() * call.kind.size(), &program),
            program,
        });
        Ok(self.ready.len() - 1)
    }

    pub(crate) fn schedules(&self, collective: Collective, algorithm: Algorithm) -> Vec<Schedule> {
        let of = |rank| {
            algorithm
                .schedule_on(collective, self.boards.numbers(), rank)
                .expect("the tuner knows the table")
        };
        (0..self.world).map(of).collect()
    }

    /// Averages divide where the result is.
    fn divisor(&self, call: Call) -> Option<u64> {
        let averages = call.op == Reduction::Known(ReduceOp::Avg) && call.collective.reduces();
        let holds = call.collective.output(self.rank) != HeldChunks::Nothing;
        (averages && holds).then_some(self.world as u64)
    }

    /// Makes the board at the first call, and the streams that `program` needs and that are not
    /// there yet.
    fn connect(&mut self, program: &Program) -> std::result::Result<(), String> {
        let deadline = self.deadline();
        if !self.connected {
            self.check_memory()?;
            let locals = self.boards.locals(self.rank);
            let me = self.boards.index(self.rank);
            let board: Board = self.control.board(&locals, me, deadline)?;
            self.executor.share(board, locals, me);
            self.connected = true;
        }
        for link in &program.streams {
            let peer = link.peer as usize;
            if !self.executor.streams().contains(peer) {
                let stream = self.control.stream(peer, deadline)?;
                self.executor.streams().insert(peer, stream);
            }
        }
        Ok(())
    }

    /// Leaves in order. Idempotent enough for `close` and then `Drop`.
    pub(crate) fn leave(&mut self) {
        self.executor.streams().finish();
        self.control.leave(self.sequence);
    }
}
