//! One run of one program: the same step for every fold of every window.

use super::links::{Arrival, Links, Place};
use super::watch::{Awaited, Watch};
use super::{Buffers, Executor, Failure, What};
use crate::lower::{Flush, Fold, FoldSource, MAX_SOURCES, Program, SourceLocation};
use arrayvec::ArrayVec;
use maypole_kernels::{Reducer, View};
use maypole_transports::board::{Board, ExpectedPublication, Publication};
use maypole_transports::{Interrupted, Sleep};
use std::cell::RefCell;

/// One run of one program.
pub(super) struct Run<'a, 'b, W> {
    pub(super) executor: &'a mut Executor,
    pub(super) program: &'a Program,
    pub(super) fold: &'a Reducer,
    pub(super) buffers: &'a Buffers<'b>,
    pub(super) watch: W,
    /// Publications of ours so far in this run.
    pub(super) made: u64,
}

impl<W: Watch> Run<'_, '_, W> {
    /// Window `k` of one fold. `SIMPLE` is true for programs of one window without streams.
    #[inline(always)]
    pub(super) fn step<const SIMPLE: bool>(
        &mut self,
        at: usize,
        k: u32,
    ) -> Result<(), Box<Failure>> {
        let program = self.program;
        let fold = &program.folds[at];
        let place = fold.extent.window(k);
        let sources =
            &program.sources[fold.first as usize..fold.first as usize + fold.count as usize];
        if !SIMPLE {
            for flush in &program.flushes[fold.flushes.0 as usize..fold.flushes.1 as usize] {
                self.await_flush(at, *flush, k)?;
            }
            self.expect(fold, sources, place);
        }
        self.combine::<SIMPLE>(at, fold, sources, place, k)?;
        if !SIMPLE {
            self.release(sources);
        }
        if !program.self_crediting {
            self.consumed::<SIMPLE>(sources, k);
        }
        if let Some(buffer) = fold.posted.filter(|_| !SIMPLE) {
            self.post(fold, Place { buffer, offset: place.0, len: place.1 });
        }
        self.watch.folded(at, k);
        Ok(())
    }

    /// Posts a result to its streams, from where it lies.
    fn post(&mut self, fold: &Fold, place: Place) {
        let links = &mut self.executor.links;
        for stream in &self.program.posts[fold.posts.0 as usize..fold.posts.1 as usize] {
            links.post(*stream as usize, place, self.program.fingerprint);
        }
        links.push(self.buffers);
    }

    /// Awaits the sources and combines them where the fold says.
    #[inline(always)]
    fn combine<const SIMPLE: bool>(
        &mut self,
        at: usize,
        fold: &Fold,
        sources: &[FoldSource],
        place: (usize, usize),
        k: u32,
    ) -> Result<(), Box<Failure>> {
        let mut in_place = false;
        for source in sources {
            match source.from {
                SourceLocation::Own(_) => {}
                SourceLocation::Board => self.await_board::<SIMPLE>(at, source, k, place.1)?,
                SourceLocation::Stream if !SIMPLE => in_place |= self.await_stream(at, source)?,
                SourceLocation::Stream => unreachable!("the program has no streams"),
            }
        }
        let out = Publication {
            class: self.program.class,
            mask: self.program.mask,
            position: self.executor.positions[self.executor.me] + self.made,
            audience: fold.audience,
            fingerprint: self.program.fingerprint,
            len: place.1,
        };
        if fold.audience != 0 {
            self.await_room(at, out)?;
        }
        let executor = &*self.executor;
        let lent = |source: &FoldSource| match source.from {
            SourceLocation::Own(buffer) => self.buffers.read(buffer, source.extent.window(k)),
            SourceLocation::Board => executor.lent::<SIMPLE>(self.program, source, k, place.1),
            // What came straight to its place is its own source.
            SourceLocation::Stream if in_place => {
                self.buffers.read(fold.into.expect("came to its place"), place)
            }
            SourceLocation::Stream => executor.links.lent(source.peer as usize, place.1),
        };
        let views: ArrayVec<View<'_>, MAX_SOURCES> = sources.iter().map(lent).collect();
        let into = fold.into.map(|buffer| self.buffers.write(buffer, place));
        let slot = if fold.audience != 0 { executor.slot(out) } else { None };
        match (into, slot) {
            (Some(into), also) => self.fold.apply(into, also, &views),
            (None, Some(slot)) => self.fold.apply(slot, None, &views),
            // Only posted, from where it lies.
            (None, None) => {}
        }
        if fold.audience != 0 {
            executor.board().commit(out);
            self.made += 1;
        }
        Ok(())
    }

    #[inline(always)]
    fn await_board<const SIMPLE: bool>(
        &mut self,
        at: usize,
        source: &FoldSource,
        k: u32,
        len: usize,
    ) -> Result<(), Box<Failure>> {
        let peer = source.peer as usize;
        let executor = &mut *self.executor;
        let wanted = wanted::<SIMPLE>(self.program, &executor.positions, source, k, len);
        let board = executor.board.as_ref().expect("a program with board sources has a board");
        let links = RefCell::new(&mut executor.links);
        let (buffers, gone, rank) = (self.buffers, &executor.gone, executor.locals[peer]);
        let base = executor.positions[peer];
        let mut polls = 0u32;
        let ready = || match board.readable(wanted) {
            Ok(true) => Some(Ok(())),
            Ok(false) => {
                polls = polls.wrapping_add(1);
                if polls.is_multiple_of(OFTEN) {
                    links.borrow_mut().drive(buffers);
                }
                if polls.is_multiple_of(SELDOM) {
                    hopeless(board, wanted, base, || gone(rank)).map(Err)
                } else {
                    None
                }
            }
            Err(mismatch) => Some(Err(What::Mismatch(mismatch.theirs))),
        };
        let sleep = |sleep: Sleep<'_>| links.borrow_mut().sleep(sleep);
        match executor.waiting.until(&executor.alarm, sleep, ready) {
            Ok(Ok(())) => {
                board.credit(peer, executor.positions[executor.me] + u64::from(source.implied));
                self.watch.awaited(|| Awaited::Arrival { from: rank });
                Ok(())
            }
            Ok(Err(what)) => Err(fail(at, rank, what)),
            Err(interrupted) => Err(interrupt(at, rank, interrupted)),
        }
    }

    #[inline(always)]
    fn await_room(&mut self, at: usize, out: Publication) -> Result<(), Box<Failure>> {
        let executor = &mut *self.executor;
        let board = executor.board.as_ref().expect("a program with an audience has a board");
        let (links, buffers) = (RefCell::new(&mut executor.links), self.buffers);
        let (gone, locals) = (&executor.gone, &executor.locals);
        let readers = || {
            locals
                .iter()
                .enumerate()
                .filter(|(at, _)| out.audience >> at & 1 == 1)
                .map(|(_, rank)| *rank)
        };
        let mut polls = 0u32;
        let ready = || {
            let room = board.writable(out);
            polls = polls.wrapping_add(1);
            if !room && polls.is_multiple_of(OFTEN) {
                links.borrow_mut().drive(buffers);
            }
            if !room && polls.is_multiple_of(SELDOM) {
                readers().find(|rank| gone(*rank)).map(Err)
            } else {
                room.then_some(Ok(()))
            }
        };
        let sleep = |sleep: Sleep<'_>| links.borrow_mut().sleep(sleep);
        match executor.waiting.until(&executor.alarm, sleep, ready) {
            Ok(Ok(())) => {
                self.watch.awaited(|| Awaited::Room);
                Ok(())
            }
            // Who has left never reads what we have not even written.
            Ok(Err(rank)) => Err(fail(at, rank, What::Left)),
            Err(interrupted) => {
                Err(interrupt(at, readers().next().expect("somebody reads it"), interrupted))
            }
        }
    }

    /// Tells streams where what this fold takes from them shall go.
    fn expect(&mut self, fold: &Fold, sources: &[FoldSource], place: (usize, usize)) {
        let direct = fold.into.filter(|_| sources.len() == 1);
        for source in sources.iter().filter(|source| source.from == SourceLocation::Stream) {
            let into = direct.map(|buffer| Place { buffer, offset: place.0, len: place.1 });
            self.executor.links.expect(source.peer as usize, Arrival { into, len: place.1 });
        }
    }

    /// True if what came is already in its place.
    fn await_stream(&mut self, at: usize, source: &FoldSource) -> Result<bool, Box<Failure>> {
        let stream = source.peer as usize;
        let fingerprint = self.program.fingerprint;
        let in_place =
            self.await_links(at, stream, |links| match links.arrived(stream, fingerprint) {
                Ok(arrived) => arrived.map(Ok),
                Err(theirs) => Some(Err(What::Mismatch(theirs))),
            })?;
        self.watch.awaited(|| Awaited::Arrival { from: self.executor.links.peer(stream) });
        Ok(in_place)
    }

    fn await_flush(&mut self, at: usize, flush: Flush, k: u32) -> Result<(), Box<Failure>> {
        let stream = flush.stream as usize;
        let needed = self.program.streams[stream].posts.position(flush.nth, flush.stage, k) + 1;
        self.await_links(at, stream, |links| (links.flushed(stream) >= needed).then_some(Ok(())))?;
        self.watch.awaited(|| Awaited::Departure { to: self.executor.links.peer(stream) });
        Ok(())
    }

    /// The buffers are the caller's again only when nothing is left to send from them.
    pub(super) fn flush_all(&mut self) -> Result<(), Box<Failure>> {
        for stream in 0..self.program.streams.len() {
            self.await_links(self.program.folds.len(), stream, |links| {
                links.is_flushed(stream).then_some(Ok(()))
            })?;
            self.watch.awaited(|| Awaited::Departure { to: self.executor.links.peer(stream) });
        }
        Ok(())
    }

    /// Moves bytes both ways on all streams until `done`.
    fn await_links<T>(
        &mut self,
        at: usize,
        stream: usize,
        mut done: impl FnMut(&mut Links) -> Option<Result<T, What>>,
    ) -> Result<T, Box<Failure>> {
        let executor = &mut *self.executor;
        let peer = executor.links.peer(stream);
        let links = RefCell::new(&mut executor.links);
        let buffers = self.buffers;
        let ready = || {
            let mut links = links.borrow_mut();
            if let Some(done) = done(&mut links) {
                return Some(done.map_err(|what| (peer, what)));
            }
            links.drive(buffers);
            let done = done(&mut links).map(|done| done.map_err(|what| (peer, what)));
            done.or_else(|| links.fault().map(|(peer, fault)| Err((peer, What::Lost(fault)))))
        };
        let sleep = |sleep: Sleep<'_>| links.borrow_mut().sleep(sleep);
        match executor.waiting.until(&executor.alarm, sleep, ready) {
            Ok(done) => done.map_err(|(peer, what)| fail(at, peer, what)),
            Err(interrupted) => Err(interrupt(at, peer, interrupted)),
        }
    }

    #[inline(always)]
    fn consumed<const SIMPLE: bool>(&mut self, sources: &[FoldSource], k: u32) {
        let executor = &*self.executor;
        for source in sources.iter().filter(|source| source.from == SourceLocation::Board) {
            let position =
                wanted::<SIMPLE>(self.program, &executor.positions, source, k, 0).position;
            executor.board().consume(source.peer as usize, position + 1);
        }
    }

    fn release(&mut self, sources: &[FoldSource]) {
        for source in sources.iter().filter(|source| source.from == SourceLocation::Stream) {
            self.executor.links.release(source.peer as usize);
        }
    }
}

/// Polls of a board between two looks at the streams.
const OFTEN: u32 = 64;
/// Polls of a board between two looks at whether what is awaited can still come.
const SELDOM: u32 = 1024;

/// Why `wanted` will never come, if that shows: its writer is in another call, whose publications
/// may be fewer than the one we await, or it has left.
#[cold]
fn hopeless(
    board: &Board,
    wanted: ExpectedPublication,
    base: u64,
    has_left: impl Fn() -> bool,
) -> Option<What> {
    let other =
        board.peek_fingerprint(wanted.peer, base).filter(|theirs| *theirs != wanted.fingerprint);
    let why = match other {
        Some(theirs) => What::Mismatch(theirs),
        None if has_left() => What::Left,
        None => return None,
    };
    // Whatever it published before that is visible by now.
    (board.readable(wanted) == Ok(false)).then_some(why)
}

/// The publication that `source` means in window `k`.
#[inline(always)]
pub(super) fn wanted<const SIMPLE: bool>(
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
        mask: program.mask,
        peer,
        position: positions[peer] + nth,
        fingerprint: program.fingerprint,
        len,
    }
}

#[cold]
#[inline(never)]
fn fail(fold: usize, peer: usize, what: What) -> Box<Failure> {
    Box::new(Failure { fold, peer, what })
}

#[cold]
#[inline(never)]
fn interrupt(fold: usize, peer: usize, interrupted: Interrupted) -> Box<Failure> {
    let what = match interrupted {
        Interrupted::TimedOut => What::TimedOut,
        Interrupted::Alarmed => What::Alarmed,
    };
    fail(fold, peer, what)
}
