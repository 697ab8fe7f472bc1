//! The control plane of ranks that are processes: the service of this process.

use crate::control::transport::{NO_DEVICES, Transport, VerbsOffer};
use crate::control::{Control, GroupMembership, Result, SurvivingGroup, aborted};
use crate::execute::messages::Connector;
use crate::execute::{AnyStream, SlowWait, WaitWatcher};
use crate::topology::StreamLinks;
use crate::topology::transport::RefusalReason;
use crate::world::PortChoice;
use crate::world::calls::{CallMismatch, RankStatus, WaitTarget};
use crate::world::service::{
    Cause, DataPath, Diagnosis, GroupId, Service, ServiceError, Survivors, at_once,
};
use maypole_transports::ib::has_device_files;
use maypole_transports::shm::Segment;
use maypole_transports::{Board, Stream};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The numbers of the connections between two ranks: for collectives, for messages, and for trials
/// whether verbs reach the other rank.
const COLLECTIVES: u32 = 0;
const MESSAGES: u32 = 1;
const TRIALS: u32 = 2;
/// How long ranks take to agree on which failure was the first.
const SETTLING: Duration = Duration::from_secs(2);

/// One rank's handle on a group of joined processes.
#[derive(Debug)]
pub(crate) struct ProcessControl {
    service: Arc<Service>,
    membership: GroupMembership,
    links: StreamLinks,
}

impl ProcessControl {
    /// The group of all ranks, whose streams go over TCP.
    pub(crate) fn world(service: Service) -> Self {
        let members: Vec<usize> = (0..service.world()).collect();
        let activity = service.progress().open(GroupId::WORLD, &members, service.rank());
        let (alarm, departures) = (service.alarm(), Arc::default());
        let membership = GroupMembership { activity, alarm, departures };
        let links = StreamLinks::Tcp(RefusalReason::Forbidden);
        Self { service: Arc::new(service), membership, links }
    }

    /// The same group, whose streams go over `links`. No stream may have been made.
    pub(crate) fn over(mut self, links: StreamLinks) -> Self {
        self.links = links;
        self
    }

    /// How the stream to `peer` is made.
    fn path_to(&self, peer: usize) -> DataPath {
        let hosts = self.service.hosts();
        let one_host = hosts[self.members()[peer]] == hosts[self.service.rank()];
        if self.links.uses_verbs(one_host) { DataPath::Verbs } else { DataPath::Tcp }
    }

    /// Notes, before a wait of the control plane, the awaited rank.
    fn await_next(&self, awaited: WaitTarget) {
        self.membership.activity.wait(awaited, 0, (0, 1), Instant::now());
    }

    /// Notes the awaited rank. Now and then, requests its calls.
    fn ask_calls_if_due(&self, awaited: WaitTarget, step: usize, windows: (u32, u32)) {
        if self.membership.activity.wait(awaited, step, windows, Instant::now()) {
            self.service.ask_calls(self.group(), &self.membership.activity, awaited);
        }
    }

    fn error(&self, error: ServiceError) -> ServiceError {
        error.in_group(self.members())
    }
}

impl WaitWatcher for ProcessControl {
    fn has_left(&self, peer: usize) -> bool {
        if let Some(wait) = self.membership.activity.pending_wait() {
            self.ask_calls_if_due(wait.target, wait.step, wait.windows);
        }
        self.service.has_left(self.members()[peer]) || self.membership.activity.has_left(peer)
    }

    fn note_wait(&self, wait: SlowWait) {
        self.ask_calls_if_due(WaitTarget::Rank(wait.peer), wait.step, wait.windows);
    }
}

impl Connector for ProcessControl {
    fn dial_all(&self, peers: &[usize], deadline: Instant) -> Vec<Result<AnyStream, String>> {
        at_once(peers, |peer| {
            let key = (self.group(), self.members()[*peer], MESSAGES);
            let dialled = self.service.dial(self.path_to(*peer), key, deadline);
            dialled.map_err(|error| error.to_string())
        })
    }

    fn callers(&self) -> Vec<(usize, AnyStream)> {
        let known = |(caller, stream)| {
            let from = self.members().iter().position(|member| *member == caller)?;
            Some((from, stream))
        };
        self.service.callers(self.group(), MESSAGES).into_iter().filter_map(known).collect()
    }
}

impl Control for ProcessControl {
    fn membership(&self) -> &GroupMembership {
        &self.membership
    }

    fn exchange(&self, blob: Vec<u8>, deadline: Instant) -> Result<Vec<Vec<u8>>> {
        self.await_next(WaitTarget::MissingMembers);
        let exchanged = self.service.exchange(self.group(), self.members(), blob, deadline);
        exchanged.map_err(|error| self.error(error))
    }

    fn board(&self, locals: &[usize], me: usize, deadline: Instant) -> Result<Board> {
        let segment = self.segment(locals, 0, Board::deep_bytes(locals.len()), deadline)?;
        Ok(Board::new(segment, locals.len(), me))
    }

    fn segment(
        &self,
        locals: &[usize],
        _: u32,
        bytes: usize,
        deadline: Instant,
    ) -> Result<Segment> {
        let world: Vec<usize> = locals.iter().map(|rank| self.members()[*rank]).collect();
        self.await_next(WaitTarget::MissingMembers);
        let segment = self.service.share(self.group(), &world, bytes, deadline);
        segment.map_err(|error| self.error(error))
    }

    fn streams(&self, peers: &[usize], deadline: Instant) -> Result<Vec<AnyStream>> {
        let Some(first) = peers.first() else { return Ok(Vec::new()) };
        self.await_next(WaitTarget::Rank(*first));
        let key = |peer: usize| (self.group(), self.members()[peer], COLLECTIVES);
        let wanted: Vec<_> = peers.iter().map(|it| (self.path_to(*it), key(*it))).collect();
        self.service.connect_all(&wanted, deadline).map_err(|error| self.error(error))
    }

    fn compare(&self, peer: usize) -> Option<CallMismatch> {
        self.service.compare_calls(self.group(), peer)
    }

    fn locate(&self, peer: usize) -> Diagnosis {
        self.await_next(WaitTarget::Rank(peer));
        self.service.ask_where(self.group(), self.members()[peer])
    }

    fn fail(&self, cause: Cause) -> Cause {
        self.service.settle(cause, SETTLING).in_group(self.members())
    }

    fn status(&self) -> RankStatus {
        self.service.status()
    }

    fn abort(&self, why: &str) {
        let cause = || aborted(self.service.rank(), why);
        self.service.abort_and_tell(self.service.cause().unwrap_or_else(cause));
    }

    fn shrink(&self, deadline: Instant) -> Result<SurvivingGroup> {
        let survivors = self.service.shrink(self.group(), self.members(), deadline);
        let Survivors { service, places } = survivors.map_err(|error| self.error(error))?;
        let control = Self::world(service).over(self.links.clone());
        Ok(SurvivingGroup { control: Arc::new(control), members: places })
    }

    fn cause(&self) -> Option<Cause> {
        self.service.cause_in(self.group()).map(|cause| cause.in_group(self.members()))
    }

    fn offer_verbs(&self, transport: Transport, choice: PortChoice) -> VerbsOffer {
        if transport != Transport::Ib && !has_device_files() {
            return Err(NO_DEVICES.to_owned());
        }
        let hosts = self.service.hosts();
        let me = self.service.rank();
        let needs_verbs = |member: &&usize| {
            **member != me && (transport == Transport::Ib || hosts[**member] != hosts[me])
        };
        let peers = self.members().iter().filter(needs_verbs).count();
        // For collectives, and for the messages of each direction.
        self.service.open_verbs(choice, 3 * peers)
    }

    fn try_verbs(&self, peer: usize) -> Result<(), String> {
        self.service.try_verbs(self.group(), self.members()[peer], TRIALS)
    }

    fn end_trials(&self) {
        for (_, mut stream) in self.service.callers(self.group(), TRIALS) {
            // Packets to a peer that has not reached this rank may not reach it either.
            stream.abandon();
        }
    }

    fn subgroup(&self, members: &[usize], number: u64, links: &StreamLinks) -> Arc<dyn Control> {
        let progress = self.service.progress();
        let open = |group, members: Vec<usize>, me| progress.open(group, &members, me);
        let mut membership = self.membership.split(members, number, open);
        membership.alarm = self.service.alarm_of(membership.activity.group());
        let service = Arc::clone(&self.service);
        Arc::new(Self { service, membership, links: links.clone() })
    }

    fn listening(&self) -> Option<SocketAddr> {
        self.service.listening()
    }

    /// Only the last handle leaves the world, because groups may outlive the world that they were
    /// split from. Ranks that wait for this rank in the group request its status, which contains
    /// that it has left.
    fn leave(&self, sequence: u64, patient: bool) {
        self.membership.activity.leave();
        if Arc::strong_count(&self.service) == 1
            && let Err(error) = self.service.leave(sequence, patient)
        {
            tracing::warn!(%error, "the other ranks were not told that this rank has left");
        }
    }
}

impl Drop for ProcessControl {
    fn drop(&mut self) {
        self.service.leave_group(self.group());
    }
}
