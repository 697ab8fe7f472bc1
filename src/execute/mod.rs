//! Executes lowered programs on real memory, and moves messages between two ranks.
//!
//! One loop executes every program of every algorithm, size and transport. Ranks that share a board
//! are reached over it, all other ranks over streams; one program may use both. This module
//! contains no collective and no algorithm.
//!
//! Programs ([`Executor`]) and messages between two ranks (`messages`) drive their streams equally:
//! the same cursors for partly moved messages, the same policy of polling and sleeping, and the
//! same [`LinkError`].

mod board_waits;
mod cursor;
mod error;
pub(crate) mod messages;
mod moved;
mod observer;
mod peer_stream;
mod polling;

pub mod record;
mod registered;
mod run;
mod stores;
mod streams;
mod watcher;

use crate::lower::{MAX_SOURCES, Program};
use crate::schedule::Buffer;
use arrayvec::ArrayVec;
pub use error::{ExecuteError, LinkError};
use maypole_kernels::{Reducer, Region, View, ViewMut};
pub use maypole_transports::AnyStream;
use maypole_transports::board::Board;
use maypole_transports::{Alarm, Waiting};
pub use moved::Moved;
pub use observer::{Awaited, NoObserver, RunObserver};
pub use registered::{PeerMemory, ProcessBuffers};
use run::ProgramRun;
use std::sync::Arc;
pub(crate) use stores::large_publications;
pub use stores::{StoreCounts, StoreWay};
pub use streams::PeerStreams;
pub use watcher::{SlowWait, WaitWatcher};

/// The three buffers of one call. Input and output may be the same memory, or overlap as far as the
/// collective allows.
#[derive(Clone, Copy, Debug)]
pub struct Buffers<'a> {
    /// The rank's contribution.
    pub input: View<'a>,
    /// The rank's part of the result.
    pub output: ViewMut<'a>,
    /// Working memory, of the program's length.
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

/// One rank's means of executing programs: its board, its streams and its policy of waiting.
#[derive(Debug)]
pub struct Executor {
    board: Option<Board>,
    /// The rank of each local rank.
    locals: Vec<usize>,
    me: usize,
    /// By local rank: its publications so far.
    positions: Vec<u64>,
    streams: PeerStreams,
    pub(crate) waiting: Waiting,
    alarm: Arc<Alarm>,
    watcher: Arc<dyn WaitWatcher>,
    /// The fingerprint of the last program, if it was self-crediting: its publications are
    /// consumed, but this rank's consumption counters are not updated yet.
    uncounted: Option<u64>,
    /// Publications go past the caches.
    past_slots: bool,
    /// The mask of slots of publications outside the program.
    more_slots: u64,
    /// Holds a combination that is only published past the caches.
    scratch: Region,
    store_counts: StoreCounts,
}

impl Executor {
    /// Makes the executor of a rank that shares no board yet.
    pub fn new(
        rank: usize,
        waiting: Waiting,
        alarm: Arc<Alarm>,
        watcher: Arc<dyn WaitWatcher>,
    ) -> Self {
        Self {
            board: None,
            locals: vec![rank],
            me: 0,
            positions: vec![0],
            streams: PeerStreams::default(),
            waiting,
            alarm,
            watcher,
            uncounted: None,
            past_slots: false,
            more_slots: 0,
            scratch: Region::new(0),
            store_counts: StoreCounts::default(),
        }
    }

    /// Sets the board that `locals` share; this rank is `locals[me]`.
    pub fn share(&mut self, board: Board, locals: Vec<usize>, me: usize) {
        self.positions = vec![0; locals.len()];
        self.board = Some(board);
        self.locals = locals;
        self.me = me;
    }

    /// The ranks that share this rank's board, this one among them.
    pub fn locals(&self) -> &[usize] {
        &self.locals
    }

    /// The streams to ranks that do not share the board.
    pub fn streams(&mut self) -> &mut PeerStreams {
        &mut self.streams
    }

    /// Executes `program` over `buffers`, combining elements by `reducer`.
    ///
    /// # Errors
    /// [`ExecuteError`]; afterwards the executor can only be dropped.
    ///
    /// # Panics
    /// If a buffer is shorter than the program needs, or a stream that it names is missing.
    #[inline]
    pub fn run(
        &mut self,
        program: &Program,
        reducer: &Reducer,
        buffers: &Buffers<'_>,
    ) -> Result<(), Box<ExecuteError>> {
        self.run_observed(program, reducer, buffers, NoObserver)
    }

    /// Executes `program` as [`run`](Self::run) does, and reports its waits and folds to
    /// `observer`.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Panics
    /// As [`run`](Self::run).
    #[inline(always)]
    pub fn run_observed<O: RunObserver>(
        &mut self,
        program: &Program,
        reducer: &Reducer,
        buffers: &Buffers<'_>,
        observer: O,
    ) -> Result<(), Box<ExecuteError>> {
        // A self-crediting program proves what its own publications imply, and nothing about those
        // of another program.
        let uncounted = program.self_crediting.then_some(program.fingerprint);
        if self.uncounted != uncounted && self.uncounted.is_some() {
            self.count_consumed();
        }
        self.uncounted = uncounted;
        if program.windows == 1 && program.streams.is_empty() {
            let mut run =
                ProgramRun { executor: self, program, reducer, buffers, observer, published: 0 };
            for fold in 0..program.folds.len() {
                run.step::<true>(fold, 0)?;
            }
        } else {
            self.run_windows(program, reducer, buffers, observer)?;
        }
        for (position, total) in self.positions.iter_mut().zip(&program.totals) {
            *position += total;
        }
        Ok(())
    }

    #[inline(never)]
    fn run_windows<O: RunObserver>(
        &mut self,
        program: &Program,
        reducer: &Reducer,
        buffers: &Buffers<'_>,
        observer: O,
    ) -> Result<(), Box<ExecuteError>> {
        self.streams.begin(program);
        let mut run =
            ProgramRun { executor: self, program, reducer, buffers, observer, published: 0 };
        in_clock_order(program, |fold, k| run.step::<false>(fold, k))?;
        run.flush_all()
    }

    /// Writes the consumption counters, which self-crediting programs do not write and which the
    /// writers of other programs read.
    #[cold]
    fn count_consumed(&mut self) {
        let Some(board) = &self.board else { return };
        for (peer, position) in self.positions.iter().enumerate() {
            board.consume(peer, *position);
        }
    }

    #[inline(always)]
    fn board(&self) -> &Board {
        self.board.as_ref().expect("a program with an audience has a board")
    }
}

/// The `len` bytes from `at` on of each view.
fn slices<'a>(from: &[View<'a>], at: usize, len: usize) -> ArrayVec<View<'a>, MAX_SOURCES> {
    from.iter().map(|view| view.slice(at, len)).collect()
}

/// Runs all windows of all folds in the order of their clocks: window `k` at clock `k + stage`.
#[inline(always)]
fn in_clock_order<E>(
    program: &Program,
    mut step: impl FnMut(usize, u32) -> Result<(), E>,
) -> Result<(), E> {
    for clock in 0..program.windows + program.stages() - 1 {
        let oldest = (clock + 1).saturating_sub(program.windows);
        let newest = clock.min(program.stages() - 1);
        for fold in program.first_of[oldest as usize]..program.first_of[newest as usize + 1] {
            step(fold as usize, clock - program.folds[fold as usize].stage)?;
        }
    }
    Ok(())
}
