//! Leaving the group.

use crate::comm::Communicator;
use crate::comm::error::Result;

impl Communicator {
    /// Leaves the group in order. Waits for requests in flight, each of which has its deadline.
    /// Everything that was sent still arrives.
    ///
    /// Dropping does the same, and never panics. A communicator that is dropped by a panic waits at
    /// most 5 s for its requests. Then it fails on all ranks: this rank has not left in order, and
    /// the others learn that it panicked. In a forked child dropping does nothing, because the
    /// parent is the rank.
    ///
    /// # Errors
    /// None in this version.
    pub fn close(mut self) -> Result<()> {
        self.leave();
        Ok(())
    }

    fn leave(&mut self) {
        if std::mem::replace(&mut self.left, true) {
            return;
        }
        if self.engine.end_progress() {
            if std::thread::panicking() {
                self.engine.get_mut().gave_up_in_panic();
            }
            let (engine, links) = self.engine.with_message_links();
            links.leave(engine.health().has_failed(), engine.health().control());
            engine.leave();
        }
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        self.leave();
    }
}
