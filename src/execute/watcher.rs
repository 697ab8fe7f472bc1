//! The interface between waits and the control plane.

use std::fmt;

/// A wait that has become slow.
#[derive(Clone, Copy, Debug)]
pub struct SlowWait {
    /// The rank that is awaited.
    pub peer: usize,
    /// The fold that waits; the number of folds after the last one.
    pub step: usize,
    /// The window that waits, and all windows of the call.
    pub windows: (u32, u32),
}

/// The control plane, for slow waits.
pub trait WaitWatcher: fmt::Debug + Send + Sync {
    /// Returns true if `rank` has left in order.
    fn has_left(&self, rank: usize) -> bool;

    /// Records a slow wait. Called again while the wait lasts. Now and then the calls of the
    /// awaited rank are compared with those of this rank; if they do not match, the group fails.
    fn note_wait(&self, wait: SlowWait);
}

/// Without a control plane: no rank leaves, and nothing is recorded.
impl WaitWatcher for () {
    fn has_left(&self, _: usize) -> bool {
        false
    }

    fn note_wait(&self, _: SlowWait) {}
}
