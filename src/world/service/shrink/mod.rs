//! Going on without the dead: the survivors of a group agree on who they are, and become a world of
//! their own, with a service, a session and numbers of ranks of its own.
//!
//! # The problem
//!
//! Ranks notice a death at different moments, rank 0 may be the one that died, and more ranks may
//! die while the others agree. All survivors must end in the same new world, or each must be told
//! why not.
//!
//! # The protocol
//!
//! The *leader* is the first member that still exists, in the order of the group. Every other member, a
//! *follower*, connects to the leader's listening port, whose address every rank knows.
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
//!   of its process, or if it has said that it has left. An ended connection is only a reason to
//!   connect again. The leader connects to members that have not come, to learn whether they are
//!   gone.
//! * **A leader that dies** is followed by the next member, with whom all others begin anew. In
//!   its Hello each tells the last proposal that it was ready for. If there is any, the new leader
//!   decides the latest of them. So a proposal that one member may have committed is decided by
//!   all: it was committed only if all its members were ready for it, the new leader among them,
//!   and no later proposal was made.
//! * **A member that has decided** answers so to all who ask, as long as it keeps the group.
//! * **The new world is tried** by an exchange among its members before a call returns. If a member
//!   has died meanwhile (the leader, in the case above), the same protocol runs again in the new
//!   world, until it works or the deadline has passed.
//! * **A member that is alive but does not come** is not left out: the call fails on all ranks that
//!   came, and names the member. Ranks have deadlines of their own; the leader gives up shortly
//!   before the first of them, so that nobody takes the leader for the missing one. It can be
//!   called again. A rank that the others left out, which can only happen if the network was cut,
//!   gets an error when it asks.
//!
//! # Cost
//!
//! The leader has one connection to each member, the others have one. There are two round trips
//! after the last member has come.
//!
//! # Source
//!
//! What is promised is that of `MPI_Comm_shrink` of ULFM (W. Bland et al., "Post-failure recovery of
//! MPI communication capability", 2013). The protocol is that of D. Buntinas, "Scalable distributed
//! consensus to support MPI fault tolerance" (2012), with a star instead of a tree and with
//! Ready and Commit as its AGREE and COMMIT phases: the next rank in order leads after a death, and
//! a proposal that somebody may have committed is taken over.

mod agreement;
mod calls;
mod follow;
mod lead;
mod probe;

pub(super) use calls::ShrinkCalls;

use super::{
    Acceptor, ControlConnection, GroupId, SILENCE_LIMIT, Service, ServiceError, ServiceStart,
};
use crate::world::peer::Peer;
use agreement::Proposal;
use follow::Followed;
use lead::Leader;
use maypole_transports::secure::JobSecret;
use maypole_transports::watch::Watch;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;

/// What a request that fails at its deadline waited for.
const WHAT: &str = "going on without the dead";

/// The survivors of a group.
#[derive(Debug)]
pub struct Survivors {
    /// This rank's service in the new world.
    pub service: Service,
    /// By rank of the new world: its place among the members of the group.
    pub places: Vec<usize>,
}

/// One rank's part in an agreement.
struct Member<'a> {
    service: &'a Service,
    group: GroupId,
    /// World ranks of the group, in its order.
    members: &'a [usize],
    /// How this rank is reached in the new world.
    own: Peer,
    deadline: Instant,
}

/// How an agreement ended.
enum Agreed {
    /// These connections are the control connections of the new world, by rank there.
    Committed(Proposal, BTreeMap<usize, ControlConnection>),
    /// The leader that proposed it has died.
    Inherited(Proposal),
}

impl Service {
    /// Makes a new world of those members of `group` that still exist. All of them call it, with
    /// equal `group` and `members` (world ranks, this one among them). The members keep their
    /// order.
    ///
    /// # Errors
    /// [`ServiceError::TimedOut`] if a member neither comes nor ends before the first `deadline` of
    /// those that came, the same on all of them; it can be called again. [`ServiceError::Failed`] if the others went on
    /// without this rank, or the system refuses a socket or a thread.
    pub fn shrink(
        &self,
        group: GroupId,
        members: &[usize],
        deadline: Instant,
    ) -> Result<Survivors, ServiceError> {
        self.check_members(members)?;
        let mut survivors = self.agree(group, members, deadline)?;
        loop {
            let service = &survivors.service;
            let all: Vec<usize> = (0..service.world()).collect();
            match service.exchange(GroupId::WORLD, &all, Vec::new(), deadline) {
                Ok(_) => return Ok(survivors),
                Err(error @ ServiceError::TimedOut { .. }) => return Err(error),
                Err(error) => tracing::debug!(%error, "another rank is gone; agreeing again"),
            }
            let next = service.agree(GroupId::WORLD, &all, deadline)?;
            let places = next.places.iter().map(|place| survivors.places[*place]).collect();
            survivors = Survivors { service: next.service, places };
        }
    }

    /// As [`shrink`](Self::shrink), but a member of the new world may have died already.
    fn agree(
        &self,
        group: GroupId,
        members: &[usize],
        deadline: Instant,
    ) -> Result<Survivors, ServiceError> {
        if members.len() == 1 {
            let service = Self::alone(self.shared.timeout).map_err(refused)?;
            return Ok(Survivors { service, places: vec![0] });
        }
        if self.shared.state().shrinks.is_decided(group) {
            return Err(ServiceError::Invalid(
                "the ranks have gone on already; use the communicator that they made".to_owned(),
            ));
        }
        let listener = self.listen_again().map_err(refused)?;
        let listen = listener.local_addr().map_err(refused)?;
        let own = Peer { listen, ..self.shared.peers[self.rank()].clone() };
        let member = Member { service: self, group, members, own, deadline };
        let agreed = member.agree()?;
        let (proposal, controls) = match agreed {
            Agreed::Committed(proposal, controls) => (proposal, controls),
            Agreed::Inherited(proposal) => (proposal, BTreeMap::new()),
        };
        let rank = member.place_in(&proposal)?;
        self.shared.decide(group, &proposal);
        let place = |world: &usize| members.iter().position(|member| member == world);
        let places: Option<Vec<usize>> = proposal.members.iter().map(place).collect();
        let places = places.ok_or_else(|| refused("the proposal names a rank of no member"))?;
        let service = self.start_again(rank, proposal, listener, controls).map_err(refused)?;
        Ok(Survivors { service, places })
    }

    /// A listener for a new world, where this rank listens already.
    fn listen_again(&self) -> io::Result<TcpListener> {
        let mut address = self.shared.peers[self.rank()].listen;
        let ports = self.shared.data_ports.clone().map_or(vec![0], Iterator::collect);
        let mut last = io::ErrorKind::InvalidInput.into();
        for port in ports {
            address.set_port(port);
            match TcpListener::bind(address) {
                Ok(listener) => return Ok(listener),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The service of `rank` in the world of `proposal`.
    fn start_again(
        &self,
        rank: usize,
        proposal: Proposal,
        listener: TcpListener,
        controls: BTreeMap<usize, ControlConnection>,
    ) -> io::Result<Self> {
        if proposal.peers.len() == 1 {
            return Self::alone(self.shared.timeout);
        }
        let scope = scope_of(listener.local_addr()?);
        let secret = JobSecret { session: proposal.session, ..self.shared.secret.clone() };
        let watch = Watch::new()?;
        Self::start(ServiceStart {
            rank,
            acceptor: Acceptor::new(listener, secret.clone(), rank, &watch)?,
            secret,
            peers: proposal.peers.into_iter().map(|peer| peer.within(scope)).collect(),
            timeout: self.shared.timeout,
            encrypt: self.shared.encrypt,
            data_ports: self.shared.data_ports.clone(),
            verbs: Arc::clone(&self.shared.verbs),
            watch,
            controls,
            late_answer: None,
        })
    }
}

/// The number of the interface in a link-local address; 0 for any other address.
fn scope_of(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(address) => address.scope_id(),
    }
}

fn refused(why: impl ToString) -> ServiceError {
    ServiceError::Failed { what: WHAT, why: why.to_string() }
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
            match self.follow(leader, &mut prepared) {
                Followed::Committed(proposal, control) => {
                    return Ok(Agreed::Committed(proposal, [(0, *control)].into()));
                }
                Followed::Decided(proposal) => return Ok(Agreed::Inherited(proposal)),
                Followed::Gone => {
                    gone.insert(leader);
                }
                Followed::LeftBehind => return Err(self.left_behind()),
                Followed::TimedOut(missing) => {
                    return Err(ServiceError::TimedOut { what: WHAT, missing });
                }
            }
        }
    }

    /// This rank's number in the world of `proposal`.
    fn place_in(&self, proposal: &Proposal) -> Result<usize, ServiceError> {
        let own = self.own.listen;
        let place = proposal.members.iter().position(|member| *member == self.rank());
        let same = |place: &usize| {
            let listen = proposal.peers.get(*place).map(|peer| peer.listen);
            listen.is_some_and(|it| (it.ip(), it.port()) == (own.ip(), own.port()))
        };
        place.filter(same).ok_or_else(|| self.left_behind())
    }

    /// The error of a rank that the others could not reach.
    fn left_behind(&self) -> ServiceError {
        let rank = self.rank();
        refused(format!("the other ranks went on without rank {rank}, which they could not reach"))
    }

    /// True if the process of `rank` is known to have ended.
    fn is_known_ended(&self, rank: usize) -> bool {
        self.service.shared.state().ended.contains(&rank)
    }

    /// True if `rank` is known to have ended or left.
    fn is_known_gone(&self, rank: usize) -> bool {
        let state = self.service.shared.state();
        state.ended.contains(&rank) || state.left.contains_key(&rank)
    }
}

/// Since when a rank could not be reached at all.
#[derive(Debug, Default)]
struct UnreachableSince(Option<Instant>);

impl UnreachableSince {
    /// Records a failed attempt at `now`. True if the rank counts as gone.
    fn is_gone(&mut self, error: &io::Error, now: Instant) -> bool {
        if error.kind() == io::ErrorKind::ConnectionRefused {
            return true;
        }
        let since = *self.0.get_or_insert(now);
        now.duration_since(since) >= SILENCE_LIMIT
    }

    /// Records that its kernel has accepted a connection.
    fn reached(&mut self) {
        self.0 = None;
    }
}
