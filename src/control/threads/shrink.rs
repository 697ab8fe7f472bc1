//! Threads that continue without those that have left.

use super::{GroupPath, SharedWorld, WorldState};
use crate::control::error::{ControlError, Result};
use crate::world::service::Cause;
use maypole_transports::turns;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

/// The members of a group that shrinks, until all of them have their new world.
#[derive(Debug, Default)]
pub(super) struct PendingShrink {
    came: BTreeSet<usize>,
    /// The new world, and its members in the group.
    agreed: Option<(Arc<SharedWorld>, Vec<usize>)>,
    takers: usize,
}

impl SharedWorld {
    /// Waits until each member of the group `path` has come, left or died. `group` gives the rank of
    /// each in the world.
    pub(super) fn shrink(
        &self,
        path: &GroupPath,
        me: usize,
        group: &[usize],
        deadline: Instant,
    ) -> Result<(Arc<Self>, Vec<usize>)> {
        // Other threads see the effects of this one.
        turns::begin_wait();
        let mut state = self.state();
        state.shrinks.entry(path.clone()).or_default().came.insert(me);
        self.notify();
        loop {
            let WorldState { shrinks, left, dead, successors, .. } = &mut *state;
            let pending = shrinks.entry(path.clone()).or_default();
            let here = |rank: &usize| pending.came.contains(rank);
            let gone = |rank: &usize| {
                left.contains(&(path.clone(), *rank)) || dead.contains(&group[*rank])
            };
            let missing =
                (0..group.len()).filter(|rank| !here(rank) && !gone(rank)).collect::<Vec<_>>();
            if missing.is_empty() && pending.agreed.is_none() {
                let members: Vec<usize> = pending.came.iter().copied().collect();
                let ranks: Vec<usize> = members.iter().map(|rank| group[*rank]).collect();
                let world = Self::over(self.links.among(&ranks));
                successors.push((Arc::downgrade(&world), ranks));
                pending.agreed = Some((world, members));
                self.notify();
            }
            if let Some((world, members)) = pending.agreed.clone() {
                pending.takers += 1;
                if pending.takers == members.len() {
                    shrinks.remove(path);
                }
                return Ok((world, members));
            }
            let time = deadline.saturating_duration_since(turns::now());
            if time.is_zero() {
                pending.came.remove(&me);
                let what = "going on without the dead";
                return Err(ControlError::TimedOut { what, missing });
            }
            state = self.pause(state, time).0;
        }
    }

    /// Records that `rank` of the world has died, and the evidence; also in the worlds that its
    /// ranks have gone on to.
    pub(crate) fn died(&self, rank: usize, how: &str) {
        let successors = {
            let mut state = self.state();
            state.dead.insert(rank);
            state.successors.retain(|(world, _)| world.strong_count() > 0);
            state.successors.clone()
        };
        self.fail(Cause::death(rank, how));
        for (world, ranks) in successors {
            if let (Some(world), Some(rank)) =
                (world.upgrade(), ranks.iter().position(|member| *member == rank))
            {
                world.died(rank, how);
            }
        }
    }
}
