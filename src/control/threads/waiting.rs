//! How threads wait for a change of the table that they share.

use super::{CHECK_INTERVAL, SharedWorld, WorldState};
use crate::control::error::{ControlError, Result};
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

    /// Calls `ready` now and after every change, until it returns a value. Between two calls that
    /// are long apart it calls `slow`. The group is that of the ranks `members`.
    pub(super) fn until<T>(
        &self,
        deadline: Instant,
        members: &[usize],
        mut ready: impl FnMut(&mut WorldState) -> Option<Result<T>>,
        mut slow: impl FnMut(),
    ) -> Result<Option<T>> {
        // Other threads see the effects of this one.
        turns::begin_wait();
        let mut state = self.state();
        loop {
            if let Some(ended) = ready(&mut state) {
                return ended.map(Some);
            }
            if let Some(cause) = &state.cause {
                return Err(ControlError::Failed(cause.text.in_group(members)));
            }
            let left = deadline.saturating_duration_since(turns::now());
            if left.is_zero() {
                return Ok(None);
            }
            let pause = left.min(CHECK_INTERVAL);
            let (again, is_over) = self.pause(state, pause);
            state = again;
            if is_over {
                drop(state);
                slow();
                state = self.state();
            }
        }
    }
}
