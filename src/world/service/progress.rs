//! The activity of one rank in each of its groups, for the threads of its process.

use super::GroupId;
use crate::world::calls::GroupActivity;
use crate::world::keep_last;
use maypole_transports::lock;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};

/// The activity of one rank in each of its groups. The rank's calls write it; the service thread
/// reads it for requests of other ranks.
#[derive(Debug, Default)]
pub struct ProgressTable(Mutex<ActivityTable>);

#[derive(Debug, Default)]
struct ActivityTable {
    open: HashMap<GroupId, Arc<GroupActivity>>,
    /// The last groups that this rank has left, for members that still wait in one and request its
    /// calls.
    closed: VecDeque<(GroupId, Arc<GroupActivity>)>,
}

/// The number of left groups that are kept.
const CLOSED_KEPT: usize = 16;

impl ProgressTable {
    /// Returns the activity of this rank, which is `members[me]` of the world, in `group`.
    pub fn open(&self, group: GroupId, members: &[usize], me: usize) -> Arc<GroupActivity> {
        let mut table = lock(&self.0);
        let activity = table.open.entry(group);
        let fresh = || Arc::new(GroupActivity::new(group, members.to_vec(), me));
        Arc::clone(activity.or_insert_with(fresh))
    }

    /// Ends the activity in `group`.
    pub fn close(&self, group: GroupId) {
        let mut table = lock(&self.0);
        let Some(activity) = table.open.remove(&group) else { return };
        keep_last(&mut table.closed, CLOSED_KEPT, (group, activity));
    }

    /// Returns the activity in `group`, also shortly after it has [closed](Self::close).
    pub fn activity(&self, group: GroupId) -> Option<Arc<GroupActivity>> {
        let table = lock(&self.0);
        let closed = || table.closed.iter().rev().find(|(closed, _)| *closed == group);
        let found = table.open.get(&group).or_else(|| closed().map(|(_, activity)| activity));
        found.map(Arc::clone)
    }

    /// Returns the activities in all open groups, by group.
    pub fn open_groups(&self) -> BTreeMap<GroupId, Arc<GroupActivity>> {
        let table = lock(&self.0);
        table.open.iter().map(|(group, activity)| (*group, Arc::clone(activity))).collect()
    }

    /// Returns the activities in all open groups. For a rank that waits in the group `about`, that one
    /// and the world are among them also shortly after they have closed.
    pub fn activities(&self, about: Option<GroupId>) -> Vec<Arc<GroupActivity>> {
        let mut groups = self.open_groups();
        for group in about.into_iter().flat_map(|about| [about, GroupId::WORLD]) {
            groups.extend(self.activity(group).map(|activity| (group, activity)));
        }
        groups.into_values().collect()
    }

    /// Returns the activities in at most `most` groups: the world, other open groups, and those that
    /// have closed last.
    pub fn last_groups(&self, most: usize) -> Vec<Arc<GroupActivity>> {
        let open = self.open_groups().into_values();
        let table = lock(&self.0);
        let closed = table.closed.iter().rev().map(|(_, activity)| Arc::clone(activity));
        open.chain(closed).take(most).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_were_left_are_remembered_up_to_a_bound() {
        let progress = ProgressTable::default();
        let group = |counter| GroupId { parent_epoch: 1, counter };
        for counter in 0..100_000 {
            progress.open(group(counter), &[0, 1], 0);
            progress.close(group(counter));
        }
        assert!(progress.activities(None).is_empty());
        assert_eq!(progress.activities(Some(group(99_999))).len(), 1);
        assert_eq!(lock(&progress.0).closed.len(), CLOSED_KEPT);
        assert!(progress.activity(group(99_999)).is_some());
        assert!(progress.activity(group(0)).is_none());
    }
}
