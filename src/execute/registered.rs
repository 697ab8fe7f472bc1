//! Runs a program on registered memory: folds read other ranks' buffers in place, and write to them.
//!
//! Publications have no payload. They signal that bytes are ready, or that they have been written;
//! a rank's consumption counter signals that it has read them.

use super::run::{ProgramRun, failed};
use super::{Buffers, ExecuteError, Executor, LinkError, RunObserver, in_clock_order, slices};
use crate::lower::{Flush, Fold, FoldSource, Program, Push, RegisteredAccess, SourceLocation};
use crate::schedule::Buffer;
use arrayvec::ArrayVec;
use maypole_kernels::{Reducer, View, ViewMut};
use maypole_transports::Fault;
use maypole_transports::board::{Board, MAX_RANKS};
use maypole_transports::process_memory::ProcessMemory;

/// Positions that the end of a call takes.
const END: u64 = 1;
/// Bytes of a block if a result has more than two destinations: they stay in the first-level cache
/// between the fold and the copies.
const BLOCK: usize = 8 << 10;
/// The same for copies that bypass the caches: they wait for memory at the end of each block, so
/// blocks are longer. They stay in the second-level cache.
const LONG_BLOCK: usize = 64 << 10;

/// The buffers of another rank, and this rank's access to them.
#[derive(Clone, Copy, Debug)]
pub enum PeerMemory<'a> {
    /// Mapped, so that bytes are read and written directly. No rank reaches another one's scratch.
    Mapped(Buffers<'a>),
    /// In the memory of its process, which is only copied from.
    Process(ProcessBuffers),
}

/// The buffers of one rank in the memory of its process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessBuffers {
    /// The process.
    pub memory: ProcessMemory,
    /// Address and length of the rank's contribution.
    pub input: (u64, u64),
    /// Address and length of the rank's part of the result.
    pub output: (u64, u64),
}

impl Executor {
    /// Executes `program`, which was [lowered for registered
    /// memory](crate::lower::lower_registered). `peers` are the buffers of the local ranks, which
    /// all ranks have announced for this call. Returns once no rank touches this rank's buffers any
    /// more, and bytes that were copied from other processes are certainly the announced ones.
    ///
    /// # Errors
    /// As [`run`](Self::run). Other ranks may then still touch this rank's buffers.
    ///
    /// # Panics
    /// As [`run`](Self::run), or if the program was lowered for private memory, or for mapped memory
    /// where a peer's is not.
    #[inline(never)]
    pub fn run_registered<O: RunObserver>(
        &mut self,
        program: &Program,
        reducer: &Reducer,
        buffers: &Buffers<'_>,
        peers: &[PeerMemory<'_>],
        observer: O,
    ) -> Result<(), Box<ExecuteError>> {
        let access = program.registered.as_deref().expect("a program for registered memory");
        if self.uncounted.take().is_some() {
            self.count_consumed();
        }
        let mut run =
            ProgramRun { executor: self, program, reducer, buffers, observer, published: 0 };
        in_clock_order(program, |fold, k| run.step_registered(access, peers, fold, k))?;
        run.end_registered(access)?;
        // The end of a call is a position of its own: a rank that sends no message has an end, too.
        for (position, total) in self.positions.iter_mut().zip(&program.totals) {
            *position += total + END;
        }
        Ok(())
    }
}

impl<O: RunObserver> ProgramRun<'_, '_, O> {
    fn step_registered(
        &mut self,
        access: &RegisteredAccess,
        peers: &[PeerMemory<'_>],
        at: usize,
        k: u32,
    ) -> Result<(), Box<ExecuteError>> {
        let program = self.program;
        let fold = &program.folds[at];
        let sources =
            &program.sources[fold.first as usize..fold.first as usize + fold.count as usize];
        for source in sources.iter().filter(|source| is_announced(source)) {
            self.await_board::<false>(at, source, k, 0)?;
        }
        for flush in &program.flushes[fold.flushes.0 as usize..fold.flushes.1 as usize] {
            self.await_reader(at, k, *flush)?;
        }
        let pushes = access.pushes_of(at);
        match copied_from(sources, peers) {
            Some((source, process)) => self.copy_from_process(at, fold, source, process, k)?,
            None => self.combine_registered(fold, sources, pushes, peers, k),
        }
        if fold.audience != 0 {
            let publication = self.publication(fold, 0);
            self.await_room(at, k, publication)?;
            self.executor.board().commit(publication);
            self.published += 1;
        }
        self.consumed_registered(sources, k);
        self.observer.folded(at, k);
        Ok(())
    }

    /// Copies a window of another process's buffer to where `fold` stores it.
    fn copy_from_process(
        &self,
        at: usize,
        fold: &Fold,
        source: &FoldSource,
        process: &ProcessBuffers,
        k: u32,
    ) -> Result<(), Box<ExecuteError>> {
        let (SourceLocation::Peer(from) | SourceLocation::Lent(from)) = source.from else {
            unreachable!("nothing is pushed to a process")
        };
        let buffer = fold.into.expect("what is copied is stored");
        let into = self.buffers.write(buffer, fold.extent.window(k));
        let address = process.address(from, source.extent.window(k));
        let peer = source.peer as usize;
        let read = process.memory.read(address, into);
        // The memory cannot be read, or has changed.
        let lost = |error| LinkError::Lost(Fault::Io(error));
        read.map_err(|error| failed(at, self.executor.locals[peer], lost(error)))
    }

    /// Stores the combination of the sources in all targets of the fold.
    fn combine_registered(
        &self,
        fold: &Fold,
        sources: &[FoldSource],
        pushes: &[Push],
        peers: &[PeerMemory<'_>],
        k: u32,
    ) {
        let own = fold.into.map(|buffer| self.buffers.write(buffer, fold.extent.window(k)));
        let pushed = pushes.iter().map(|push| {
            let (offset, len) = push.extent.window(k);
            peers[push.peer as usize].mapped().output.slice(offset, len)
        });
        let mut places = ArrayVec::<ViewMut<'_>, { MAX_RANKS + 1 }>::new();
        own.into_iter().chain(pushed).for_each(|place| places.push(place));
        if places.is_empty() {
            return;
        }
        let view = |source: &FoldSource| {
            let range = source.extent.window(k);
            let peer = || peers[source.peer as usize].mapped();
            match source.from {
                SourceLocation::Own(buffer) => self.buffers.read(buffer, range),
                SourceLocation::Peer(buffer) | SourceLocation::Lent(buffer) => {
                    peer().read(buffer, range)
                }
                // Written by the peer, and passed on from here.
                SourceLocation::Pushed => self.buffers.read(Buffer::Output, fold.extent.window(k)),
                from => unreachable!("{from:?} is no place in registered memory"),
            }
        };
        let mut views = ArrayVec::<View<'_>, { crate::lower::MAX_SOURCES }>::new();
        sources.iter().for_each(|source| views.push(view(source)));
        match self.program.past_caches {
            true if self.stores_past_caches(fold, &views) || !pushes.is_empty() => {
                combine_past_caches(self.reducer, &places, &views);
            }
            _ => combine_to_all(self.reducer, &places, &views),
        }
    }

    /// Waits until a peer has read the bytes that this rank is about to overwrite.
    fn await_reader(&mut self, at: usize, k: u32, flush: Flush) -> Result<(), Box<ExecuteError>> {
        let me = self.executor.me;
        let nth = self.program.numberings[me].position(flush.nth, flush.stage, k);
        let end = self.executor.positions[me] + nth + 1;
        self.await_consumed(at, k, 1 << flush.peer, end)
    }

    /// Waits until all of `readers` have consumed the publications below `end`.
    fn await_consumed(
        &mut self,
        at: usize,
        k: u32,
        readers: u64,
        end: u64,
    ) -> Result<(), Box<ExecuteError>> {
        let late = |board: &Board| match board.late(readers, end) {
            0 => readers,
            late => late,
        };
        self.await_readers(at, k, late, |board| board.is_consumed(readers, end))
    }

    /// Signals to the writers of the sources that this rank has read them.
    fn consumed_registered(&self, sources: &[FoldSource], k: u32) {
        let executor = &*self.executor;
        for source in sources.iter().filter(|source| is_announced(source)) {
            let peer = source.peer as usize;
            let nth = self.program.numberings[peer].position(source.publication, source.stage, k);
            executor.board().consume(peer, executor.positions[peer] + nth + 1);
        }
    }

    /// Signals to all ranks that this one is done with their memory, and waits until they are done
    /// with this rank's.
    fn end_registered(&mut self, access: &RegisteredAccess) -> Result<(), Box<ExecuteError>> {
        let executor = &*self.executor;
        let ends = executor.positions.iter().zip(&self.program.totals).map(|(p, t)| p + t + END);
        for (peer, end) in ends.enumerate().filter(|(peer, _)| *peer != executor.me) {
            executor.board().consume(peer, end);
        }
        let audience: u64 = access.awaited_at_end.iter().map(|peer| 1 << peer).sum();
        if audience == 0 {
            return Ok(());
        }
        let end = executor.positions[executor.me] + self.program.totals[executor.me] + END;
        self.await_consumed(self.program.folds.len(), self.program.windows, audience, end)
    }
}

impl<'a> PeerMemory<'a> {
    fn mapped(&self) -> &Buffers<'a> {
        match self {
            Self::Mapped(buffers) => buffers,
            Self::Process(_) => panic!("the program needs memory that is mapped"),
        }
    }
}

impl ProcessBuffers {
    /// The address of a part of a buffer.
    ///
    /// # Panics
    /// If the buffer has no such part.
    fn address(&self, buffer: Buffer, (offset, len): (usize, usize)) -> u64 {
        let (start, bytes) = match buffer {
            Buffer::Input => self.input,
            Buffer::Output => self.output,
            Buffer::Scratch => unreachable!("nobody is told of scratch"),
        };
        let end = (offset as u64).checked_add(len as u64);
        assert!(end.is_some_and(|end| end <= bytes), "{len} bytes at {offset} of {bytes}");
        start + offset as u64
    }
}

/// The source that another process has, if the fold copies from one.
fn copied_from<'a, 'b>(
    sources: &'a [FoldSource],
    peers: &'b [PeerMemory<'_>],
) -> Option<(&'a FoldSource, &'b ProcessBuffers)> {
    let [source] = sources else { return None };
    match (source.from, peers.get(source.peer as usize)) {
        (SourceLocation::Peer(_) | SourceLocation::Lent(_), Some(PeerMemory::Process(process))) => {
            Some((source, process))
        }
        _ => None,
    }
}

/// True if a publication signals that the source is ready.
fn is_announced(source: &FoldSource) -> bool {
    matches!(source.from, SourceLocation::Peer(_) | SourceLocation::Pushed)
}

/// Stores the combination of `sources` in each of `places`, of which there is at least one.
fn combine_to_all(reducer: &Reducer, places: &[ViewMut<'_>], sources: &[View<'_>]) {
    let (first, second, others) = match *places {
        [only] => return reducer.apply(only, None, sources),
        [first, second] => return reducer.apply(first, Some(second), sources),
        [first, second, ref others @ ..] => (first, second, others),
        [] => unreachable!("a result goes somewhere"),
    };
    for (at, len) in reducer.blocks(first.len(), BLOCK) {
        let block = slices(sources, at, len);
        let result = first.slice(at, len);
        reducer.apply(result, Some(second.slice(at, len)), &block);
        others.iter().for_each(|other| other.slice(at, len).copy_from(result.as_view()));
    }
}

/// As [`combine_to_all`], for outputs larger than the caches: the result is computed in one place,
/// and copied from there past the caches. A single source is copied to all.
fn combine_past_caches(reducer: &Reducer, places: &[ViewMut<'_>], sources: &[View<'_>]) {
    let [first, others @ ..] = places else { unreachable!("a result goes somewhere") };
    if let [source] = sources {
        return places.iter().for_each(|place| place.copy_past_caches(*source));
    }
    for (at, len) in reducer.blocks(first.len(), LONG_BLOCK) {
        let block = slices(sources, at, len);
        let result = first.slice(at, len);
        reducer.apply(result, None, &block);
        others.iter().for_each(|other| other.slice(at, len).copy_past_caches(result.as_view()));
    }
}
