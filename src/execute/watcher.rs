//! What waits tell the control plane, and what they learn from it.

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

/// The control plane, as far as waits need it. Called only once a wait has become slow.
pub trait WaitWatcher: Send + Sync {
    /// Returns true if `rank` has left in order.
    fn has_left(&self, rank: usize) -> bool;

    /// Notes a slow wait. Called again while the wait lasts.
    fn note(&self, wait: SlowWait);
}

impl fmt::Debug for dyn WaitWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WaitWatcher")
    }
}

/// The watcher of ranks that have no control plane: no rank leaves, and nothing is noted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl WaitWatcher for Unwatched {
    fn has_left(&self, _: usize) -> bool {
        false
    }

    fn note(&self, _: SlowWait) {}
}
