//! Waits for the readers of what a rank has published.

use super::polling::PollCounter;
use super::run::{ProgramRun, failed};
use super::{Awaited, ExecuteError, LinkError, RunObserver, SlowWait};
use maypole_transports::Sleep;
use maypole_transports::board::{Board, MAX_RANKS, Publication};
use std::cell::RefCell;

impl<O: RunObserver> ProgramRun<'_, '_, O> {
    /// Waits until the readers of the slot that `publication` goes to have consumed what it holds.
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
    /// have read, what it returns does not matter.
    #[inline(always)]
    pub(super) fn await_readers(
        &mut self,
        at: usize,
        k: u32,
        audience: impl Fn(&Board) -> u64,
        is_done: impl Fn(&Board) -> bool,
    ) -> Result<(), Box<ExecuteError>> {
        let executor = &mut *self.executor;
        let board = executor.board.as_ref().expect("a program with an audience has a board");
        let streams = RefCell::new(&mut executor.streams);
        let buffers = self.buffers;
        let watcher = &executor.watcher;
        let windows = (k, self.program.windows);
        let locals = &executor.locals;
        let readers = || {
            let audience = audience(board);
            let locals = locals.iter().enumerate();
            let read = locals.filter(move |(local, _)| audience >> local & 1 == 1);
            read.map(|(_, rank)| *rank)
        };
        let mut polls = PollCounter::default();
        let mut checks = 0;
        let ready = || {
            let room = is_done(board);
            polls.count();
            if !room && polls.is_drive_due() {
                streams.borrow_mut().drive(buffers);
            }
            if !room && polls.is_peer_check_due() {
                // The slot does not tell which reader is late, so they are noted in turn.
                let next = readers().cycle().nth(checks).expect("an audience has a member");
                checks = (checks + 1) % MAX_RANKS;
                watcher.note_wait(SlowWait { peer: next, step: at, windows });
                let gone = readers().find(|rank| watcher.has_left(*rank));
                // All that a reader consumed before it left is visible by now, and another reader may be
                // the one that is late.
                let is_late = |rank: &usize| readers().any(|late| late == *rank) && !is_done(board);
                gone.filter(is_late).map(Err)
            } else {
                room.then_some(Ok(()))
            }
        };
        let has_streams = !self.program.streams.is_empty();
        let sleep = |sleep: Sleep<'_>| match has_streams {
            true => streams.borrow_mut().sleep(sleep),
            false => board.sleep(sleep, || is_done(board)),
        };
        match executor.waiting.until(&executor.alarm, sleep, ready) {
            Ok(Ok(())) => {
                self.observer.awaited(|| Awaited::Room);
                Ok(())
            }
            // A reader that has left consumes nothing more.
            Ok(Err(rank)) => Err(failed(at, rank, LinkError::PeerLeft)),
            Err(interrupted) => {
                let reader = readers().next().expect("an audience has a member");
                Err(failed(at, reader, interrupted))
            }
        }
    }
}
