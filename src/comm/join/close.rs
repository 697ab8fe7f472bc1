//! Leaving the group.

use crate::comm::Communicator;
use crate::error::Result;
use crate::requests::progress::GRACE;
use std::io::Write;

impl Communicator {
    /// Leaves the group in an orderly shutdown. Waits for requests in flight, each of which has its
    /// deadline. All sent bytes still arrive. Then waits, for at most 5 s, until the other ranks
    /// have made as many calls as this one, because they may detect that the calls do not match.
    /// Ranks that are processes wait for that when they close the last communicator of their world.
    ///
    /// Dropping leaves, too, and never panics. It does not wait for the others, nor for requests in
    /// flight: a background thread completes the requests and then leaves. The last communicator
    /// that a rank drops, of a world and the groups split from it, waits for these threads. So a
    /// rank that returns early, as on an error, blocks no other rank: a rank that waits for it in a
    /// group that it has dropped gets an error. A drop cannot return an error. It prints an error
    /// that `close` would return without waiting to standard error, so a program calls `close` at
    /// its end.
    ///
    /// A request may close or drop the communicator that runs it. That does not wait either.
    ///
    /// A communicator that is dropped by a panic waits at most 5 s for its requests. Then it fails
    /// on all ranks: the others receive this rank's panic as the cause. In a forked child dropping
    /// does nothing, because the parent is the rank.
    ///
    /// # Errors
    /// The error of a [request](crate::Request) that was dropped, if no call has returned it.
    /// [`Error::Mismatch`](crate::Error::Mismatch) if a call of this rank, which has returned `Ok`,
    /// was not that of the other ranks, and no call has reported it yet.
    /// [`Error::Forked`](crate::Error::Forked) in a forked child, which does not leave.
    #[doc(alias("MPI_Finalize", "ncclCommFinalize", "destroy_process_group"))]
    pub fn close(mut self) -> Result<()> {
        self.engine.check_process()?;
        self.leave(true)
    }

    fn leave(&mut self, patient: bool) -> Result<()> {
        if std::mem::replace(&mut self.left, true) {
            return Ok(());
        }
        if self.engine.is_forked() {
            self.engine.end_progress();
            return Ok(());
        }
        let departures = self.engine.messages.control.departures();
        // A request that owns its communicator cannot wait for itself.
        let may_wait = patient || std::thread::panicking();
        let hands_over = self.engine.runs_on_this_thread() || !may_wait;
        if hands_over && self.engine.messages.is_busy() {
            // Starts a thread that leaves after the messages.
            let _ = self.lend_engine();
        }
        let result =
            if hands_over && self.engine.hand_over() { Ok(()) } else { self.depart(patient) };
        departures.close();
        result
    }

    /// Ends the thread that runs requests, if there is one, and leaves the group.
    pub(crate) fn depart(&mut self, patient: bool) -> Result<()> {
        if self.engine.end_progress() {
            let panics = std::thread::panicking();
            self.engine.messages.finish(panics.then_some(GRACE));
            if panics {
                self.engine.get_mut().health.gave_up_in_panic();
            }
            let failed = self.engine.get().health.has_failed();
            self.engine.messages.leave(failed);
            let engine = self.engine.get_mut();
            engine.leave(patient && !failed);
            return engine.health.check_closed();
        }
        Ok(())
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        print_unreturned(self.leave(false));
    }
}

/// Prints the final error of a communicator that no caller receives.
pub(crate) fn print_unreturned(ended: Result<()>) {
    if let Err(error) = ended
        && !std::thread::panicking()
    {
        let text = format!("maypole: {error}; no call has returned this, and close() would have\n");
        // The error is lost if standard error is closed.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}
