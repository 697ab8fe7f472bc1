//! What a rank is doing, for people and tools that look for the reason of a hang.
//!
//! | question | source |
//! |---|---|
//! | what does this rank do now? | [`Communicator::status`](crate::Communicator::status), from another thread [`StatusHandle`] |
//! | the same, of a program that hangs | the signal that `MAYPOLE_STATUS_SIGNAL` names prints it |
//! | what did it do before it failed? | a file in the directory that `MAYPOLE_REPORT` names |
//! | what do all ranks do? | `maypole run` makes one page of all: see its `--help` |
//!
//! Nothing of this costs a repeated call anything. A rank notes a call when it differs from the one
//! before, and a wait when it has become slow.

mod file;
pub(crate) mod server;

use crate::control::Control;
pub use crate::world::calls::{
    GroupStatus, NetworkStatus, PendingOperation, RankStatus, RecentCalls,
};
pub(crate) use file::report_failure;
use maypole_transports::OwnerProcess;
#[doc(hidden)]
pub use server::StatusMessage;
use std::sync::{Arc, Weak};

/// Tells the status of a rank from any thread, also while a call of the rank blocks. See
/// [`Communicator::status_handle`](crate::Communicator::status_handle).
#[derive(Clone, Debug)]
pub struct StatusHandle {
    control: Weak<dyn Control>,
    owner: OwnerProcess,
}

impl StatusHandle {
    pub(crate) fn new(control: &Arc<dyn Control>, owner: OwnerProcess) -> Self {
        Self { control: Arc::downgrade(control), owner }
    }

    /// Returns the status of the rank; `None` once its communicator is gone, and in a forked child.
    pub fn status(&self) -> Option<RankStatus> {
        // A lock that another thread held during the fork stays locked in the child.
        let control = self.control.upgrade().filter(|_| self.owner.is_current())?;
        Some(control.status())
    }
}
