//! How a world fails: one rank notifies all others, and all of them name the same first cause.
//!
//! Rank 0 passes causes on. It notifies all others before its own program gets the error, because a
//! program may end immediately, and its end must not look like the first failure. A rank whose
//! message rank 0 does not confirm notifies its neighbours directly (the relay in `direct`).

use super::{Cause, Service, ServiceError, state::ServiceState};
use crate::world::service::message::ControlRequest;
use std::time::{Duration, Instant};

/// How long no lesser cause may come before the least known one counts as the first.
const CAUSE_QUIET_TIME: Duration = Duration::from_millis(200);
/// How long telling all ranks of a failure may take. Rank 0 confirms within milliseconds; without
/// it the neighbours are told.
const TELLING_TIME: Duration = Duration::from_millis(1500);

impl Service {
    /// Fails the world: raises the alarm of every rank. The least of all causes becomes that of
    /// every rank.
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
    /// rank were told because rank 0 is silent. So the process may end after that. Takes at most
    /// 1.5 s.
    pub fn abort_and_tell(&self, cause: Cause) {
        // A child is not the rank.
        if self.shared.is_forked() {
            return;
        }
        self.abort(cause);
        self.shared.wait(Instant::now() + TELLING_TIME, |state| state.has_told().then_some(()));
    }

    /// Tells all ranks the cause `mine` and returns the first cause, the same on all ranks: the
    /// least one known once 200 ms have passed without a lesser one. Returns after `within`, but
    /// not before 400 ms, at the latest.
    pub fn settle(&self, mine: Cause, within: Duration) -> Cause {
        let deadline = Instant::now() + within.max(2 * CAUSE_QUIET_TIME);
        self.abort(mine.clone());
        let told =
            |state: &mut ServiceState| (state.cause.is_some() && state.has_told()).then_some(());
        if self.shared.wait(deadline, told).is_none() && self.cause().is_none() {
            // No other rank answers, so this rank decides alone.
            self.shared.learn(&mine);
        }
        loop {
            let (least, since) = {
                let state = self.shared.state();
                (state.cause.clone().unwrap_or_else(|| mine.clone()), state.cause_since)
            };
            let quiet = since.map_or(deadline, |since| since + CAUSE_QUIET_TIME).min(deadline);
            let news =
                |state: &mut ServiceState| (state.cause.as_ref() != Some(&least)).then_some(());
            if self.world() == 1 || self.shared.wait(quiet, news).is_none() {
                return least;
            }
        }
    }

    /// The error of a request that needs `rank`, which has left. A rank that fails leaves, too;
    /// then the error is the failure.
    pub(super) fn gone(&self, rank: usize) -> ServiceError {
        self.shared.state().failure().unwrap_or(ServiceError::Left { rank })
    }
}
