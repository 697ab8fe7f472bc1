//! The decisions of a leader, and the messages. Pure: events are its inputs, the next action its
//! output.

use crate::world::peer::Peer;
use maypole_transports::interfaces::with_scope;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The number of a proposal. A later leader has a later place in the group, so its ballots are
/// higher.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub(super) struct Ballot {
    /// The place of the leader in the group.
    pub(super) leader: usize,
    pub(super) number: u64,
}

/// A new world, equal on all of its ranks.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct AgreedWorld {
    /// Distinguishes its connections from those of other worlds of the job.
    pub(crate) session: [u8; 16],
    /// By rank: the description of each.
    pub(crate) peers: Vec<Peer>,
}

impl AgreedWorld {
    /// The same world for a host that reaches link-local addresses through interface `scope`.
    pub(crate) fn within(mut self, scope: u32) -> Self {
        for peer in &mut self.peers {
            peer.listen = with_scope(peer.listen, scope);
        }
        self
    }

    /// A world of this process alone.
    pub(crate) fn alone(report: &[u8]) -> Self {
        let peer = Peer {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            host: String::new(),
            pid: std::process::id(),
            pid_namespace: String::new(),
            round_trip: None,
            bandwidth: None,
            report: report.to_vec(),
        };
        Self { session: [0; 16], peers: vec![peer] }
    }
}

/// A world of survivors.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(in crate::world::service) struct Proposal {
    pub(super) ballot: Ballot,
    /// By new rank: the old world rank.
    pub(super) members: Vec<usize>,
    pub(super) world: AgreedWorld,
}

impl Proposal {
    /// The new rank of the member that listens there. Hosts number their interfaces differently, so
    /// scopes of addresses are not compared.
    pub(super) fn place_of(&self, own: SocketAddr) -> Option<usize> {
        let listens = |it: &Peer| (it.listen.ip(), it.listen.port());
        self.world.peers.iter().position(|it| listens(it) == (own.ip(), own.port()))
    }
}

/// A message of a follower to the leader.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum FollowerMessage {
    /// The sender joins the agreement. `prepared` is the last proposal that it was ready for.
    /// Within `patience` the leader must send the list of missing members, to arrive before the
    /// sender's own deadline.
    Hello { own: Box<Peer>, prepared: Option<Proposal>, patience: Duration },
    /// The sender is ready for this proposal.
    Ready(Ballot),
}

/// A message of the leader to a follower, or the reply of a member that does not lead.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum LeaderMessage {
    /// Requests the receiver's readiness for this proposal.
    Prepare(Proposal),
    /// The proposal holds.
    Commit(Ballot),
    /// The sender has decided already.
    Decided(Proposal),
    /// The sender has left the group.
    Gone,
    /// The patience of an arrived member has ended without a decision. These members neither
    /// arrived nor ended.
    TimedOut(Vec<usize>),
}

/// The next action of a leader.
#[derive(Debug)]
pub(super) enum NextStep {
    /// Wait for members to arrive, to be ready or to end.
    Wait,
    /// Send this proposal to all members that have arrived.
    Prepare(Proposal),
    /// All are ready: this proposal holds.
    Commit(Proposal),
    /// A member was ready for this proposal of an earlier leader. It may have been committed.
    Inherit(Proposal),
}

/// The state of a leader.
#[derive(Debug)]
pub(super) struct Agreement {
    /// The leader's world rank.
    leader: usize,
    /// The leader's place in the group.
    place: usize,
    /// World ranks of the group, in its order.
    members: Vec<usize>,
    gone: BTreeSet<usize>,
    /// The members that have arrived, the leader among them.
    here: BTreeMap<usize, Peer>,
    /// The highest proposal of an earlier leader.
    inherited: Option<Proposal>,
    proposal: Option<Proposal>,
    ready: BTreeSet<usize>,
    /// Proposals so far.
    number: u64,
}

impl Agreement {
    pub(super) fn new(leader: usize, members: &[usize], own: Peer, gone: BTreeSet<usize>) -> Self {
        let place = members.iter().position(|member| *member == leader);
        Self {
            leader,
            place: place.expect("a leader is a member"),
            members: members.to_vec(),
            gone,
            here: [(leader, own)].into(),
            inherited: None,
            proposal: None,
            ready: BTreeSet::new(),
            number: 0,
        }
    }

    /// A member was ready for `proposal`, or has decided it. A proposal of this leader itself was
    /// aborted: only this leader could have committed it.
    pub(super) fn inherit(&mut self, proposal: Proposal) {
        let higher = |known: &Proposal| known.ballot < proposal.ballot;
        if proposal.ballot.leader != self.place && self.inherited.as_ref().is_none_or(higher) {
            self.inherited = Some(proposal);
        }
    }

    /// A member has decided `proposal`, which ends the wait for missing members.
    pub(super) fn inherit_decided(&mut self, proposal: Proposal) {
        self.inherit(proposal);
        let missing = self.missing();
        if self.inherited.is_some() {
            self.gone.extend(missing);
        }
    }

    /// `rank` has arrived.
    pub(super) fn hello(&mut self, rank: usize, own: Peer, prepared: Option<Proposal>) {
        if !self.members.contains(&rank) {
            return;
        }
        prepared.into_iter().for_each(|proposal| self.inherit(proposal));
        self.gone.remove(&rank);
        self.here.insert(rank, own);
        self.proposal = None;
    }

    /// `rank` is ready for the proposal with this number.
    pub(super) fn ready(&mut self, rank: usize, ballot: Ballot) {
        if self.proposal.as_ref().is_some_and(|proposal| proposal.ballot == ballot) {
            self.ready.insert(rank);
        }
    }

    /// The connection to `rank` has ended. The rank may reconnect.
    pub(super) fn lost(&mut self, rank: usize) {
        self.here.remove(&rank);
        self.proposal = None;
    }

    /// `rank` has ended or left.
    pub(super) fn gone(&mut self, rank: usize) {
        self.lost(rank);
        self.gone.insert(rank);
    }

    /// The members that have neither arrived nor ended.
    pub(super) fn missing(&self) -> Vec<usize> {
        let absent = |rank: &usize| !self.here.contains_key(rank) && !self.gone.contains(rank);
        self.members.iter().copied().filter(absent).collect()
    }

    /// The next action. `session` names the new world of a new proposal.
    pub(super) fn next(&mut self, session: [u8; 16]) -> NextStep {
        if !self.missing().is_empty() {
            return NextStep::Wait;
        }
        if let Some(proposal) = &self.inherited {
            return NextStep::Inherit(proposal.clone());
        }
        let Some(proposal) = &self.proposal else {
            return NextStep::Prepare(self.propose(session));
        };
        let all = proposal.members.iter().all(|rank| self.ready.contains(rank));
        if all { NextStep::Commit(proposal.clone()) } else { NextStep::Wait }
    }

    fn propose(&mut self, session: [u8; 16]) -> Proposal {
        self.number += 1;
        let ballot = Ballot { leader: self.place, number: self.number };
        let here = |rank: &usize| self.here.contains_key(rank);
        let members: Vec<usize> = self.members.iter().copied().filter(here).collect();
        let peers = members.iter().map(|rank| self.here[rank].clone()).collect();
        let world = AgreedWorld { session, peers };
        let proposal = Proposal { ballot, members, world };
        self.ready = [self.leader].into();
        self.proposal = Some(proposal.clone());
        proposal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(rank: usize) -> Peer {
        Peer {
            listen: ([127, 0, 0, 1], rank as u16).into(),
            host: "h".to_owned(),
            pid: 1,
            pid_namespace: "p".to_owned(),
            round_trip: None,
            bandwidth: None,
            report: vec![rank as u8],
        }
    }

    fn leader(rank: usize, members: &[usize], gone: &[usize]) -> Agreement {
        Agreement::new(rank, members, peer(rank), gone.iter().copied().collect())
    }

    fn prepare(agreement: &mut Agreement) -> Proposal {
        match agreement.next([7; 16]) {
            NextStep::Prepare(proposal) => proposal,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn all_that_exist_are_ready_before_a_commit() {
        let mut agreement = leader(1, &[0, 1, 2, 3], &[0]);
        assert!(matches!(agreement.next([0; 16]), NextStep::Wait));
        agreement.hello(3, peer(3), None);
        assert_eq!(agreement.missing(), [2]);
        agreement.gone(2);
        let proposal = prepare(&mut agreement);
        assert_eq!(proposal.members, [1, 3]);
        assert_eq!(
            proposal.world.peers.iter().map(|it| it.listen.port()).collect::<Vec<_>>(),
            [1, 3]
        );
        assert!(matches!(agreement.next([0; 16]), NextStep::Wait));
        agreement.ready(3, proposal.ballot);
        assert!(
            matches!(agreement.next([0; 16]), NextStep::Commit(it) if it.world.session == [7; 16])
        );
    }

    #[test]
    fn a_death_after_prepare_begins_a_new_proposal() {
        let mut agreement = leader(0, &[0, 1, 2], &[]);
        agreement.hello(1, peer(1), None);
        agreement.hello(2, peer(2), None);
        let first = prepare(&mut agreement);
        agreement.ready(1, first.ballot);
        agreement.lost(2);
        assert!(matches!(agreement.next([0; 16]), NextStep::Wait), "rank 2 may come again");
        agreement.gone(2);
        let second = prepare(&mut agreement);
        assert!(second.ballot > first.ballot);
        agreement.ready(1, first.ballot);
        assert!(
            matches!(agreement.next([0; 16]), NextStep::Wait),
            "an old answer counts for nothing"
        );
        agreement.ready(1, second.ballot);
        assert!(matches!(agreement.next([0; 16]), NextStep::Commit(it) if it.members == [0, 1]));
    }

    #[test]
    fn a_rank_that_comes_again_is_asked_again() {
        let mut agreement = leader(0, &[0, 1], &[]);
        agreement.hello(1, peer(1), None);
        let first = prepare(&mut agreement);
        agreement.ready(1, first.ballot);
        agreement.hello(1, peer(9), None);
        let second = prepare(&mut agreement);
        assert_eq!(second.world.peers[1].listen.port(), 9);
    }

    #[test]
    fn the_highest_proposal_of_an_earlier_leader_is_inherited_and_its_own_is_not() {
        let mut earlier = leader(0, &[0, 1, 2, 3], &[]);
        (1..4).for_each(|rank| earlier.hello(rank, peer(rank), None));
        let low = prepare(&mut earlier);
        earlier.lost(3);
        earlier.gone(3);
        let high = prepare(&mut earlier);
        let mut agreement = leader(1, &[0, 1, 2, 3], &[0]);
        agreement.hello(3, peer(3), Some(low.clone()));
        agreement.hello(2, peer(2), Some(high.clone()));
        let NextStep::Inherit(taken) = agreement.next([0; 16]) else { panic!("not inherited") };
        assert_eq!(taken.ballot, high.ballot);
        let mut again = leader(0, &[0, 1], &[]);
        again.hello(1, peer(1), Some(low));
        assert!(matches!(again.next([0; 16]), NextStep::Prepare(_)));
    }
}
