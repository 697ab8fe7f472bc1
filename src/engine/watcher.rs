//! The control plane, as the waits of a group's programs see it.

use crate::control::Control;
use crate::execute::{SlowWait, WaitWatcher};
use std::sync::Arc;

/// Passes what waits tell on to the control plane of the group.
pub(super) struct GroupWatcher(pub(super) Arc<dyn Control>);

impl WaitWatcher for GroupWatcher {
    fn has_left(&self, rank: usize) -> bool {
        self.0.has_left(rank)
    }

    fn note(&self, wait: SlowWait) {
        self.0.note_wait(wait);
    }
}
