//! A thread that leaves its group.

use super::ThreadControl;
use crate::control::Control;
use crate::execute::WaitWatcher;
use crate::world::calls::{CallMismatch, GroupActivity};
use crate::world::service::Cause;
use maypole_transports::turns::{self, poll_until};
use std::time::Duration;

/// How long a rank that closes its communicator waits for the others, and between two looks.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(5);
const CLOSING_PAUSE: Duration = Duration::from_micros(500);
/// How many of the last runs of equal calls are compared where nothing is waited for.
const RUNS_COMPARED: usize = 16;

impl ThreadControl {
    /// Waits, for a bounded time, until all others have left or have done `completed` operations.
    /// Then compares the calls of all, and fails the group if they do not match.
    pub(super) fn await_others(&self, completed: u64) {
        let deadline = turns::now() + CLOSING_TIMEOUT;
        let is_behind = |rank: usize| {
            let here = !self.has_left(rank);
            here && self.activity_of(rank).is_some_and(|it| it.pulse().completed() < completed)
        };
        let others = || (0..self.members().len()).filter(|rank| *rank != self.me());
        let is_over = || self.cause().is_some() || !others().any(is_behind);
        poll_until(deadline, CLOSING_PAUSE, || is_over().then_some(()));
        self.fail_by(others().find_map(|peer| self.compare(peer)));
    }

    /// Compares the last calls of this rank with those of a rank that has left, without waiting.
    /// Fails the group if they do not match. All ranks that leave do so, so one of them finds the
    /// difference.
    pub(super) fn compare_with_left(&self) {
        let left = self.with_group(|group| group.left.first().copied());
        let last = |activity: &GroupActivity| activity.status(false, u64::MAX, RUNS_COMPARED);
        let theirs = left.and_then(|rank| self.activity_of(rank));
        self.fail_by(
            theirs.and_then(|theirs| last(&self.membership.activity).compare(&last(&theirs))),
        );
    }

    /// Fails the group by the mismatch that was found, unless it has failed already.
    pub(super) fn fail_by(&self, found: Option<CallMismatch>) {
        if let Some(found) = found.filter(|_| self.cause().is_none()) {
            let members = self.members();
            let (group, me) = (self.group(), members[self.me()]);
            self.fail(Cause::mismatch(group, members, me, found));
        }
    }
}
