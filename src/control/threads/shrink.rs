//! Shrinking a world of threads: the survivors make a world of their own.

use super::{GroupTable, SharedWorld, WorldState};
use crate::control::Result;
use crate::world::calls::GroupActivity;
use crate::world::service::{Cause, ServiceError};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

/// A shrink of one group, until all of its members have the new world.
#[derive(Debug, Default)]
pub(super) struct PendingShrink {
    came: BTreeSet<usize>,
    /// The new world, and its members in the group.
    agreed: Option<(Arc<SharedWorld>, Vec<usize>)>,
    takers: usize,
}

impl SharedWorld {
    /// Waits until each member of the group of this rank's `activity` has arrived, left or died.
    pub(super) fn shrink(
        &self,
        activity: &GroupActivity,
        deadline: Instant,
    ) -> Result<(Arc<Self>, Vec<usize>)> {
        let (group, identity) = (activity.members(), activity.identity());
        self.state().group(identity).shrink.came.insert(activity.rank());
        self.notify();
        let ready = |state: &mut WorldState, is_late: bool| {
            let WorldState { groups, dead, successors, .. } = state;
            let GroupTable { left, shrink: pending, .. } = groups.entry(identity).or_default();
            let gone = |rank: &usize| left.contains(rank) || dead.contains(&group[*rank]);
            let absent = (0..group.len()).filter(|rank| !pending.came.contains(rank));
            let missing: Vec<usize> = absent.filter(|rank| !gone(rank)).collect();
            if missing.is_empty() && pending.agreed.is_none() {
                let members: Vec<usize> = pending.came.iter().copied().collect();
                let ranks: Vec<usize> = members.iter().map(|rank| group[*rank]).collect();
                let first_ranks = ranks.iter().map(|rank| self.first_ranks[*rank]).collect();
                let world = Self::new(Arc::clone(&self.links), first_ranks);
                successors.push((Arc::downgrade(&world), ranks));
                pending.agreed = Some((world, members));
                self.notify();
            }
            if let Some((world, members)) = pending.agreed.clone() {
                pending.takers += 1;
                if pending.takers == members.len() {
                    *pending = PendingShrink::default();
                }
                return Some(Ok((world, members)));
            }
            is_late.then(|| {
                pending.came.remove(&activity.rank());
                Err(ServiceError::TimedOut { what: "going on without the dead", missing })
            })
        };
        self.until(deadline, ready, || ())
    }

    /// Records that `rank` of the world has died, and `how`, here and in the worlds that its ranks
    /// have shrunk to.
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
