//! Continuing after a death: the survivors of a group agree on their set, and become a world of
//! their own, with a service, a session and numbers of ranks of its own.
//!
//! # The problem
//!
//! Ranks detect a death at different moments, rank 0 may be the one that died, and more ranks may
//! die while the others agree. All survivors must end in the same new world, or each must get the
//! reason.
//!
//! # The protocol
//!
//! The *leader* is the first member that still exists, in the order of the group. Every other
//! member, a *follower*, connects to the leader's listening port, whose address every rank has.
//!
//! ```text
//! follower                         leader
//!    | -- Hello (where I listen) --> |   waits until every member has come or is gone
//!    | <-- Prepare (the new world) - |   members, addresses, session
//!    | -- Ready ------------------>  |   waits for all of them; a loss here begins a new proposal
//!    | <-- Commit ------------------ |   the connection becomes the control connection
//! ```
//!
//! * **Gone** is never guessed from silence alone. A member is gone if its kernel refuses
//!   connections to its port, if its host cannot be reached for 10 s, if the kernel reports the end
//!   of its process, or if it has announced its departure. An ended connection is only a reason to
//!   connect again. The leader connects to members that have not arrived, to check whether they are
//!   gone.
//! * **A leader that dies** is followed by the next member, with whom all others begin anew. The
//!   Hello of each has the last proposal that it was ready for. If there is any, the new leader
//!   decides the latest of them. So a proposal that one member may have committed is decided by
//!   all: it was committed only if all its members were ready for it, the new leader among them,
//!   and no later proposal was made.
//! * **A member that has decided** replies with its decision, until it leaves the group.
//! * **The new world is tried** by an exchange among its members before a call returns. If a member
//!   has died meanwhile (the leader, in the case above), the same protocol runs again in the new
//!   world, until it works or the deadline has passed.
//! * **A member that is alive but does not arrive** is not left out: the call fails on all ranks
//!   that arrived, and names the member. Ranks have deadlines of their own; the leader aborts
//!   shortly before the first of them, so that no rank takes the leader for the missing one. The
//!   call can be repeated. A rank that the others left out, which can only happen after a network
//!   partition, gets an error from its next request.
//!
//! # Cost
//!
//! The leader has one connection to each member, the others have one. There are two round trips
//! after the last member has arrived.
//!
//! # Source
//!
//! The guarantees are those of `MPI_Comm_shrink` of ULFM (W. Bland et al., "Post-failure recovery
//! of MPI communication capability", 2013). The protocol is that of D. Buntinas, "Scalable
//! distributed consensus to support MPI fault tolerance" (2012), with a star instead of a tree and
//! with Ready and Commit as its AGREE and COMMIT phases: the next rank in order leads after a
//! death, and a proposal that some member may have committed is taken over.

mod agreement;
mod calls;
mod follow;
mod lead;
mod probe;
mod settings;

pub(crate) use agreement::AgreedWorld;
pub(super) use calls::ShrinkCalls;
pub(crate) use settings::{ServiceSettings, scope_of};

use super::{ControlConnection, GroupId, SILENCE_LIMIT, Service, ServiceError};
use crate::world::peer::Peer;
use agreement::Proposal;
use follow::Followed;
use lead::Leader;
use maypole_transports::secure::SecureError;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Instant;

/// The name of the request in the error of a timeout.
const WHAT: &str = "going on without the dead";

/// The survivors of a group.
#[derive(Debug)]
pub struct Survivors {
    /// This rank's service in the new world.
    pub service: Service,
    /// By rank of the new world: its place in the group.
    pub places: Vec<usize>,
}

/// One rank's part in an agreement.
struct Member<'a> {
    service: &'a Service,
    group: GroupId,
    /// World ranks of the group, in its order.
    members: &'a [usize],
    /// This rank's description.
    own: Peer,
    deadline: Instant,
}

/// How an agreement ended.
struct Agreed {
    proposal: Proposal,
    /// The control connections of the new world, by rank there; none if the leader of the proposal
    /// has died.
    controls: BTreeMap<usize, ControlConnection>,
}

impl From<Proposal> for Agreed {
    fn from(proposal: Proposal) -> Self {
        Self { proposal, controls: BTreeMap::new() }
    }
}

impl Service {
    /// Makes a new world of those members of `group` that still exist. All of them call it, with
    /// equal `group` and `members` (world ranks, this one among them). The members keep their
    /// order.
    ///
    /// # Errors
    /// [`ServiceError::TimedOut`] if a member neither arrives nor ends before the first `deadline`
    /// of those that arrived, the same on all of them; the call can be repeated.
    /// [`ServiceError::Refused`] if the others continued without this rank, or the system refuses a
    /// socket or a thread.
    pub fn shrink(
        &self,
        group: GroupId,
        members: &[usize],
        deadline: Instant,
    ) -> Result<Survivors, ServiceError> {
        self.check_members(members)?;
        self.agree(group, members, deadline)?.tried(deadline)
    }

    /// As [`shrink`](Self::shrink), but a member of the new world may have died already.
    fn agree(
        &self,
        group: GroupId,
        members: &[usize],
        deadline: Instant,
    ) -> Result<Survivors, ServiceError> {
        if members.len() == 1 {
            let service = Self::alone(self.shared.settings.timeout).map_err(refused)?;
            return Ok(Survivors { service, places: vec![0] });
        }
        if self.shared.state().shrinks.is_decided(group) {
            return Err(ServiceError::Refused(
                "the ranks have gone on already; use the communicator that they made".to_owned(),
            ));
        }
        let settings = self.shared.settings.clone();
        let own = self.shared.peers[self.rank()].clone();
        let listener = settings.listen(own.listen).map_err(refused)?;
        let listen = listener.local_addr().map_err(refused)?;
        let own = Peer { listen, report: Vec::new(), ..own };
        let member = Member { service: self, group, members, own, deadline };
        let Agreed { proposal, controls } = member.agree()?;
        let rank = member.place_in(&proposal)?;
        self.shared.update(|state| state.shrinks.decide(group, &proposal));
        let place = |world: &usize| members.iter().position(|member| member == world);
        let places: Option<Vec<usize>> = proposal.members.iter().map(place).collect();
        let places = places.ok_or_else(|| refused("the proposal names a rank of no member"))?;
        let world = proposal.world.within(scope_of(listen));
        let service = settings.start(rank, &world, listener, controls).map_err(refused)?;
        Ok(Survivors { service, places })
    }
}

impl Survivors {
    /// Tries the new world by an empty exchange among its members. If one has died, the others
    /// agree again, until the exchange works.
    fn tried(mut self, deadline: Instant) -> Result<Self, ServiceError> {
        loop {
            let service = &self.service;
            let all: Vec<usize> = (0..service.world()).collect();
            match service.exchange(GroupId::WORLD, &all, Vec::new(), deadline) {
                Ok(_) => return Ok(self),
                Err(error @ ServiceError::TimedOut { .. }) => return Err(error),
                Err(error) => tracing::debug!(%error, "another rank is gone; agreeing again"),
            }
            let next = service.agree(GroupId::WORLD, &all, deadline)?;
            let places = next.places.iter().map(|place| self.places[*place]).collect();
            self = Self { service: next.service, places };
        }
    }
}

fn refused(why: impl ToString) -> ServiceError {
    ServiceError::failed(WHAT, why)
}

impl Member<'_> {
    fn rank(&self) -> usize {
        self.service.rank()
    }

    /// Follows the first member that exists, or leads.
    fn agree(&self) -> Result<Agreed, ServiceError> {
        let mut gone = BTreeSet::new();
        let mut prepared = None;
        loop {
            let first = self.members.iter().copied().find(|member| !gone.contains(member));
            let leader = first.expect("this rank is not gone");
            if leader == self.rank() {
                return Leader::new(self, gone, prepared).map_err(refused)?.run();
            }
            let missing = match self.follow(leader, &mut prepared) {
                (Followed::Committed(proposal), link) => {
                    // The connection becomes that to rank 0 of the new world.
                    let control = link.and_then(|link| link.into_control().ok());
                    let controls = control.into_iter().map(|control| (0, control)).collect();
                    return Ok(Agreed { proposal, controls });
                }
                (Followed::Decided(proposal), _) => return Ok(proposal.into()),
                (Followed::Gone, _) => {
                    gone.insert(leader);
                    continue;
                }
                (Followed::LeftBehind, _) => return Err(self.left_behind()),
                (Followed::TimedOut(missing), _) => missing,
                (Followed::Late, _) => vec![leader],
            };
            return Err(ServiceError::TimedOut { what: WHAT, missing });
        }
    }

    /// This rank's number in the world of `proposal`.
    fn place_in(&self, proposal: &Proposal) -> Result<usize, ServiceError> {
        let place = proposal.members.iter().position(|member| *member == self.rank());
        let same = |place: &usize| proposal.place_of(self.own.listen) == Some(*place);
        place.filter(same).ok_or_else(|| self.left_behind())
    }

    /// The error of a rank that the others could not reach.
    fn left_behind(&self) -> ServiceError {
        let rank = self.rank();
        refused(format!("the other ranks went on without rank {rank}, which they could not reach"))
    }

    /// True if the end of `rank`'s process was reported.
    fn is_known_ended(&self, rank: usize) -> bool {
        self.service.shared.state().ended.contains(&rank)
    }

    /// True if `rank` was reported to have ended or left.
    fn is_known_gone(&self, rank: usize) -> bool {
        let state = self.service.shared.state();
        state.ended.contains(&rank) || state.left.contains(&rank)
    }
}

/// The start of a rank's unreachability.
#[derive(Debug, Default)]
struct UnreachableSince(Option<Instant>);

impl UnreachableSince {
    /// Records a failed attempt to connect. True if the rank has ended.
    fn is_gone(&mut self, error: &SecureError) -> bool {
        use io::ErrorKind::{
            BrokenPipe, ConnectionRefused, ConnectionReset, UnexpectedEof, WouldBlock,
        };
        let kind = match error {
            SecureError::Io(error) => error.kind(),
            // Another program listens there now.
            SecureError::OtherJob | SecureError::UnknownProtocol => return true,
            _ => return false,
        };
        match kind {
            ConnectionRefused => true,
            // Its kernel has accepted the connection: it is busy, stopped, or about to end.
            WouldBlock | UnexpectedEof | ConnectionReset | BrokenPipe => {
                self.reached();
                false
            }
            _ => self.0.get_or_insert_with(Instant::now).elapsed() >= SILENCE_LIMIT,
        }
    }

    /// Records that its kernel has accepted a connection.
    fn reached(&mut self) {
        self.0 = None;
    }
}
