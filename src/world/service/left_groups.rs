//! Groups that this rank has left. Nothing of them is kept: a program that splits and drops groups
//! for ever needs no more memory than one that does so once.

use super::state::ServiceState;
use super::{GroupId, Service};
use std::collections::VecDeque;

/// The groups that are remembered. A peer that connects for a group after this rank has left it is
/// at most some calls behind.
const REMEMBERED: usize = 1024;

/// The groups that this rank has left last. Connections for them that come late are refused.
#[derive(Debug, Default)]
pub(crate) struct LeftGroups(VecDeque<GroupId>);

impl LeftGroups {
    fn add(&mut self, group: GroupId) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(group);
    }

    pub(crate) fn contains(&self, group: GroupId) -> bool {
        self.0.contains(&group)
    }
}

impl ServiceState {
    /// Forgets what was kept of `group`: connections that nobody has taken, exchanges that did not
    /// end, and their numbers. No group gets the same name again.
    fn forget(&mut self, group: GroupId) {
        self.arrived.retain(|(of, _, _), _| *of != group);
        self.rounds.retain(|(of, ..), _| *of != group);
        self.gathered.retain(|round, _| round.group != group);
        self.missing.retain(|round, _| round.group != group);
        self.left_groups.add(group);
    }
}

impl Service {
    /// This rank has left `group`: nothing of it is needed any more, except what this rank called
    /// there, for members that still wait for it.
    pub(crate) fn leave_group(&self, group: GroupId) {
        // A child has left nothing, and its locks may be held for ever.
        if self.shared.is_forked() {
            return;
        }
        self.progress().close(group);
        if group != GroupId::WORLD {
            self.shared.update(|state| state.forget(group));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::ExchangePurpose;
    use super::*;

    #[test]
    fn nothing_is_kept_of_a_group_that_was_left() {
        let mut state = ServiceState::default();
        let group = |counter| GroupId { parent_epoch: 3, counter };
        for counter in 0..5000 {
            for of in [GroupId::WORLD, group(counter)] {
                *state.rounds.entry((of, ExchangePurpose::Operation, vec![0, 1])).or_default() += 1;
            }
            state.forget(group(counter));
            assert!(state.left_groups.contains(group(counter)));
        }
        let world = (GroupId::WORLD, ExchangePurpose::Operation, vec![0, 1]);
        assert_eq!(state.rounds, [(world, 5000)].into());
        assert_eq!(state.left_groups.0.len(), REMEMBERED);
        assert!(!state.left_groups.contains(group(0)));
    }
}
