//! The control plane of a communicator: agreement, connections and failure of its ranks.
//!
//! Ranks that are threads of one process share a table under a mutex ([`threads`]). Ranks that are
//! processes use the service of their process ([`processes`]). Neither is on the data path, so a
//! trait object serves both.

pub(crate) mod departures;
pub(crate) mod links;
pub(crate) mod processes;
pub(crate) mod threads;
pub(crate) mod transport;

use crate::control::departures::Departures;
use crate::control::transport::{Transport, VerbsOffer};
use crate::execute::AnyStream;
use crate::execute::messages::Connector;
use crate::topology::StreamLinks;
use crate::world::PortChoice;
use crate::world::calls::{CallMismatch, GroupActivity, RankStatus};
use crate::world::service::{Cause, Diagnosis, FailureKind, GroupId, ServiceError};
use maypole_kernels::mix;
use maypole_transports::shm::Segment;
use maypole_transports::{Alarm, Board};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// The result of a request to the control plane. Its errors number ranks as in the group.
type Result<T, E = ServiceError> = std::result::Result<T, E>;

/// The ranks that continue after others have died or left.
#[derive(Debug)]
pub(crate) struct SurvivingGroup {
    pub(crate) control: Arc<dyn Control>,
    /// By rank of the new group: the rank in the group before.
    pub(crate) members: Vec<usize>,
}

/// The state of a rank in a group, independent of the transport.
#[derive(Debug)]
pub(crate) struct GroupMembership {
    pub(crate) activity: Arc<GroupActivity>,
    pub(crate) alarm: Arc<Alarm>,
    pub(crate) departures: Arc<Departures>,
}

impl GroupMembership {
    /// The membership of a new group of the ranks `members` of this one, of which this rank is one.
    /// `open` makes its activity there.
    fn split(
        &self,
        members: &[usize],
        number: u64,
        open: impl FnOnce(GroupId, Vec<usize>, usize) -> Arc<GroupActivity>,
    ) -> Self {
        let GroupId { parent_epoch, counter } = self.activity.group();
        // All ranks of a group were made by the same splits, so this hash of the splits is equal on
        // all.
        let parent_epoch = mix(mix(parent_epoch ^ 1) ^ counter);
        let world = members.iter().map(|rank| self.activity.members()[*rank]).collect();
        let me = members.iter().position(|rank| *rank == self.activity.rank());
        let me = me.expect("this rank is a member");
        let activity = open(GroupId { parent_epoch, counter: number }, world, me);
        let (alarm, departures) = (Arc::clone(&self.alarm), Arc::clone(&self.departures));
        Self { activity, alarm, departures }
    }
}

/// One rank's handle on its group. Ranks are those of the group.
pub(crate) trait Control: Connector {
    fn membership(&self) -> &GroupMembership;

    /// The number of the group.
    fn group(&self) -> GroupId {
        self.membership().activity.group()
    }

    /// World ranks of the group, by rank.
    fn members(&self) -> &[usize] {
        self.membership().activity.members()
    }

    /// Raised when the group has failed.
    fn alarm(&self) -> Arc<Alarm> {
        Arc::clone(&self.membership().alarm)
    }

    /// Returns the number of the group, and the world rank of its rank 0. Together they are equal on
    /// all members, and different for every group.
    fn identity(&self) -> (GroupId, usize) {
        self.membership().activity.identity()
    }

    /// Returns the blobs of all ranks, by rank. All ranks of the group call this, in the same
    /// order.
    fn exchange(&self, blob: Vec<u8>, deadline: Instant) -> Result<Vec<Vec<u8>>>;

    /// Returns the board that the ranks `locals` share. This rank is `locals[me]`. All of them call
    /// this.
    fn board(&self, locals: &[usize], me: usize, deadline: Instant) -> Result<Board>;

    /// Returns a segment of `bytes` bytes that the ranks `locals` share. All of them call this with
    /// the same `number`, which counts up from call to call.
    fn segment(
        &self,
        locals: &[usize],
        number: u32,
        bytes: usize,
        deadline: Instant,
    ) -> Result<Segment>;

    /// Returns streams to `peers`, in their order. Both ends of each call this.
    fn streams(&self, peers: &[usize], deadline: Instant) -> Result<Vec<AnyStream>>;

    /// Returns the record of this rank's calls in the group.
    fn activity(&self) -> Arc<GroupActivity> {
        Arc::clone(&self.membership().activity)
    }

    /// Compares the calls of `peer` with those of this rank, for at most a second. Returns the
    /// first two that do not match.
    fn compare(&self, peer: usize) -> Option<CallMismatch>;

    /// Diagnoses why `peer` is late, within a second.
    fn locate(&self, peer: usize) -> Diagnosis;

    /// Fails the group on all ranks by `cause`, which has the world's numbers. Returns the first
    /// cause, with the group's numbers.
    fn fail(&self, cause: Cause) -> Cause;

    /// Returns the status of this rank in all of its groups.
    fn status(&self) -> RankStatus;

    /// Aborts the world on all ranks, for the reason `why`, unless it has failed: then the first
    /// cause stays. Returns once the others have received the cause, after 1.5 s at the latest.
    fn abort(&self, why: &str);

    /// Returns the group of the surviving ranks. All ranks that exist call this.
    fn shrink(&self, deadline: Instant) -> Result<SurvivingGroup>;

    /// Returns the first cause, with the group's numbers, if the group has failed.
    fn cause(&self) -> Option<Cause>;

    /// Opens a port by which this process can use verbs with the ranks that `transport` joins by
    /// them, if there is one. All ranks of the group decide together whether they use verbs, and by
    /// which ports.
    fn offer_verbs(&self, transport: Transport, choice: PortChoice) -> VerbsOffer;

    /// Makes sure that bytes sent to `peer` by verbs arrive there.
    ///
    /// # Errors
    /// Why they do not, in words.
    fn try_verbs(&self, _peer: usize) -> Result<(), String> {
        Err("these ranks use no verbs".to_owned())
    }

    /// Drops the connections by which others have [tried](Self::try_verbs) to reach this rank.
    fn end_trials(&self) {}

    /// Returns this rank's handle on a new group of the ranks `members`, of which this rank is one.
    /// `number` is equal on all of them and was not used in this group before. `links` carry its
    /// streams.
    fn subgroup(&self, members: &[usize], number: u64, links: &StreamLinks) -> Arc<dyn Control>;

    /// Returns where this rank listens for the others; `None` if all of them are in this process.
    fn listening(&self) -> Option<SocketAddr> {
        None
    }

    /// Returns the open communicators of this rank in this world.
    fn departures(&self) -> Arc<Departures> {
        Arc::clone(&self.membership().departures)
    }

    /// Leaves the group before operation `sequence`. If `patient`, waits for up to 5 s until all
    /// others have done as many operations, so that [`cause`](Self::cause) shows whether the calls
    /// of all ranks matched.
    fn leave(&self, sequence: u64, patient: bool);
}

/// The abort of rank `rank` of the world. It precedes all causes but a death.
fn aborted(rank: usize, why: &str) -> Cause {
    Cause::of_rank(0, FailureKind::UserAbort, rank, format!(" aborted: {why}"))
}
