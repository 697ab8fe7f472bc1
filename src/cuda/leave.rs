//! How a rank leaves a group on GPUs.
//!
//! Other processes may have its memory open, and their kernels may read it, after its own kernels have
//! ended. A rank that is dropped waits for its own kernels alone, and tells the others that it is done
//! with their memory. Its own is freed when all have said so.

use super::comm::Comm;
use super::rank::{Connected, DeviceRank};
use crate::error::Result;
use maypole_transports::cuda::{DeviceBoard, LentMemory, free_what_was_left};
use maypole_transports::turns::{self, poll_until};
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Comm {
    /// Leaves the group in order, and frees its memory on all GPUs at once. Collective: waits until
    /// everything that was started is done, here and on the other ranks, each of which closes its
    /// `Comm`, too.
    ///
    /// Dropping leaves, too, and waits for what this rank has started, but for no other rank. Memory
    /// that other processes may still read is then freed when all of them have left, before memory for
    /// another group is made. If some rank never leaves, it stays until the process ends.
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
    /// too, so that memory they may have read is free. Without the wait, a rank other than 0 that
    /// leaves first never hears that they have. For a thread that holds nobody up.
    ///
    /// ```no_run
    /// # fn rank(comm: maypole::cuda::Comm) {
    /// comm.leave(std::time::Duration::from_secs(5));
    /// # }
    /// ```
    pub fn leave(self, limit: Duration) {
        let mut rank = self.into_rank();
        let Some(lent) = rank.stop() else { return };
        let released = rank.comm.engine.get().health().control().release();
        let is_released = || released.load(Ordering::Acquire).then_some(());
        let _ = poll_until(turns::now() + limit, ABORT_PAUSE, is_released);
        lent.free_after(released);
        free_what_was_left();
    }
}

/// How long a rank that has given up waits for its kernels, which give up, too. Work of the program may
/// hold up the streams on which they are.
const ABORT_LIMIT: Duration = Duration::from_secs(2);
const ABORT_PAUSE: Duration = Duration::from_millis(1);

fn ends_soon(board: &DeviceBoard) -> bool {
    let until = turns::now() + ABORT_LIMIT;
    poll_until(until, ABORT_PAUSE, || board.is_drained().then_some(())).is_some()
}

impl DeviceRank {
    fn close(mut self) -> Result<()> {
        let lent = self.stop();
        match self.comm.agree("close() of a cuda::Comm") {
            Ok(()) => {
                lent.into_iter().for_each(LentMemory::free);
                Ok(())
            }
            Err(error) => {
                self.let_go(lent);
                Err(error)
            }
        }
    }

    /// Ends what the rank does on its GPU. Returns its memory that others may have open, if they are
    /// processes.
    fn stop(&mut self) -> Option<LentMemory> {
        let connected = std::mem::replace(&mut self.connected, Err("it has left".to_owned()));
        let mut connected = connected.ok()?;
        if !self.comm.engine.get().health().is_in_own_process() {
            // A forked child has no GPU.
            std::mem::forget(connected);
            return None;
        }
        let is_stuck = self.aborted.load(Ordering::Acquire) && !ends_soon(&connected.board);
        if is_stuck || !self.captured.is_empty() {
            if !is_stuck {
                // Replays must not wait for ranks that are gone. If this fails, so does every kernel.
                let _ = connected.board.refuse_walks();
            }
            let memory = (std::mem::take(&mut self.captured), std::mem::take(&mut self.programs));
            let scratch =
                (self.scratch.take(), self.staging.take(), std::mem::take(&mut self.maps));
            let Connected { board, walks, messages, .. } = connected;
            // Nobody knows when the last kernel or graph ends that has their addresses.
            std::mem::forget((board, walks, messages, memory, scratch));
            return None;
        }
        let has_processes = connected.board.has_processes();
        let lent = connected.board.stop();
        if has_processes {
            return Some(lent);
        }
        lent.free();
        None
    }

    /// Tells the others that this rank is done with their memory. Its own is freed when all have said
    /// so.
    fn let_go(&self, lent: Option<LentMemory>) {
        if let Some(lent) = lent {
            lent.free_after(self.comm.engine.get().health().control().release());
        }
    }
}

impl Drop for DeviceRank {
    /// Waits for what this rank has started, and for no other rank.
    fn drop(&mut self) {
        let lent = self.stop();
        self.let_go(lent);
    }
}
