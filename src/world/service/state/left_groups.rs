//! Groups that this rank has left. Their state is dropped: a program that splits and drops groups
//! repeatedly needs no more memory than one that does so once.

use super::ServiceState;
use crate::world::keep_last;
use crate::world::service::{DataConnection, GroupId, Service};
use std::collections::VecDeque;

/// The number of left groups whose names are kept. A peer that connects for a group after this rank
/// has left it lags by a few calls at most.
const REMEMBERED: usize = 1024;
/// The connections of such groups that stay open. A peer would take a closed connection for this
/// rank's death.
const KEPT_OPEN: usize = 16;

/// The last groups that this rank has left, and connections for them that no thread will take.
#[derive(Debug, Default)]
pub(crate) struct LeftGroups {
    groups: VecDeque<GroupId>,
    untaken: VecDeque<DataConnection>,
}

impl LeftGroups {
    fn add(&mut self, group: GroupId) {
        keep_last(&mut self.groups, REMEMBERED, group);
    }

    pub(crate) fn contains(&self, group: GroupId) -> bool {
        self.groups.contains(&group)
    }

    /// Keeps a connection open until later ones evict it.
    pub(crate) fn keep_open(&mut self, untaken: DataConnection) {
        keep_last(&mut self.untaken, KEPT_OPEN, untaken);
    }
}

impl ServiceState {
    /// Drops the state of `group`: untaken connections, exchanges that did not end, and their
    /// numbers. Names of groups are never reused.
    fn forget(&mut self, group: GroupId) {
        let untaken = self.arrived.extract_if(|(of, _, _), _| *of == group);
        let untaken: Vec<_> = untaken.map(|(_, connection)| connection).collect();
        untaken.into_iter().for_each(|connection| self.left_groups.keep_open(connection));
        self.rounds.retain(|(of, ..), _| *of != group);
        self.gathered.retain(|round, _| round.group != group);
        self.missing.retain(|round, _| round.group != group);
        self.fates.forget(&group);
        self.left_groups.add(group);
    }
}

impl Service {
    /// This rank has left `group`. Drops its state, except this rank's calls there, for members
    /// that still wait.
    pub(crate) fn leave_group(&self, group: GroupId) {
        // A forked child has left no group, and its locks may be held indefinitely.
        if self.shared.is_forked() {
            return;
        }
        self.progress().close(group);
        self.shared.update(|state| {
            state.shrinks.leave(group);
            match group {
                GroupId::WORLD => state.left_groups.add(group),
                _ => state.forget(group),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::service::message::ExchangePurpose;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn connections_that_nobody_took_stay_open_for_a_while() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut state = ServiceState::default();
        let mut ends = Vec::new();
        for counter in 0..2 * KEPT_OPEN as u64 {
            let group = GroupId { parent_epoch: 3, counter };
            ends.push(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
            let socket = listener.accept().unwrap().0;
            state.arrived.insert((group, 1, 0), DataConnection::Tcp(socket, None));
            state.forget(group);
            assert!(state.arrived.is_empty());
        }
        assert_eq!(state.left_groups.untaken.len(), KEPT_OPEN);
        let mut is_closed = |at: usize| {
            ends[at].set_nonblocking(true).unwrap();
            matches!(ends[at].read(&mut [0]), Ok(0))
        };
        assert!(!is_closed(2 * KEPT_OPEN - 1) && !is_closed(KEPT_OPEN));
    }

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
        assert_eq!(state.left_groups.groups.len(), REMEMBERED);
        assert!(!state.left_groups.contains(group(0)));
    }
}
