//! One run of one program: the same steps for every fold of every window.

use super::peer_stream::{BufferRange, ExpectedMessage};
use super::polling::PollCounter;
use super::stores::publish_past_caches;
use super::streams::PeerStreams;
use super::{Awaited, Buffers, ExecuteError, Executor, LinkError, RunObserver, SlowWait};
use crate::lower::{Flush, Fold, FoldSource, MAX_SOURCES, Program, SourceLocation};
use crate::schedule::Buffer;
use arrayvec::ArrayVec;
use maypole_kernels::{Reducer, View, ViewMut};
use maypole_transports::Sleep;
use maypole_transports::board::{ExpectedPublication, Publication};
use std::cell::RefCell;

pub(super) struct ProgramRun<'a, 'b, O> {
    pub(super) executor: &'a mut Executor,
    pub(super) program: &'a Program,
    pub(super) reducer: &'a Reducer,
    pub(super) buffers: &'a Buffers<'b>,
    pub(super) observer: O,
    /// Publications of this rank so far in this run.
    pub(super) published: u64,
}

impl<O: RunObserver> ProgramRun<'_, '_, O> {
    /// Executes window `k` of fold `at`. `SIMPLE` is true for programs of one window and without
    /// streams.
    #[inline(always)]
    pub(super) fn step<const SIMPLE: bool>(
        &mut self,
        at: usize,
        k: u32,
    ) -> Result<(), Box<ExecuteError>> {
        let program = self.program;
        let fold = &program.folds[at];
        let range = fold.extent.window(k);
        let sources =
            &program.sources[fold.first as usize..fold.first as usize + fold.count as usize];
        if !SIMPLE {
            for flush in &program.flushes[fold.flushes.0 as usize..fold.flushes.1 as usize] {
                self.await_flush(at, *flush, k)?;
            }
            self.expect(fold, sources, range);
        }
        self.combine::<SIMPLE>(at, fold, sources, range, k)?;
        if !SIMPLE {
            self.release(sources);
        }
        if !program.self_crediting {
            self.consumed::<SIMPLE>(sources, k);
        }
        if let Some(buffer) = fold.posted.filter(|_| !SIMPLE) {
            self.post(at, fold, BufferRange { buffer, offset: range.0, len: range.1 });
        }
        self.observer.folded(at, k);
        Ok(())
    }

    /// Posts the stored result of fold `at` to its streams.
    fn post(&mut self, at: usize, fold: &Fold, body: BufferRange) {
        let streams = &mut self.executor.streams;
        for stream in &self.program.posts[fold.posts.0 as usize..fold.posts.1 as usize] {
            streams.at(*stream as usize).post(body, self.program.fingerprint);
        }
        // Messages of folds that wait for nothing leave together.
        if !self.program.posts_more_after(at) {
            streams.push(self.buffers);
        }
    }

    /// Awaits the sources, and stores and publishes their combination.
    #[inline(always)]
    fn combine<const SIMPLE: bool>(
        &mut self,
        at: usize,
        fold: &Fold,
        sources: &[FoldSource],
        range: (usize, usize),
        k: u32,
    ) -> Result<(), Box<ExecuteError>> {
        let len = range.1;
        let mut in_place = false;
        for source in sources {
            match source.from {
                SourceLocation::Own(_) => {}
                SourceLocation::Board => self.await_board::<SIMPLE>(at, source, k, len)?,
                SourceLocation::Stream if !SIMPLE => {
                    in_place |= self.await_stream(at, source, k)?
                }
                SourceLocation::Stream => unreachable!("the program has no streams"),
                _ => unreachable!("the program reaches no registered memory"),
            }
        }
        let publication = self.publication(fold, len);
        if fold.audience != 0 {
            self.await_room(at, k, publication)?;
        }
        let executor = &*self.executor;
        let view = |source: &FoldSource| match source.from {
            SourceLocation::Own(buffer) => self.buffers.read(buffer, source.extent.window(k)),
            SourceLocation::Board => {
                let positions = &executor.positions;
                executor.board().lent(expected::<SIMPLE>(self.program, positions, source, k, len))
            }
            // The message is already in the fold's destination, so the fold reads this source from
            // there.
            SourceLocation::Stream if in_place => {
                let buffer = fold.into.expect("only a fold that stores receives in place");
                self.buffers.read(buffer, range)
            }
            SourceLocation::Stream => executor.streams.staged(source.peer as usize, len),
            _ => unreachable!("refused above"),
        };
        // `collect` is a call that returns a copy of the whole array; these pushes are not.
        let mut views = ArrayVec::<View<'_>, MAX_SOURCES>::new();
        sources.iter().for_each(|source| views.push(view(source)));
        let into = fold.into.map(|buffer| self.buffers.write(buffer, range));
        let slot = (fold.audience != 0).then(|| executor.board().slot(publication));
        match (into, slot) {
            (into, Some(slot)) if executor.past_slots => {
                let output = into.filter(|_| self.stores_past_caches(fold, &views));
                let into = into.filter(|_| output.is_none());
                output.iter().for_each(|output| output.copy_past_caches(views[0]));
                publish_past_caches(self.reducer, &executor.scratch, into, slot, &views);
            }
            (Some(into), also) if self.stores_past_caches(fold, &views) => {
                store_past_caches(into, also, views[0]);
            }
            (Some(into), also) => self.reducer.apply(into, also, &views),
            (None, Some(slot)) => self.reducer.publish(slot, &views),
            // The fold only posts, from where its source is stored.
            (None, None) => {}
        }
        if fold.audience != 0 {
            executor.board().commit(publication);
            self.published += 1;
        }
        Ok(())
    }

    /// The next publication of this rank, which has the result of `fold`.
    #[inline(always)]
    pub(super) fn publication(&self, fold: &Fold, len: usize) -> Publication {
        Publication {
            class: self.program.class,
            mask: self.program.mask | self.executor.more_slots,
            position: self.executor.positions[self.executor.me] + self.published,
            audience: fold.audience,
            fingerprint: self.program.fingerprint,
            len,
        }
    }

    /// True if the fold copies so much to the output that it leaves the caches.
    #[inline(always)]
    pub(super) fn stores_past_caches(&self, fold: &Fold, views: &[View<'_>]) -> bool {
        self.program.past_caches && views.len() == 1 && fold.into == Some(Buffer::Output)
    }

    /// Sets the destinations of the messages that this fold takes from streams.
    fn expect(&mut self, fold: &Fold, sources: &[FoldSource], range: (usize, usize)) {
        let direct = fold.into.filter(|_| sources.len() == 1);
        for source in sources.iter().filter(|source| source.from == SourceLocation::Stream) {
            let into = direct.map(|buffer| BufferRange { buffer, offset: range.0, len: range.1 });
            let expected = ExpectedMessage { into, len: range.1 };
            self.executor.streams.at(source.peer as usize).expect(expected);
        }
    }

    /// Waits for the expected message of a stream; true if it is in its final place.
    fn await_stream(
        &mut self,
        at: usize,
        source: &FoldSource,
        k: u32,
    ) -> Result<bool, Box<ExecuteError>> {
        let stream = source.peer as usize;
        let fingerprint = self.program.fingerprint;
        let arrived =
            |streams: &mut PeerStreams| streams.at(stream).arrived(fingerprint).transpose();
        let in_place = self.await_streams(at, k, stream, arrived)?;
        self.observer.awaited(|| Awaited::Arrival { from: self.executor.streams.peer(stream) });
        Ok(in_place)
    }

    /// Waits until a posted message has left, because this fold overwrites its memory.
    fn await_flush(&mut self, at: usize, flush: Flush, k: u32) -> Result<(), Box<ExecuteError>> {
        let stream = flush.peer as usize;
        let needed = self.program.streams[stream].posts.position(flush.nth, flush.stage, k) + 1;
        let flushed =
            |streams: &mut PeerStreams| (streams.at(stream).flushed >= needed).then_some(Ok(()));
        self.await_streams(at, k, stream, flushed)?;
        self.observer.awaited(|| Awaited::Departure { to: self.executor.streams.peer(stream) });
        Ok(())
    }

    /// Waits until every posted message has left: only then may the caller use its buffers again.
    pub(super) fn flush_all(&mut self) -> Result<(), Box<ExecuteError>> {
        let after_last = self.program.folds.len();
        let windows = self.program.windows;
        for stream in 0..self.program.streams.len() {
            let flushed =
                |streams: &mut PeerStreams| streams.at(stream).is_flushed().then_some(Ok(()));
            self.await_streams(after_last, windows, stream, flushed)?;
            self.observer.awaited(|| Awaited::Departure { to: self.executor.streams.peer(stream) });
        }
        Ok(())
    }

    /// Moves bytes both ways on all streams until `done` returns a value.
    fn await_streams<T>(
        &mut self,
        at: usize,
        k: u32,
        stream: usize,
        mut done: impl FnMut(&mut PeerStreams) -> Option<Result<T, LinkError>>,
    ) -> Result<T, Box<ExecuteError>> {
        let executor = &mut *self.executor;
        let awaited = executor.streams.peer(stream);
        let watcher = &executor.watcher;
        let wait = SlowWait { peer: awaited, step: at, windows: (k, self.program.windows) };
        let mut polls = PollCounter::default();
        let streams = RefCell::new(&mut executor.streams);
        let buffers = self.buffers;
        let ready = || {
            let mut streams = streams.borrow_mut();
            let mut ended = done(&mut streams);
            if ended.is_none() {
                streams.drive(buffers);
                ended = done(&mut streams);
            }
            match ended {
                Some(ended) => Some(ended.map_err(|error| (awaited, error))),
                None => {
                    polls.count();
                    if polls.is_peer_check_due() {
                        watcher.note_wait(wait);
                    }
                    let (rank, fault) = streams.take_fault()?;
                    Some(Err((rank, LinkError::Lost(fault))))
                }
            }
        };
        let sleep = |sleep: Sleep<'_>| streams.borrow_mut().sleep(sleep);
        match executor.waiting.on_streams().until(&executor.alarm, sleep, ready) {
            Ok(done) => done.map_err(|(peer, error)| failed(at, peer, error)),
            Err(interrupted) => Err(failed(at, awaited, interrupted)),
        }
    }

    /// Signals to the writers of board sources that this rank has read them.
    #[inline(always)]
    fn consumed<const SIMPLE: bool>(&mut self, sources: &[FoldSource], k: u32) {
        let executor = &*self.executor;
        for source in sources.iter().filter(|source| source.from == SourceLocation::Board) {
            let expected = expected::<SIMPLE>(self.program, &executor.positions, source, k, 0);
            executor.board().consume(source.peer as usize, expected.position + 1);
        }
    }

    /// Ends the use of the messages that this fold took.
    fn release(&mut self, sources: &[FoldSource]) {
        for source in sources.iter().filter(|source| source.from == SourceLocation::Stream) {
            self.executor.streams.at(source.peer as usize).release();
        }
    }
}

/// Copies `from` to an output past the caches, and to a slot. A function of its own, to keep its
/// code off the path of short calls.
#[inline(never)]
fn store_past_caches(into: ViewMut<'_>, also: Option<ViewMut<'_>>, from: View<'_>) {
    also.iter().for_each(|also| also.copy_from(from));
    into.copy_past_caches(from);
}

/// The publication that `source` reads in window `k`.
#[inline(always)]
pub(super) fn expected<const SIMPLE: bool>(
    program: &Program,
    positions: &[u64],
    source: &FoldSource,
    k: u32,
    len: usize,
) -> ExpectedPublication {
    let peer = source.peer as usize;
    let nth = if SIMPLE {
        u64::from(source.publication)
    } else {
        program.numberings[peer].position(source.publication, source.stage, k)
    };
    ExpectedPublication {
        class: program.class,
        peer,
        position: positions[peer] + nth,
        fingerprint: program.fingerprint,
        len,
    }
}

#[cold]
#[inline(never)]
pub(super) fn failed(fold: usize, peer: usize, error: impl Into<LinkError>) -> Box<ExecuteError> {
    Box::new(ExecuteError { fold, peer, error: error.into() })
}
