//! Threads that go on without those that have left.

use super::{GroupPath, SharedWorld, WorldState};
use crate::comm::control::error::ControlError;
use maypole_transports::simulated;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

/// The members of a group that want to go on, until all of them have their new world.
#[derive(Debug, Default)]
pub(super) struct PendingShrink {
    came: BTreeSet<usize>,
    /// The new world, and its members in the group.
    agreed: Option<(Arc<SharedWorld>, Vec<usize>)>,
    takers: usize,
}

impl SharedWorld {
    /// Waits until each of the members of the group `path` has come or left. `ranks` has the world
    /// rank of each member. Rank `me` of the group calls this.
    pub(super) fn shrink(
        &self,
        path: &GroupPath,
        me: usize,
        ranks: &[usize],
        deadline: Instant,
    ) -> Result<(Arc<Self>, Vec<usize>), ControlError> {
        self.state().shrinks.entry(path.clone()).or_default().came.insert(me);
        self.notify();
        let mut state = self.state();
        loop {
            let WorldState { shrinks, left, .. } = &mut *state;
            let pending = shrinks.entry(path.clone()).or_default();
            let here = |rank: &usize| pending.came.contains(rank);
            let gone = |rank: &usize| left.contains(&(path.clone(), *rank));
            let missing =
                (0..ranks.len()).filter(|rank| !here(rank) && !gone(rank)).collect::<Vec<_>>();
            if missing.is_empty() && pending.agreed.is_none() {
                let members: Vec<usize> = pending.came.iter().copied().collect();
                let world: Vec<usize> = members.iter().map(|member| ranks[*member]).collect();
                pending.agreed = Some((Self::new(self.links.of_survivors(&world)), members));
                drop(state);
                self.notify();
                state = self.state();
                continue;
            }
            if let Some((world, members)) = pending.agreed.clone() {
                pending.takers += 1;
                if pending.takers == members.len() {
                    shrinks.remove(path);
                }
                return Ok((world, members));
            }
            let time = deadline.saturating_duration_since(simulated::now());
            if time.is_zero() {
                pending.came.remove(&me);
                let what = "going on without the dead";
                return Err(ControlError::TimedOut { what, missing });
            }
            state = self.pause(state, time).0;
        }
    }
}
