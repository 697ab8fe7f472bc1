//! From a call to a program that runs: choose, lower once, connect, execute, and explain what failed.

use super::call::Call;
use super::control::Control;
use super::surroundings::Surroundings;
use crate::algorithms::Algorithm;
use crate::collective::Collective;
use crate::element::ReduceOp;
use crate::error::{Error, Result};
use crate::execute::{Buffers, Executor, Failure, What};
use crate::lower::{Program, Request, lower};
use crate::schedule::{Placement, Schedule};
use crate::service::{Cause, CauseKind, Pulse};
use crate::tuner::{self, Explanation, Measured, Plan, Question, Wanted};
use maypole_kernels::{Fold, Region, View, ViewMut, divide};
use maypole_transports::Board;
use maypole_transports::board::MAX_RANKS;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    /// What choices depend on, equal on all ranks.
    pub(super) surroundings: Surroundings,
    /// Whether calls are timed, for explanations.
    pub(super) timed: bool,
    /// Most bytes of shared memory for this rank.
    pub(super) memory: Option<usize>,
    /// Operations so far.
    pub(super) sequence: u64,
    executor: Executor,
    connected: bool,
    ready: Vec<Ready>,
    known: HashMap<(Call, Option<Wanted>), usize>,
    current: usize,
    failed: Option<String>,
    pulse: Arc<Pulse>,
}

/// A call that has its program.
#[derive(Debug)]
struct Ready {
    call: Call,
    wanted: Option<Wanted>,
    /// What it took, while calls were timed.
    measured: Measured,
    program: Program,
    fold: Fold,
    scratch: Region,
    /// Where an input lies while its own place is being written.
    aside: Region,
    /// The result is divided by this.
    divisor: Option<u64>,
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
            surroundings,
            timed: false,
            memory: None,
            sequence: 0,
            executor: alone,
            connected,
            ready: Vec::new(),
            known: HashMap::new(),
            current: usize::MAX,
            failed: None,
        }
    }

    /// Runs one call.
    #[inline]
    pub(super) fn call(&mut self, call: Call, input: View<'_>, output: ViewMut<'_>) -> Result<()> {
        let same = self.ready.get(self.current).is_some_and(|ready| ready.call == call && ready.wanted == self.wanted);
        if !same {
            self.turn_to(call)?;
        }
        let start = self.timed.then(Instant::now);
        self.pulse.enter(self.sequence);
        let ready = &self.ready[self.current];
        let mut buffers = Buffers { input, output, scratch: ready.scratch.view() };
        if ready.program.aside {
            ready.aside.view().copy_from(input);
            buffers.input = ready.aside.view().as_view();
        }
        if let Err(failure) = self.executor.run(&ready.program, &ready.fold, &buffers) {
            return Err(self.explain_failure(call, *failure));
        }
        self.pulse.exit(self.sequence);
        self.sequence += 1;
        if let Some(divisor) = ready.divisor {
            divide(output, call.kind, divisor);
        }
        if let Some(start) = start {
            self.note(start);
        }
        Ok(())
    }

    #[cold]
    fn note(&mut self, start: Instant) {
        let nanoseconds = start.elapsed().as_nanos().try_into().unwrap_or(u64::MAX);
        self.ready[self.current].measured.note(nanoseconds);
    }

    /// The plan that `call` runs by.
    pub(super) fn plan(&self, call: Call) -> Result<Plan> {
        let question = self.question(call.collective, self.bytes(call));
        tuner::plan(&question, self.asked(call.collective), &self.surroundings.costs)
            .map_err(|refusal| Error::Unsupported { algorithm: refusal.algorithm, operation: call.collective.name() })
    }

    /// Why a call of `bytes` bytes in all runs as it does.
    pub(super) fn explain(&self, collective: Collective, bytes: usize, machines: &[usize]) -> Explanation {
        let (question, wanted) = (self.question(collective, bytes), self.asked(collective));
        let choice = tuner::choose(&question, wanted, &self.surroundings.costs);
        let alike = |ready: &&Ready| {
            (ready.call.collective, self.bytes(ready.call), ready.wanted) == (collective, bytes, self.wanted)
        };
        let measured =
            self.ready.iter().filter(alike).map(|ready| ready.measured).fold(Measured::default(), Measured::and);
        Explanation::new(&question, machines, wanted, choice, Some(measured).filter(|measured| measured.runs > 0))
    }

    fn question(&self, collective: Collective, bytes: usize) -> Question<'_> {
        Question { collective, hosts: &self.hosts, bytes, crowding: self.surroundings.crowding }
    }

    /// What is asked for by name, or preferred where it fits.
    fn asked(&self, collective: Collective) -> Option<Wanted> {
        let fitting = self.preferred.filter(|algorithm| algorithm.supports(collective));
        self.wanted.or(fitting.map(Wanted::from))
    }

    fn bytes(&self, call: Call) -> usize {
        call.whole(self.world) * call.kind.size()
    }

    /// Makes `call` the current one.
    #[cold]
    #[inline(never)]
    fn turn_to(&mut self, call: Call) -> Result<()> {
        if let Some(first) = &self.failed {
            return Err(Error::Failed { first: first.clone() });
        }
        self.current = match self.known.get(&(call, self.wanted)) {
            Some(known) => *known,
            None => self.prepare(call)?,
        };
        self.control.record(self.sequence, call.to_string());
        Ok(())
    }

    fn prepare(&mut self, call: Call) -> Result<usize> {
        let plan = self.plan(call)?;
        let schedules = self.schedules(call.collective, plan.algorithm);
        let layout = call.layout(self.world, schedules[0].chunks);
        let request = Request {
            collective: call.collective,
            schedules: &schedules,
            layout: &layout,
            element: call.kind.size(),
            hosts: &self.hosts,
            window: plan.window,
            fingerprint: call.fingerprint(plan, self.world),
        };
        let placement = if call.in_place { Placement::InPlace } else { Placement::Apart };
        let program =
            lower(&request, self.rank, placement).expect("the algorithms of the table are proved to complete");
        self.connect(call, &program)?;
        let input = if program.aside { held_bytes(call, self.world, self.rank) } else { 0 };
        self.ready.push(Ready {
            call,
            wanted: self.wanted,
            measured: Measured::default(),
            fold: Fold::new(call.kind, call.op.binary()),
            scratch: Region::new(program.scratch),
            aside: Region::new(input),
            divisor: self.divisor(call),
            program,
        });
        self.known.insert((call, self.wanted), self.ready.len() - 1);
        Ok(self.ready.len() - 1)
    }

    fn schedules(&self, collective: Collective, algorithm: Algorithm) -> Vec<Schedule> {
        let of = |rank| algorithm.schedule(collective, self.world, rank).expect("the tuner knows the table");
        (0..self.world).map(of).collect()
    }

    /// Averages divide where the result is.
    fn divisor(&self, call: Call) -> Option<u64> {
        let averages = call.op == ReduceOp::Avg && call.collective.reduces();
        let holds = call.collective.output(self.rank) != crate::collective::Held::Nothing;
        (averages && holds).then_some(self.world as u64)
    }

    /// Makes the board at the first call, and the streams that `program` needs and that are not there yet.
    fn connect(&mut self, call: Call, program: &Program) -> Result<()> {
        let deadline = Instant::now() + self.timeout;
        let failed = |why| Error::Connect { rank: self.rank, operation: call.to_string(), why };
        if !self.connected {
            self.check_memory(call)?;
            let locals: Vec<usize> =
                (0..self.world).filter(|peer| self.hosts[*peer] == self.hosts[self.rank]).collect();
            let me = locals.iter().position(|peer| *peer == self.rank).expect("a rank is on its own host");
            let board: Board = self.control.board(&locals, me, deadline).map_err(failed)?;
            self.executor.share(board, locals, me);
            self.connected = true;
        }
        for link in &program.streams {
            let peer = link.peer as usize;
            if !self.executor.links().contains(peer) {
                let stream = self.control.stream(peer, deadline).map_err(failed)?;
                self.executor.links().insert(peer, stream);
            }
        }
        Ok(())
    }

    /// Refuses boards that the user has no memory for.
    fn check_memory(&self, call: Call) -> Result<()> {
        let Some(limit) = self.memory else { return Ok(()) };
        let ranks = self.hosts.iter().filter(|host| **host == self.hosts[self.rank]).count();
        let (needed, share) = (Board::bytes(ranks), Board::bytes(ranks).div_ceil(ranks));
        if share <= limit {
            return Ok(());
        }
        let why = format!(
            "a board of {ranks} ranks takes {needed} bytes, {share} a rank, and MAYPOLE_MEMORY allows {limit}; \
             raise it, or use MAYPOLE_TRANSPORT=tcp"
        );
        Err(Error::Connect { rank: self.rank, operation: call.to_string(), why })
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
            Some(kind) => self.settle(call, error, kind, if kind == CauseKind::Death { peer } else { rank }),
            None => error,
        };
        self.failed = Some(error.to_string());
        self.current = usize::MAX;
        error
    }

    /// Tells everybody; gives `error` back unless something else happened first.
    fn settle(&self, call: Call, error: Error, kind: CauseKind, rank: usize) -> Error {
        let sequence = self.sequence;
        let first = self.control.fail(Cause { sequence, kind, rank, text: error.to_string() });
        if first.kind == kind {
            return error;
        }
        Error::Aborted { rank: self.rank, operation: call.to_string(), sequence, cause: first.text }
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

/// Splits hosts with more ranks than a board serves.
fn boards_of(hosts: &[usize]) -> Vec<usize> {
    let mut numbers: HashMap<(usize, usize), usize> = HashMap::new();
    let mut seen: HashMap<usize, usize> = HashMap::new();
    let mut boards = Vec::with_capacity(hosts.len());
    for host in hosts {
        let nth = seen.entry(*host).or_default();
        let fresh = numbers.len();
        boards.push(*numbers.entry((*host, *nth / MAX_RANKS)).or_insert(fresh));
        *nth += 1;
    }
    boards
}

/// Bytes of this rank's input.
fn held_bytes(call: Call, world: usize, rank: usize) -> usize {
    use crate::collective::Held;
    let elements = match call.collective.input(rank) {
        Held::All => call.whole(world),
        Held::One(_) => call.count,
        Held::Nothing => 0,
    };
    elements * call.kind.size()
}
