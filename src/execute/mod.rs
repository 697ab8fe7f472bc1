//! Walks one lowered program and moves real bytes. The same loop for every algorithm, size and
//! transport.
//!
//! Local ranks are reached over a board, everybody else over streams; one program mixes both.
//! Nothing here knows a collective or an algorithm.

mod links;
pub(crate) mod messages;
mod moved;
pub mod record;
mod run;
mod watch;

use crate::lower::{FoldSource, Program};
use crate::schedule::Buffer;
pub use links::{AnyStream, Links};
use maypole_kernels::{Reducer, View, ViewMut};
use maypole_transports::board::{Board, Publication};
use maypole_transports::{Alarm, Fault, Waiting};
pub use moved::Moved;
use run::{Run, wanted};
use std::sync::Arc;
pub use watch::{Awaited, Nobody, Watch};

/// The three buffers of one call. Input and output may be the same memory, or overlap as the
/// collective allows.
#[derive(Clone, Copy, Debug)]
pub struct Buffers<'a> {
    /// What the rank brings.
    pub input: View<'a>,
    /// What it must hold in the end.
    pub output: ViewMut<'a>,
    /// As much as the program asks for.
    pub scratch: ViewMut<'a>,
}

impl<'a> Buffers<'a> {
    #[inline(always)]
    fn read(&self, buffer: Buffer, (offset, len): (usize, usize)) -> View<'a> {
        match buffer {
            Buffer::Input => self.input.slice(offset, len),
            Buffer::Output => self.output.slice(offset, len).as_view(),
            Buffer::Scratch => self.scratch.slice(offset, len).as_view(),
        }
    }

    #[inline(always)]
    fn write(&self, buffer: Buffer, (offset, len): (usize, usize)) -> ViewMut<'a> {
        match buffer {
            Buffer::Input => panic!("a schedule never writes its input"),
            Buffer::Output => self.output.slice(offset, len),
            Buffer::Scratch => self.scratch.slice(offset, len),
        }
    }
}

/// Why a program did not end.
#[derive(Debug)]
pub struct Failure {
    /// Which fold of the program.
    pub fold: usize,
    /// The rank that was awaited, or whose link failed.
    pub peer: usize,
    /// What happened.
    pub what: What,
}

/// What went wrong in a program.
#[derive(Debug)]
pub enum What {
    /// The peer is in another call; what its message carries.
    Mismatch(u64),
    /// The deadline passed.
    TimedOut,
    /// The alarm was raised: somebody else failed first.
    Alarmed,
    /// The peer has left the group in order.
    Left,
    /// The stream to the peer carries nothing any more.
    Lost(Fault),
}

/// Tells whether a rank has left in order. Asked once a wait has become slow.
pub type Gone = Box<dyn Fn(usize) -> bool + Send + Sync>;

/// What one rank executes programs with: its board, its streams and its way of waiting.
pub struct Executor {
    board: Option<Board>,
    /// The rank of each local rank.
    locals: Vec<usize>,
    me: usize,
    /// Publications of every local rank so far.
    positions: Vec<u64>,
    links: Links,
    waiting: Waiting,
    alarm: Arc<Alarm>,
    gone: Gone,
    /// The last program, by its fingerprint, if it left what we consumed unsaid.
    silent: Option<u64>,
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { board, locals, me, positions, links, .. } = self;
        f.debug_struct("Executor")
            .field("me", &locals[*me])
            .field("board", board)
            .field("positions", positions)
            .field("links", links)
            .finish_non_exhaustive()
    }
}

impl Executor {
    /// For a rank that shares no board yet.
    pub fn new(rank: usize, waiting: Waiting, alarm: Arc<Alarm>, gone: Gone) -> Self {
        let (locals, positions) = (vec![rank], vec![0]);
        Self {
            board: None,
            locals,
            me: 0,
            positions,
            links: Links::default(),
            waiting,
            alarm,
            gone,
            silent: None,
        }
    }

    /// Gives the rank, which is `locals[me]`, the board that these ranks share.
    pub fn share(&mut self, board: Board, locals: Vec<usize>, me: usize) {
        self.positions = vec![0; locals.len()];
        (self.board, self.locals, self.me) = (Some(board), locals, me);
    }

    /// The ranks that share our board, this one among them.
    pub fn locals(&self) -> &[usize] {
        &self.locals
    }

    /// The streams to other hosts.
    pub fn links(&mut self) -> &mut Links {
        &mut self.links
    }

    /// Changes how waits go and end.
    pub fn set_waiting(&mut self, waiting: Waiting) {
        self.waiting = waiting;
    }

    /// Runs `program` over `buffers`, combining by `fold`.
    ///
    /// # Errors
    /// [`Failure`]; afterwards the executor is good for nothing but being dropped.
    ///
    /// # Panics
    /// If a buffer is shorter than the program needs, or a link that it names is missing.
    #[inline]
    pub fn run(
        &mut self,
        program: &Program,
        fold: &Reducer,
        buffers: &Buffers<'_>,
    ) -> Result<(), Box<Failure>> {
        self.run_watched(program, fold, buffers, Nobody)
    }

    /// [`run`](Self::run) while `watch` is told what happens.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Panics
    /// As [`run`](Self::run).
    #[inline(always)]
    pub fn run_watched<W: Watch>(
        &mut self,
        program: &Program,
        fold: &Reducer,
        buffers: &Buffers<'_>,
        watch: W,
    ) -> Result<(), Box<Failure>> {
        // A program proves what its own readers consumed, not what those of another one did.
        let silent = program.self_crediting.then_some(program.fingerprint);
        if self.silent != silent && self.silent.is_some() {
            self.say_consumed();
        }
        self.silent = silent;
        if program.windows == 1 && program.streams.is_empty() {
            let mut run = Run { executor: self, program, fold, buffers, watch, made: 0 };
            for fold in 0..program.folds.len() {
                run.step::<true>(fold, 0)?;
            }
        } else {
            self.run_windows(program, fold, buffers, watch)?;
        }
        for (position, total) in self.positions.iter_mut().zip(&program.totals) {
            *position += total;
        }
        Ok(())
    }

    #[inline(never)]
    fn run_windows<W: Watch>(
        &mut self,
        program: &Program,
        fold: &Reducer,
        buffers: &Buffers<'_>,
        watch: W,
    ) -> Result<(), Box<Failure>> {
        self.links.begin(program);
        let mut run = Run { executor: self, program, fold, buffers, watch, made: 0 };
        for clock in 0..program.windows + program.stages() - 1 {
            let oldest = (clock + 1).saturating_sub(program.windows);
            let newest = clock.min(program.stages() - 1);
            for fold in program.first_of[oldest as usize]..program.first_of[newest as usize + 1] {
                run.step::<false>(fold as usize, clock - program.folds[fold as usize].stage)?;
            }
        }
        run.flush_all()
    }

    /// Writes the counters that self-crediting programs leave alone, because another program's
    /// writers look at them.
    #[cold]
    fn say_consumed(&mut self) {
        let Some(board) = &self.board else { return };
        for (peer, position) in self.positions.iter().enumerate() {
            board.consume(peer, *position);
        }
    }
}

impl Executor {
    #[inline(always)]
    fn board(&self) -> &Board {
        self.board.as_ref().expect("a program with an audience has a board")
    }

    /// A publication that is known to be there.
    #[inline(always)]
    fn lent<const SIMPLE: bool>(
        &self,
        program: &Program,
        source: &FoldSource,
        k: u32,
        len: usize,
    ) -> View<'_> {
        self.board().lent(wanted::<SIMPLE>(program, &self.positions, source, k, len))
    }

    /// A slot that is known to be free.
    #[inline(always)]
    fn slot(&self, out: Publication) -> Option<ViewMut<'_>> {
        Some(self.board().slot(out))
    }
}
