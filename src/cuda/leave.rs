//! How a rank leaves a group on GPUs.
//!
//! Other processes may have its memory open, and their kernels may read it, after its own kernels have
//! ended. A rank that is dropped waits for its own kernels alone. A thread closes the opened memory
//! of the others, and frees its own memory when no other rank uses it, at a moment when no kernel
//! of any group runs on the GPU: the driver might wait for it.

use super::comm::Comm;
use super::rank::{Connected, DeviceRank};
use crate::error::Result;
use maypole_transports::cuda::{BesideCapture, LeftMemory};
use maypole_transports::turns::{self, poll_until};
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Comm {
    /// Leaves the group in order, and frees its memory on all GPUs. Collective: waits until everything that
    /// was started is done, here and on the other ranks, each of which closes its `Comm`, too.
    ///
    /// Dropping leaves, too, and waits for this rank's work in this group, but for no other rank
    /// and no other group. Memory that other processes may still read is freed when all of them
    /// have left or have ended. While calls of other groups run on the GPU it is kept, and used by
    /// groups that are made meanwhile. If some rank never leaves, it stays until the process ends.
    ///
    /// A group of which calls were [captured](Self#graphs) keeps its memory until the process ends,
    /// however it is left.
    ///
    /// ```no_run
    /// # fn rank(mut world: maypole::Communicator) -> Result<(), Box<dyn std::error::Error>> {
    /// use maypole::cuda::{Comm, driver};
    /// let stream = driver()?.context(0)?.new_stream()?;
    /// let comm = Comm::new(&mut world, stream)?;
    /// comm.barrier()?;
    /// comm.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`synchronize`](Self::synchronize), and as every call.
    pub fn close(self) -> Result<()> {
        self.synchronize()?;
        self.into_rank().close()
    }

    /// Leaves as dropping does, and then waits for at most `limit` until the other ranks have left,
    /// too: the end of the process would free memory that they may read. For a thread that may
    /// block.
    ///
    /// ```no_run
    /// # fn rank(comm: maypole::cuda::Comm) {
    /// comm.leave(std::time::Duration::from_secs(5));
    /// # }
    /// ```
    pub fn leave(self, limit: Duration) {
        let left = self.into_rank().stop();
        comes_true(limit, || left.is_unused());
        left.free();
    }
}

/// How long a rank that has aborted waits for its kernels, which abort, too. Work of the program
/// may delay their streams.
const ABORT_LIMIT: Duration = Duration::from_secs(2);
/// How long a rank that closes a group waits until its memory is free, once all ranks have left: calls of
/// other groups may run on the GPU.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);
/// The time between two looks in such a wait.
const PAUSE: Duration = Duration::from_millis(1);

/// How long a rank that leaves waits until hosts have received its last publications. Their couriers receive
/// at any time, so it takes longer only where a process is stopped, or the network is cut.
const LAST_WORDS: Duration = Duration::from_secs(60);

/// Waits until `done`, for at most `limit`. Returns whether it is.
fn comes_true(limit: Duration, done: impl Fn() -> bool) -> bool {
    poll_until(turns::now() + limit, PAUSE, || done().then_some(())).is_some()
}

impl DeviceRank {
    fn close(mut self) -> Result<()> {
        let left = self.stop();
        self.comm.agree_on("close() of a cuda::Comm", &())?;
        comes_true(CLOSE_LIMIT, || left.is_unused());
        left.free();
        Ok(())
    }

    /// Ends the rank's work on its GPU. Waits for its calls, unless it has aborted.
    fn stop(&mut self) -> LeftMemory {
        let Some(mut connected) = self.connected.take() else { return LeftMemory::default() };
        if !self.comm.engine.get().health.owner.is_current() {
            // A forked child has no GPU.
            std::mem::forget(connected);
            return LeftMemory::default();
        }
        let _beside = BesideCapture::begin();
        let has_ended = match self.aborted.load(Ordering::Acquire) {
            true => comes_true(ABORT_LIMIT, || connected.board.is_drained()),
            false => {
                connected.board.drain();
                true
            }
        };
        if has_ended && !self.captured.is_empty() {
            // Replays must not wait for ranks that are gone. If this fails, so does every kernel.
            let _ = connected.board.refuse_walks();
        }
        let Connected { board, walks, messages, courier, _blocks: blocks, .. } = connected;
        if let Some(courier) = courier {
            // Other hosts may not have the last publications yet.
            courier.end(if has_ended { LAST_WORDS } else { Duration::ZERO });
        }
        let programs = (std::mem::take(&mut self.captured), std::mem::take(&mut self.programs));
        let has_graphs = !programs.0.is_empty();
        let scratch = (self.scratch.take(), self.staging.take(), std::mem::take(&mut self.maps));
        let kept = (walks, messages, programs, scratch);
        // Other groups may have the blocks of kernels that have ended.
        let blocks = (!has_ended).then_some(blocks);
        if has_graphs {
            // The end of the last graph that has their addresses is unknown.
            std::mem::forget((board, kept));
            return LeftMemory::default();
        }
        board.leave(Box::new((blocks, kept)))
    }
}

impl Drop for DeviceRank {
    fn drop(&mut self) {
        self.stop();
    }
}
