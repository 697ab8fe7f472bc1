//! The failure of a world: one rank notifies all others, and all of them name the same first cause.
//!
//! Rank 0 forwards causes. It notifies all others before its own program gets the error, because a
//! program may end immediately, and its end must not look like the first failure. A rank whose
//! message rank 0 does not confirm notifies its neighbours directly (the relay in `direct`).

use super::{Cause, GroupId, Service, ServiceError, state::ServiceState};
use crate::world::service::message::ControlRequest;
use std::time::{Duration, Instant};

/// The least cause counts as the first one if no lesser cause arrives during this time.
const CAUSE_QUIET_TIME: Duration = Duration::from_millis(200);
/// The timeout of broadcasting a failure. Rank 0 confirms within milliseconds; without it the
/// neighbours are notified.
const TELLING_TIME: Duration = Duration::from_millis(1500);

impl Service {
    /// Fails the world, or the [group](Cause::group) that fails alone: raises the alarm of every
    /// member. The least of all causes becomes that of every member.
    ///
    /// Rank 0 decides which of several failures is the first cause, and whether the death of a peer
    /// is a consequence, because a peer that fails closes its connections, too.
    /// [`settle`](Self::settle) waits for the decision.
    pub fn abort(&self, cause: Cause) {
        if self.world() == 1 {
            self.shared.learn(&cause);
        } else {
            self.shared.update(|state| state.telling = true);
            self.shared.request(ControlRequest::Abort(cause));
        }
    }

    /// As [`abort`](Self::abort), and returns once rank 0 has confirmed, or the neighbours of this
    /// rank were notified because rank 0 is silent. The process may end after that. Takes at most
    /// 1.5 s.
    pub fn abort_and_tell(&self, cause: Cause) {
        // A forked child is not the rank.
        if self.shared.is_forked() {
            return;
        }
        self.abort(cause);
        self.shared.wait(Instant::now() + TELLING_TIME, |state| state.has_told().then_some(()));
    }

    /// Broadcasts the cause `mine` and returns the first cause, the same on all ranks: the least
    /// one after 200 ms without a lesser one. Times out after `within`, but not before 400 ms.
    pub fn settle(&self, mine: Cause, within: Duration) -> Cause {
        let deadline = Instant::now() + within.max(2 * CAUSE_QUIET_TIME);
        let group = mine.group();
        self.abort(mine.clone());
        let told = |state: &mut ServiceState| {
            (state.fates.of(group).cause.is_some() && state.has_told()).then_some(())
        };
        let is_told = self.shared.wait(deadline, told).is_some();
        if !is_told && self.shared.state().fates.of(group).cause.is_none() {
            // No other rank replies, so this rank decides alone.
            self.shared.learn(&mine);
        }
        loop {
            let (least, since) = {
                let mut state = self.shared.state();
                let fate = state.fates.of(group);
                (fate.cause.clone().unwrap_or_else(|| mine.clone()), fate.since)
            };
            let quiet = since.map_or(deadline, |since| since + CAUSE_QUIET_TIME).min(deadline);
            let news = |state: &mut ServiceState| {
                (state.fates.of(group).cause.as_ref() != Some(&least)).then_some(())
            };
            if self.world() == 1 || self.shared.wait(quiet, news).is_none() {
                return least;
            }
        }
    }

    /// The error of a request that needs `rank`, which has left. A rank that fails leaves, too;
    /// then the error is the failure.
    pub(super) fn gone(&self, rank: usize) -> ServiceError {
        self.shared.state().failure(GroupId::WORLD).unwrap_or(ServiceError::Left { rank })
    }
}
