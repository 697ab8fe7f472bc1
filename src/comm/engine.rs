//! From a call to a program that runs: choose, lower once, connect, execute, and explain what failed.

use super::call::{Call, Reduction, held};
use super::control::Control;
use super::counts::{Count, Counts, Interned};
use super::surroundings::{Surroundings, boards_of};
use super::watched::Watching;
use crate::algorithms::Algorithm;
use crate::collective::{Collective, Held};
use crate::element::{Factor, ReduceOp};
use crate::error::{Error, Result};
use crate::execute::{Buffers, Executor, Failure, What};
use crate::lower::{Program, Request, lower};
use crate::record::Notes;
use crate::schedule::{Placement, Schedule};
use crate::service::{Cause, CauseKind, Pulse};
use crate::tuner::{Measured, Wanted};
use maypole_kernels::{BinaryOp, Combine, Fold, Region, Scalar, View, ViewMut, divide, scale};
use maypole_transports::Board;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Different counts for which programs are kept.
const MOST_GIVEN: usize = 256;

/// What a group of ranks runs calls with, on one of them.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) rank: usize,
    pub(super) world: usize,
    /// Ranks with equal numbers share a board.
    pub(super) hosts: Vec<usize>,
    pub(super) control: Arc<dyn Control>,
    pub(super) timeout: Duration,
    /// What the user asked for by name.
    pub(super) wanted: Option<Wanted>,
    /// The algorithm to use wherever it fits.
    pub(super) preferred: Option<Algorithm>,
    /// Whether reductions must be the plain loop over the ranks.
    pub(super) deterministic: bool,
    /// What choices depend on, equal on all ranks.
    pub(super) surroundings: Surroundings,
    /// Most bytes of shared memory for this rank.
    pub(super) memory: Option<usize>,
    /// Operations so far.
    pub(super) sequence: u64,
    pub(super) executor: Executor,
    connected: bool,
    pub(super) ready: Vec<Ready>,
    pub(super) known: HashMap<(Call, Option<Wanted>), usize>,
    pub(super) given: Interned,
    pub(super) current: usize,
    pub(super) failed: Option<String>,
    pub(super) pulse: Arc<Pulse>,
    /// Who looks at calls, if anybody does.
    pub(super) watching: Option<Box<Watching>>,
}

/// A call that has its program.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) call: Call,
    pub(super) wanted: Option<Wanted>,
    /// What it took, while calls were timed.
    pub(super) measured: Measured,
    pub(super) program: Program,
    /// What the recorder wants to know.
    pub(super) notes: Option<Arc<Notes>>,
    pub(super) combine: Combine,
    scratch: Region,
    /// Where an input lies while its own place is being written, or once it is multiplied.
    aside: Region,
    /// The result is divided by this.
    pub(super) divisor: Option<u64>,
}

impl Ready {
    /// What the program works on: the caller's memory, or an input that has been put aside first.
    #[inline(always)]
    pub(super) fn buffers<'a>(&'a self, factor: Option<Scalar>, input: View<'a>, output: ViewMut<'a>) -> Buffers<'a> {
        let mut buffers = Buffers { input, output, scratch: self.scratch.view() };
        if let Some(factor) = factor {
            scale(self.aside.view(), input, factor);
            buffers.input = self.aside.view().as_view();
        } else if self.program.aside {
            self.aside.view().copy_from(input);
            buffers.input = self.aside.view().as_view();
        }
        buffers
    }
}

impl Engine {
    pub(super) fn new(rank: usize, hosts: &[usize], control: Arc<dyn Control>, surroundings: Surroundings) -> Self {
        let (hosts, waiting) = (boards_of(hosts), surroundings.waiting);
        let locals: Vec<usize> = (0..hosts.len()).filter(|peer| hosts[*peer] == hosts[rank]).collect();
        let gone = Arc::clone(&control);
        let gone = Box::new(move |peer| gone.has_left(peer));
        let alone = Executor::new(rank, waiting, control.alarm(), gone);
        let connected = locals.len() == 1;
        Self {
            rank,
            world: hosts.len(),
            hosts,
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
            current: usize::MAX,
            failed: None,
            watching: None,
        }
    }

    /// Runs one call.
    #[inline]
    pub(super) fn call(&mut self, call: Call, input: View<'_>, output: ViewMut<'_>) -> Result<()> {
        self.perform(call, None, input, output)
    }

    /// Runs one call whose input is first multiplied by `factor`. The product lies aside, so nothing is in place.
    pub(super) fn call_scaled(
        &mut self,
        call: Call,
        factor: Factor,
        input: View<'_>,
        output: ViewMut<'_>,
    ) -> Result<()> {
        let scalar = factor.scalar(call.kind).ok_or_else(|| {
            let why = format!("the factor {} is no number that {} holds", factor.value(), call.kind.name());
            self.invalid(call, why)
        })?;
        self.perform(Call { in_place: false, ..call }, Some(scalar), input, output)
    }

    /// Makes `call` the current one, if it is not.
    #[inline(always)]
    pub(super) fn make_current(&mut self, call: Call) -> Result<()> {
        let same = self.ready.get(self.current).is_some_and(|ready| ready.call == call && ready.wanted == self.wanted);
        if same { Ok(()) } else { self.turn_to(call) }
    }

    #[inline(always)]
    fn perform(&mut self, call: Call, factor: Option<Scalar>, input: View<'_>, output: ViewMut<'_>) -> Result<()> {
        self.make_current(call)?;
        if self.watching.is_some() {
            return self.perform_watched(call, factor, input, output);
        }
        self.pulse.enter(self.sequence);
        let ready = &self.ready[self.current];
        let buffers = ready.buffers(factor, input, output);
        let done = self.executor.run(&ready.program, &ready.combine, &buffers);
        let divisor = ready.divisor;
        self.finish(call, output, divisor, done)
    }

    /// What comes after a run.
    #[inline(always)]
    pub(super) fn finish(
        &mut self,
        call: Call,
        output: ViewMut<'_>,
        divisor: Option<u64>,
        done: std::result::Result<(), Box<Failure>>,
    ) -> Result<()> {
        if let Err(failure) = done {
            return Err(self.explain_failure(call, *failure));
        }
        self.pulse.exit(self.sequence);
        self.sequence += 1;
        if let Some(divisor) = divisor {
            divide(output, call.kind, divisor);
        }
        Ok(())
    }

    /// The name that a call knows these counts by.
    pub(super) fn name_counts(&mut self, counts: Counts) -> Count {
        // Counts of every call may be new ones; what was made for old ones is given up now and then.
        if self.given.len() > MOST_GIVEN {
            self.given = Interned::default();
            (self.ready, self.known, self.current) = (Vec::new(), HashMap::new(), usize::MAX);
        }
        self.given.number(counts)
    }

    pub(super) fn invalid(&self, call: Call, why: String) -> Error {
        Error::Invalid { rank: self.rank, operation: call.collective.name(), why }
    }

    /// Refuses to go on after a failure.
    pub(super) fn check(&self) -> Result<()> {
        match &self.failed {
            Some(first) => Err(Error::Failed { first: first.clone() }),
            None => Ok(()),
        }
    }

    /// Makes `call` the current one.
    #[cold]
    #[inline(never)]
    fn turn_to(&mut self, call: Call) -> Result<()> {
        self.check()?;
        self.current = match self.known.get(&(call, self.wanted)) {
            Some(known) => *known,
            None => self.prepare(call)?,
        };
        self.control.record(self.sequence, call.to_string());
        Ok(())
    }

    fn prepare(&mut self, call: Call) -> Result<usize> {
        if !call.op.binary().is_none_or(|op| op.supports(call.kind)) {
            let why = format!("'{}' works on the bits of integers, not on {}", call.op, call.kind.name());
            return Err(self.invalid(call, why));
        }
        let plan = self.plan(call)?;
        let schedules = self.schedules(call.collective, plan.algorithm);
        let layout = call.layout(self.world, schedules[0].chunks, &self.given);
        let request = Request {
            collective: call.collective,
            schedules: &schedules,
            layout: &layout,
            element: call.kind.size(),
            hosts: &self.hosts,
            window: plan.window,
            fingerprint: call.fingerprint(plan, self.world, &self.given),
        };
        let placement = if call.in_place { Placement::InPlace } else { Placement::Apart };
        let program =
            lower(&request, self.rank, placement).expect("the algorithms of the table are proved to complete");
        self.connect(&program).map_err(|why| self.unconnected(call.to_string(), why))?;
        let aside = program.aside || call.op.scales();
        let input = if aside { held(call.collective.input(self.rank), &layout) * call.kind.size() } else { 0 };
        self.ready.push(Ready {
            call,
            wanted: self.wanted,
            measured: Measured::default(),
            // A function of the user's comes with each call.
            combine: Fold::new(call.kind, call.op.binary().unwrap_or(BinaryOp::Sum)).into(),
            scratch: Region::new(program.scratch),
            aside: Region::new(input),
            divisor: self.divisor(call),
            notes: self.notes(call, plan, layout.count() * call.kind.size(), &program),
            program,
        });
        self.known.insert((call, self.wanted), self.ready.len() - 1);
        Ok(self.ready.len() - 1)
    }

    pub(super) fn schedules(&self, collective: Collective, algorithm: Algorithm) -> Vec<Schedule> {
        let of = |rank| algorithm.schedule(collective, self.world, rank).expect("the tuner knows the table");
        (0..self.world).map(of).collect()
    }

    /// Averages divide where the result is.
    fn divisor(&self, call: Call) -> Option<u64> {
        let averages = call.op == Reduction::Known(ReduceOp::Avg) && call.collective.reduces();
        let holds = call.collective.output(self.rank) != Held::Nothing;
        (averages && holds).then_some(self.world as u64)
    }

    /// Makes the board at the first call, and the streams that `program` needs and that are not there yet.
    fn connect(&mut self, program: &Program) -> std::result::Result<(), String> {
        let deadline = Instant::now() + self.timeout;
        if !self.connected {
            self.check_memory()?;
            let locals: Vec<usize> =
                (0..self.world).filter(|peer| self.hosts[*peer] == self.hosts[self.rank]).collect();
            let me = locals.iter().position(|peer| *peer == self.rank).expect("a rank is on its own host");
            let board: Board = self.control.board(&locals, me, deadline)?;
            self.executor.share(board, locals, me);
            self.connected = true;
        }
        for link in &program.streams {
            let peer = link.peer as usize;
            if !self.executor.links().contains(peer) {
                let stream = self.control.stream(peer, deadline)?;
                self.executor.links().insert(peer, stream);
            }
        }
        Ok(())
    }

    /// Refuses boards that the user has no memory for.
    fn check_memory(&self) -> std::result::Result<(), String> {
        let Some(limit) = self.memory else { return Ok(()) };
        let (ranks, share) = (self.neighbours(), self.board_share());
        if share <= limit {
            return Ok(());
        }
        Err(format!(
            "a board of {ranks} ranks takes {} bytes, {share} a rank, and MAYPOLE_MEMORY allows {limit}; \
             raise it, or use MAYPOLE_TRANSPORT=tcp",
            Board::bytes(ranks)
        ))
    }

    /// Ranks that share a board with this one, itself among them.
    fn neighbours(&self) -> usize {
        self.hosts.iter().filter(|host| **host == self.hosts[self.rank]).count()
    }

    /// Bytes of the board that count as this rank's.
    pub(super) fn board_share(&self) -> usize {
        let ranks = self.neighbours();
        if ranks == 1 { 0 } else { Board::bytes(ranks).div_ceil(ranks) }
    }

    #[cold]
    #[inline(never)]
    fn explain_failure(&mut self, call: Call, failure: Failure) -> Error {
        let Failure { op: step, peer, what } = failure;
        let (rank, operation, sequence) = (self.rank, call.to_string(), self.sequence);
        let (error, kind) = match what {
            What::Alarmed => {
                let cause = self.control.cause().map_or_else(|| "a rank failed".to_owned(), |cause| cause.text);
                (Error::Aborted { rank, operation, sequence, cause }, None)
            }
            What::Mismatch(_) => {
                let theirs = self.control.inquire(peer);
                (Error::Mismatch { rank, peer, operation, sequence, theirs }, Some(CauseKind::Mismatch))
            }
            What::TimedOut => {
                let detail = self.control.locate(peer);
                let after = self.timeout;
                (Error::TimedOut { rank, peer, operation, sequence, step, after, detail }, Some(CauseKind::Timeout))
            }
            What::Left => {
                let why = "it has left".to_owned();
                (Error::PeerLost { rank, peer, operation, sequence, why }, Some(CauseKind::Death))
            }
            What::Lost(fault) => {
                let why = fault.to_string();
                (Error::PeerLost { rank, peer, operation, sequence, why }, Some(CauseKind::Death))
            }
        };
        let error = match kind {
            Some(kind) => {
                self.settle(call.to_string(), error, kind, if kind == CauseKind::Death { peer } else { rank })
            }
            None => error,
        };
        self.failed = Some(error.to_string());
        self.current = usize::MAX;
        error
    }

    /// Tells everybody; gives `error` back unless something else happened first.
    pub(super) fn settle(&self, operation: String, error: Error, kind: CauseKind, rank: usize) -> Error {
        let sequence = self.sequence;
        let first = self.control.fail(Cause { sequence, kind, rank, text: error.to_string() });
        // The end of a failed peer looks like a death of its own.
        if first.kind == kind && (kind != CauseKind::Death || first.rank == rank) {
            return error;
        }
        Error::Aborted { rank: self.rank, operation, sequence, cause: first.text }
    }

    /// The ranks cannot be connected for `operation`: the communicator has failed, because of that or of what happened
    /// before it.
    #[cold]
    pub(super) fn unconnected(&mut self, operation: String, why: String) -> Error {
        let (rank, sequence) = (self.rank, self.sequence);
        let error = match self.control.cause() {
            Some(cause) => Error::Aborted { rank, operation, sequence, cause: cause.text },
            None => {
                let error = Error::Connect { rank, operation, why };
                self.control.fail(Cause { sequence, kind: CauseKind::Timeout, rank, text: error.to_string() });
                error
            }
        };
        self.failed = Some(error.to_string());
        self.current = usize::MAX;
        error
    }

    /// Leaves in order. Idempotent enough for `close` and then `Drop`.
    pub(super) fn leave(&mut self) {
        self.executor.links().finish();
        self.control.leave(self.sequence);
    }

    pub(super) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
        self.executor.set_timeout(timeout);
    }
}
