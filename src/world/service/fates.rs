//! What has failed: the world, or groups of it alone.

use super::Cause;
use maypole_transports::Alarm;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// The first cause of the failure of the world, or of one group, and the alarm for its waits.
#[derive(Debug, Default)]
pub(crate) struct Fate {
    pub(crate) alarm: Arc<Alarm>,
    /// The least cause so far.
    pub(crate) cause: Option<Cause>,
    /// When `cause` last changed.
    pub(crate) since: Option<Instant>,
}

/// The fates of the world, and of groups by their names.
#[derive(Debug, Default)]
pub(crate) struct Fates<K> {
    pub(crate) world: Fate,
    groups: BTreeMap<K, Fate>,
}

impl<K: Ord> Fates<K> {
    /// The fate of `group`, whose alarm is raised when the world fails, too; without a group that of the world.
    pub(crate) fn of(&mut self, group: Option<K>) -> &mut Fate {
        let Some(group) = group else { return &mut self.world };
        let alarm = || Arc::new(Alarm::of_part(&self.world.alarm));
        self.groups.entry(group).or_insert_with(|| Fate { alarm: alarm(), ..Fate::default() })
    }

    /// Why the world has failed, or else `group`; `None` while both work.
    pub(crate) fn cause_in(&self, group: &K) -> Option<Cause> {
        self.world.cause.clone().or_else(|| self.groups.get(group)?.cause.clone())
    }

    /// Drops the fate of a group that is left.
    pub(crate) fn forget(&mut self, group: &K) {
        self.groups.remove(group);
    }
}

impl Fate {
    /// Records a failure, and raises the alarm. Of two failures of one kind in one operation the first counts.
    pub(crate) fn learn(&mut self, cause: &Cause) {
        if self.cause.as_ref().is_none_or(|known| cause.precedes(known)) {
            self.cause = Some(cause.clone());
            self.since = Some(Instant::now());
        }
        self.alarm.raise();
    }
}
