//! Walks one lowered program and moves real bytes. The same loop for every algorithm, size and transport.
//!
//! Local ranks are reached over a board, everybody else over streams; one program mixes both. Nothing here knows a
//! collective or an algorithm.

mod links;

use crate::lower::{Flush, From, MAX_SOURCES, Op, Program, Source};
use crate::schedule::Buffer;
use arrayvec::ArrayVec;
pub use links::{AnyStream, Links};
use links::{Arrival, Place};
use maypole_kernels::{Fold, View, ViewMut};
use maypole_transports::board::{Board, In, Out};
use maypole_transports::{Alarm, Fault, Interrupted, Waiting};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

/// The three buffers of one call. Input and output may be the same memory, or overlap as the collective allows.
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
    pub op: usize,
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
    /// The stream to the peer carries nothing any more.
    Lost(Fault),
}

/// What one rank executes programs with: its board, its streams and its way of waiting.
#[derive(Debug)]
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
    /// The last program, by its fingerprint, if it left what we consumed unsaid.
    silent: Option<u64>,
}

impl Executor {
    /// For a rank that shares no board yet.
    pub fn new(rank: usize, waiting: Waiting, alarm: Arc<Alarm>) -> Self {
        let (locals, positions) = (vec![rank], vec![0]);
        Self { board: None, locals, me: 0, positions, links: Links::default(), waiting, alarm, silent: None }
    }

    /// Gives the rank, which is `locals[me]`, the board that these ranks share.
    pub fn share(&mut self, board: Board, locals: Vec<usize>, me: usize) {
        self.positions = vec![0; locals.len()];
        (self.board, self.locals, self.me) = (Some(board), locals, me);
    }

    /// The streams to other hosts.
    pub fn links(&mut self) -> &mut Links {
        &mut self.links
    }

    /// Changes how waits end.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.waiting = self.waiting.with_timeout(timeout);
    }

    /// Runs `program` over `buffers`, combining by `fold`.
    ///
    /// # Errors
    /// [`Failure`]; afterwards the executor is good for nothing but being dropped.
    ///
    /// # Panics
    /// If a buffer is shorter than the program needs, or a link that it names is missing.
    #[inline]
    pub fn run(&mut self, program: &Program, fold: &Fold, buffers: &Buffers<'_>) -> Result<(), Box<Failure>> {
        // A program proves what its own readers consumed, not what those of another one did.
        let silent = program.self_crediting.then_some(program.fingerprint);
        if self.silent != silent && self.silent.is_some() {
            self.say_consumed();
        }
        self.silent = silent;
        if program.windows == 1 && program.streams.is_empty() {
            let mut walk = Walk { executor: self, program, fold, buffers, made: 0 };
            for op in 0..program.ops.len() {
                walk.step::<false>(op, 0)?;
            }
        } else {
            self.walk_windows(program, fold, buffers)?;
        }
        for (position, numbering) in self.positions.iter_mut().zip(&program.numberings) {
            *position += numbering.total();
        }
        Ok(())
    }

    #[inline(never)]
    fn walk_windows(&mut self, program: &Program, fold: &Fold, buffers: &Buffers<'_>) -> Result<(), Box<Failure>> {
        self.links.begin(program);
        let mut walk = Walk { executor: self, program, fold, buffers, made: 0 };
        for clock in 0..program.windows + program.stages() - 1 {
            let oldest = (clock + 1).saturating_sub(program.windows);
            let newest = clock.min(program.stages() - 1);
            for op in program.first_of[oldest as usize]..program.first_of[newest as usize + 1] {
                walk.step::<true>(op as usize, clock - program.ops[op as usize].stage)?;
            }
        }
        walk.flush_all()
    }

    /// Writes the counters that self-crediting programs leave alone, because another program's writers look at them.
    #[cold]
    fn say_consumed(&mut self) {
        let Some(board) = &self.board else { return };
        for (peer, position) in self.positions.iter().enumerate() {
            board.consume(peer, *position);
        }
    }
}

/// One run of one program.
struct Walk<'a, 'b> {
    executor: &'a mut Executor,
    program: &'a Program,
    fold: &'a Fold,
    buffers: &'a Buffers<'b>,
    /// Publications of ours so far in this run.
    made: u64,
}

impl Walk<'_, '_> {
    /// Window `k` of one fold. `STREAMS` is false where the program surely has none.
    #[inline(always)]
    fn step<const STREAMS: bool>(&mut self, at: usize, k: u32) -> Result<(), Box<Failure>> {
        let program = self.program;
        let op = &program.ops[at];
        let place = op.extent.window(k);
        let sources = &program.sources[op.first as usize..op.first as usize + op.count as usize];
        if STREAMS {
            for flush in &program.flushes[op.flushes.0 as usize..op.flushes.1 as usize] {
                self.await_flush(at, *flush, k)?;
            }
            self.expect(op, sources, place);
        }
        self.combine::<STREAMS>(at, op, sources, place, k)?;
        if STREAMS {
            self.release(sources);
        }
        if !program.self_crediting {
            self.consumed(sources, k);
        }
        if STREAMS && let Some(buffer) = op.posted {
            let posted = Place { buffer, offset: place.0, len: place.1 };
            for stream in &program.posts[op.posts.0 as usize..op.posts.1 as usize] {
                self.executor.links.post(*stream as usize, posted, program.fingerprint);
            }
            self.executor.links.push(self.buffers);
        }
        Ok(())
    }

    /// Awaits the sources and combines them where the fold says.
    #[inline(always)]
    fn combine<const STREAMS: bool>(
        &mut self,
        at: usize,
        op: &Op,
        sources: &[Source],
        place: (usize, usize),
        k: u32,
    ) -> Result<(), Box<Failure>> {
        let mut in_place = false;
        for source in sources {
            match source.from {
                From::Own(_) => {}
                From::Board => self.await_board(at, source, k, place.1)?,
                From::Stream if STREAMS => in_place |= self.await_stream(at, source)?,
                From::Stream => unreachable!("the program has no streams"),
            }
        }
        let out = Out {
            class: self.program.class,
            mask: self.program.mask,
            position: self.executor.positions[self.executor.me] + self.made,
            audience: op.audience,
            fingerprint: self.program.fingerprint,
            len: place.1,
        };
        if op.audience != 0 {
            self.await_room(at, out)?;
        }
        let executor = &*self.executor;
        let lent = |source: &Source| match source.from {
            From::Own(buffer) => self.buffers.read(buffer, source.extent.window(k)),
            From::Board => executor.lent(self.program, source, k, place.1),
            // What came straight to its place is its own source.
            From::Stream if in_place => self.buffers.read(op.into.expect("came to its place"), place),
            From::Stream => executor.links.lent(source.peer as usize, place.1),
        };
        let views: ArrayVec<View<'_>, MAX_SOURCES> = sources.iter().map(lent).collect();
        let into = op.into.map(|buffer| self.buffers.write(buffer, place));
        let slot = if op.audience != 0 { executor.slot(out) } else { None };
        match (into, slot) {
            (Some(into), also) => self.fold.apply(into, also, &views),
            (None, Some(slot)) => self.fold.apply(slot, None, &views),
            // Only posted, from where it lies.
            (None, None) => {}
        }
        if op.audience != 0 {
            executor.board().commit(out);
            self.made += 1;
        }
        Ok(())
    }

    #[inline(always)]
    fn await_board(&mut self, at: usize, source: &Source, k: u32, len: usize) -> Result<(), Box<Failure>> {
        let peer = source.peer as usize;
        let executor = &mut *self.executor;
        let wanted = wanted(self.program, &executor.positions, source, k, len);
        let board = executor.board.as_ref().expect("a program with board sources has a board");
        let links = RefCell::new(&mut executor.links);
        let buffers = self.buffers;
        let base = executor.positions[peer];
        let mut polls = 0u32;
        let mut suspected = false;
        let ready = || match board.readable(wanted) {
            Ok(true) => Some(Ok(())),
            Ok(false) => {
                polls = polls.wrapping_add(1);
                if polls.is_multiple_of(64) {
                    links.borrow_mut().drive(buffers);
                    // The peer may be in another call, whose publications are fewer than the one we await. Or it has
                    // just published that one and is calls ahead already: then it is readable before the next look.
                    let elsewhere = board.glance(peer, base).filter(|theirs| *theirs != wanted.fingerprint);
                    match elsewhere {
                        Some(theirs) if suspected => return Some(Err(theirs)),
                        _ => suspected = elsewhere.is_some(),
                    }
                }
                None
            }
            Err(mismatch) => Some(Err(mismatch.theirs)),
        };
        let nap = |length| links.borrow_mut().nap(length);
        match executor.waiting.until(&executor.alarm, nap, ready) {
            Ok(Ok(())) => {
                board.credit(peer, executor.positions[executor.me] + u64::from(source.implied));
                Ok(())
            }
            Ok(Err(theirs)) => Err(fail(at, executor.locals[peer], What::Mismatch(theirs))),
            Err(interrupted) => Err(interrupt(at, executor.locals[peer], interrupted)),
        }
    }

    #[inline(always)]
    fn await_room(&mut self, at: usize, out: Out) -> Result<(), Box<Failure>> {
        let executor = &mut *self.executor;
        let board = executor.board.as_ref().expect("a program with an audience has a board");
        let (links, buffers) = (RefCell::new(&mut executor.links), self.buffers);
        let mut polls = 0u32;
        let ready = || {
            let room = board.writable(out);
            polls = polls.wrapping_add(1);
            if !room && polls.is_multiple_of(64) {
                links.borrow_mut().drive(buffers);
            }
            room.then_some(())
        };
        let nap = |length| links.borrow_mut().nap(length);
        let reader = || executor.locals[out.audience.trailing_zeros() as usize];
        executor.waiting.until(&executor.alarm, nap, ready).map_err(|interrupted| interrupt(at, reader(), interrupted))
    }

    /// Tells streams where what this fold takes from them shall go.
    fn expect(&mut self, op: &Op, sources: &[Source], place: (usize, usize)) {
        let direct = op.into.filter(|_| sources.len() == 1);
        for source in sources.iter().filter(|source| source.from == From::Stream) {
            let into = direct.map(|buffer| Place { buffer, offset: place.0, len: place.1 });
            self.executor.links.expect(source.peer as usize, Arrival { into, len: place.1 });
        }
    }

    /// True if what came is already in its place.
    fn await_stream(&mut self, at: usize, source: &Source) -> Result<bool, Box<Failure>> {
        let stream = source.peer as usize;
        let fingerprint = self.program.fingerprint;
        self.await_links(at, stream, |links| match links.arrived(stream, fingerprint) {
            Ok(arrived) => arrived.map(Ok),
            Err(theirs) => Some(Err(What::Mismatch(theirs))),
        })
    }

    fn await_flush(&mut self, at: usize, flush: Flush, k: u32) -> Result<(), Box<Failure>> {
        let stream = flush.stream as usize;
        let needed = self.program.streams[stream].posts.position(flush.nth, flush.stage, k) + 1;
        self.await_links(at, stream, |links| (links.flushed(stream) >= needed).then_some(Ok(())))
    }

    /// The buffers are the caller's again only when nothing is left to send from them.
    fn flush_all(&mut self) -> Result<(), Box<Failure>> {
        for stream in 0..self.program.streams.len() {
            self.await_links(self.program.ops.len(), stream, |links| links.is_flushed(stream).then_some(Ok(())))?;
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
        let nap = |length| links.borrow_mut().nap(length);
        match executor.waiting.until(&executor.alarm, nap, ready) {
            Ok(done) => done.map_err(|(peer, what)| fail(at, peer, what)),
            Err(interrupted) => Err(interrupt(at, peer, interrupted)),
        }
    }

    #[inline(always)]
    fn consumed(&mut self, sources: &[Source], k: u32) {
        let executor = &*self.executor;
        for source in sources.iter().filter(|source| source.from == From::Board) {
            let position = wanted(self.program, &executor.positions, source, k, 0).position;
            executor.board().consume(source.peer as usize, position + 1);
        }
    }

    fn release(&mut self, sources: &[Source]) {
        for source in sources.iter().filter(|source| source.from == From::Stream) {
            self.executor.links.release(source.peer as usize);
        }
    }
}

/// The publication that `source` means in window `k`.
#[inline(always)]
fn wanted(program: &Program, positions: &[u64], source: &Source, k: u32, len: usize) -> In {
    let peer = source.peer as usize;
    let nth = program.numberings[peer].position(source.publication, source.stage, k);
    In {
        class: program.class,
        mask: program.mask,
        peer,
        position: positions[peer] + nth,
        fingerprint: program.fingerprint,
        len,
    }
}

impl Executor {
    #[inline(always)]
    fn board(&self) -> &Board {
        self.board.as_ref().expect("a program with an audience has a board")
    }

    /// A publication that is known to be there.
    #[inline(always)]
    fn lent(&self, program: &Program, source: &Source, k: u32, len: usize) -> View<'_> {
        self.board().lent(wanted(program, &self.positions, source, k, len))
    }

    /// A slot that is known to be free.
    #[inline(always)]
    fn slot(&self, out: Out) -> Option<ViewMut<'_>> {
        Some(self.board().slot(out))
    }
}

#[cold]
#[inline(never)]
fn fail(op: usize, peer: usize, what: What) -> Box<Failure> {
    Box::new(Failure { op, peer, what })
}

#[cold]
#[inline(never)]
fn interrupt(op: usize, peer: usize, interrupted: Interrupted) -> Box<Failure> {
    let what = match interrupted {
        Interrupted::TimedOut => What::TimedOut,
        Interrupted::Alarmed => What::Alarmed,
    };
    fail(op, peer, what)
}
