//! Waits on the board: for publications of other ranks, and for the readers of this rank's
//! publications.

use super::polling::PollCounter;
use super::run::{ProgramRun, expected, failed};
use super::{Awaited, ExecuteError, LinkError, RunObserver, SlowWait, WaitWatcher};
use crate::lower::FoldSource;
use maypole_transports::Sleep;
use maypole_transports::board::{Board, ExpectedPublication, MAX_RANKS, Publication};
use std::cell::RefCell;

/// How a wait has ended. A failure has the awaited rank and the reason.
type Ended = Result<(), (usize, LinkError)>;

impl<O: RunObserver> ProgramRun<'_, '_, O> {
    /// Waits for a publication of a local rank.
    #[inline(always)]
    pub(super) fn await_board<const SIMPLE: bool>(
        &mut self,
        at: usize,
        source: &FoldSource,
        k: u32,
        len: usize,
    ) -> Result<(), Box<ExecuteError>> {
        let executor = &*self.executor;
        let expected = expected::<SIMPLE>(self.program, &executor.positions, source, k, len);
        if executor.board().readable(expected) != Ok(true) {
            let rank = executor.locals[expected.peer];
            let base = executor.positions[expected.peer];
            let ended = |board: &Board| match board.readable(expected) {
                Ok(is_there) => is_there.then_some(Ok(())),
                Err(_) => Some(Err((rank, LinkError::Mismatch))),
            };
            self.await_slowly(at, k, ended, |board, _, watcher| {
                let never = never_published(board, expected, base, || watcher.has_left(rank));
                (rank, never.map(|why| (rank, why)))
            })?;
        }
        let executor = &*self.executor;
        let mine = executor.positions[executor.me] + u64::from(source.implied);
        executor.board().credit(expected.peer, mine);
        self.observer.awaited(|| Awaited::Arrival { from: executor.locals[expected.peer] });
        Ok(())
    }

    /// Waits until the readers of the slot that `publication` goes to have consumed its contents.
    #[inline(always)]
    pub(super) fn await_room(
        &mut self,
        at: usize,
        k: u32,
        publication: Publication,
    ) -> Result<(), Box<ExecuteError>> {
        // The slot holds an earlier publication, which may have had other readers.
        let holders = |board: &Board| match board.holders(publication) {
            0 => publication.audience,
            holders => holders,
        };
        self.await_readers(at, k, holders, |board| board.writable(publication))
    }

    /// Waits until `is_done`. `audience` returns the local ranks whose reading is waited for; once all
    /// have read, its value is ignored.
    #[inline(always)]
    pub(super) fn await_readers(
        &mut self,
        at: usize,
        k: u32,
        audience: impl Fn(&Board) -> u64,
        is_done: impl Fn(&Board) -> bool,
    ) -> Result<(), Box<ExecuteError>> {
        if !is_done(self.executor.board()) {
            let mut checks = 0;
            let ended = |board: &Board| is_done(board).then_some(Ok(()));
            self.await_slowly(at, k, ended, |board, locals, watcher| {
                let readers = || {
                    let audience = audience(board);
                    let locals = locals.iter().enumerate();
                    let read = locals.filter(move |(local, _)| audience >> local & 1 == 1);
                    read.map(|(_, rank)| *rank)
                };
                // The slot does not identify the late reader, so they are noted in turn.
                let next = readers().cycle().nth(checks).expect("an audience has a member");
                checks = (checks + 1) % MAX_RANKS;
                let gone = readers().find(|rank| watcher.has_left(*rank));
                // All consumption of a reader before it left is visible by now, and another reader
                // may be late.
                let is_late = |rank: &usize| readers().any(|late| late == *rank) && !is_done(board);
                // A reader that has left consumes nothing more.
                (next, gone.filter(is_late).map(|rank| (rank, LinkError::PeerLeft)))
            })?;
        }
        self.observer.awaited(|| Awaited::Room);
        Ok(())
    }

    /// Waits until `ended` returns a value. At intervals `suspect` names an awaited rank, and one
    /// that will never arrive, if any, with the reason. A function of its own: the code of a wait
    /// would slow down short calls that need not wait.
    #[inline(never)]
    fn await_slowly(
        &mut self,
        at: usize,
        k: u32,
        ended: impl Fn(&Board) -> Option<Ended>,
        mut suspect: impl FnMut(
            &Board,
            &[usize],
            &dyn WaitWatcher,
        ) -> (usize, Option<(usize, LinkError)>),
    ) -> Result<(), Box<ExecuteError>> {
        let executor = &mut *self.executor;
        let board = executor.board.as_ref().expect("a program that waits on a board has one");
        let streams = RefCell::new(&mut executor.streams);
        let buffers = self.buffers;
        let watcher = &*executor.watcher;
        let windows = (k, self.program.windows);
        let mut polls = PollCounter::default();
        let ready = || {
            if let Some(ended) = ended(board) {
                return Some(ended);
            }
            polls.count();
            if polls.is_drive_due() {
                streams.borrow_mut().drive(buffers);
            }
            if !polls.is_peer_check_due() {
                return None;
            }
            let (peer, never) = suspect(board, &executor.locals, watcher);
            watcher.note_wait(SlowWait { peer, step: at, windows });
            never.map(Err)
        };
        let has_streams = !self.program.streams.is_empty();
        let sleep = |sleep: Sleep<'_>| match has_streams {
            // No publisher wakes a rank that sleeps on its streams.
            true => streams.borrow_mut().sleep(sleep),
            false => board.sleep(sleep, || ended(board).is_some()),
        };
        let interrupted = match executor.waiting.until(&executor.alarm, sleep, ready) {
            Ok(ended) => return ended.map_err(|(rank, why)| failed(at, rank, why)),
            Err(interrupted) => interrupted,
        };
        let (peer, _) = suspect(board, &executor.locals, watcher);
        Err(failed(at, peer, interrupted))
    }
}

/// The error if `expected` will never be published: its writer has left, or is in another call,
/// which may make fewer publications.
#[cold]
fn never_published(
    board: &Board,
    expected: ExpectedPublication,
    base: u64,
    has_left: impl Fn() -> bool,
) -> Option<LinkError> {
    let current = board.peek_fingerprint(expected.peer, base);
    let why = match current.filter(|theirs| *theirs != expected.fingerprint) {
        Some(_) => LinkError::Mismatch,
        None if has_left() => LinkError::PeerLeft,
        None => return None,
    };
    // All publications of the writer before it continued or left are visible by now.
    (board.readable(expected) == Ok(false)).then_some(why)
}
