//! Waiting for a change of the table that threads share.

use super::{CHECK_INTERVAL, SharedWorld, WorldState};
use maypole_transports::turns::{self, note_change};
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

impl SharedWorld {
    /// Wakes the threads that wait for a change of the table.
    pub(super) fn notify(&self) {
        self.changed.notify_all();
        note_change();
    }

    /// Waits for a change of the table, for at most `most`. Returns true if that time has passed.
    pub(super) fn pause<'a>(
        &'a self,
        state: MutexGuard<'a, WorldState>,
        most: Duration,
    ) -> (MutexGuard<'a, WorldState>, bool) {
        let Some(turns) = turns::current() else {
            let waited = self.changed.wait_timeout(state, most);
            let (state, pause) = waited.unwrap_or_else(PoisonError::into_inner);
            return (state, pause.timed_out());
        };
        drop(state);
        let end = turns.now() + most;
        turns.idle(Some(end));
        (self.state(), turns.now() >= end)
    }

    /// Calls `ready` now and after every change, until it returns a value. Its argument is true
    /// after the deadline, and it returns a value then. Between two calls that are long apart,
    /// calls `slow`.
    pub(super) fn until<T>(
        &self,
        deadline: Instant,
        mut ready: impl FnMut(&mut WorldState, bool) -> Option<T>,
        mut slow: impl FnMut(),
    ) -> T {
        // Other threads see this thread's changes.
        turns::begin_wait();
        let mut state = self.state();
        loop {
            let left = deadline.saturating_duration_since(turns::now());
            if let Some(ended) = ready(&mut state, left.is_zero()) {
                return ended;
            }
            let (again, is_over) = self.pause(state, left.min(CHECK_INTERVAL));
            state = again;
            if is_over {
                drop(state);
                slow();
                state = self.state();
            }
        }
    }
}
