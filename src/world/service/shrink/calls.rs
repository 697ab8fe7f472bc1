//! Connections of members in an agreement. They arrive at this rank's service thread, which keeps
//! them for its calling thread, or replies if this rank has decided or left already.

use super::agreement::{LeaderMessage, Proposal};
use crate::wire::encode;
use crate::world::service::{Authenticated, ControlConnection, GroupId};
use maypole_transports::watch::Waker;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The number of a follower's connection.
pub(super) const FOLLOWER: u32 = 0;
/// The number of a connection by which a leader watches a member that has not arrived.
pub(super) const PROBE: u32 = 1;

/// The calls of all groups of a process.
#[derive(Debug, Default)]
pub(in crate::world::service) struct ShrinkCalls {
    groups: HashMap<GroupId, GroupCalls>,
}

#[derive(Debug, Default)]
struct GroupCalls {
    /// The last connection of each member that no thread has taken, by rank and number.
    waiting: BTreeMap<(usize, u32), ControlConnection>,
    /// Connections that were replied to. They stay open until this rank leaves the group, because
    /// closing a socket with unread bytes could lose the reply.
    answered: Vec<ControlConnection>,
    decided: Option<Proposal>,
    /// Wakes the thread that leads.
    leader: Option<Arc<Waker>>,
}

impl ShrinkCalls {
    /// Keeps the call of a member of `group` until a thread of this rank takes it. If this rank has
    /// decided, or if it `has_left`, returns the call and its reply.
    pub(in crate::world::service) fn arrived(
        &mut self,
        call: Authenticated,
        group: GroupId,
        has_left: bool,
    ) -> Option<(Authenticated, Vec<u8>)> {
        if has_left {
            return Some((call, encode(&LeaderMessage::Gone)));
        }
        let calls = self.groups.entry(group).or_default();
        if let Some(proposal) = &calls.decided {
            return Some((call, encode(&LeaderMessage::Decided(proposal.clone()))));
        }
        let key = (call.binding.initiator as usize, call.binding.lane);
        if let Ok(control) = ControlConnection::new(call.stream, call.channel) {
            calls.waiting.insert(key, control);
        }
        if let Some(leader) = &calls.leader {
            leader.wake();
        }
        None
    }

    /// True if this rank has decided in `group`.
    pub(super) fn is_decided(&self, group: GroupId) -> bool {
        self.groups.get(&group).is_some_and(|calls| calls.decided.is_some())
    }

    /// This rank leads in `group`, and `waker` signals calls; or it leads no longer.
    pub(super) fn lead(&mut self, group: GroupId, waker: Option<Arc<Waker>>) {
        self.groups.entry(group).or_default().leader = waker;
    }

    /// The followers' connections that have arrived.
    pub(super) fn take(&mut self, group: GroupId) -> Vec<(usize, ControlConnection)> {
        let Some(calls) = self.groups.get_mut(&group) else { return Vec::new() };
        let waiting = &mut calls.waiting;
        let followers: Vec<_> = waiting.keys().filter(|key| key.1 == FOLLOWER).copied().collect();
        followers.into_iter().filter_map(|key| Some((key.0, waiting.remove(&key)?))).collect()
    }

    fn answer_all(&mut self, group: GroupId, message: &LeaderMessage) {
        let calls = self.groups.entry(group).or_default();
        calls.leader = None;
        for (_, mut control) in std::mem::take(&mut calls.waiting) {
            control.push(message);
            control.finish();
            calls.answered.push(control);
        }
    }

    /// Records this rank's decision in `group`, and sends it to all members that have called.
    pub(super) fn decide(&mut self, group: GroupId, proposal: &Proposal) {
        self.answer_all(group, &LeaderMessage::Decided(proposal.clone()));
        self.groups.entry(group).or_default().decided = Some(proposal.clone());
    }

    /// This rank has left `group`.
    pub(in crate::world::service) fn leave(&mut self, group: GroupId) {
        self.answer_all(group, &LeaderMessage::Gone);
        self.groups.remove(&group);
    }
}
