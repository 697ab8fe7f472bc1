//! How a communicator ends.

use crate::comm::Communicator;
use crate::comm::error::Result;

impl Communicator {
    /// Leaves in order: waits for requests in flight, each of which has its deadline, and what was
    /// sent still arrives.
    ///
    /// Dropping does the same, and never panics. A communicator that a panic drops waits no more
    /// than 5 s for its requests; then it fails on all ranks, because the peers that they need may
    /// never come. In a forked child dropping does nothing: its parent is the rank.
    ///
    /// # Errors
    /// None today; a goodbye that nobody takes in time will be one.
    pub fn close(mut self) -> Result<()> {
        self.leave();
        Ok(())
    }

    fn leave(&mut self) {
        if std::mem::replace(&mut self.left, true) {
            return;
        }
        if self.engine.gather() {
            let (engine, links) = self.engine.with_message_links();
            links.leave(engine.failed.is_some(), &*engine.control);
            engine.leave();
        }
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        self.leave();
    }
}
