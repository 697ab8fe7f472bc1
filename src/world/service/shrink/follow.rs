//! A follower's part: it follows one leader until the leader has decided or is gone.

use super::agreement::{FollowerMessage, LeaderMessage, Proposal};
use super::calls::FOLLOWER;
use super::{Member, UnreachableSince};
use crate::world::service::message::MAX_MESSAGE;
use crate::world::service::{DialedLink, SILENCE_LIMIT, binding, is_timeout};
use maypole_transports::secure::{Binding, Purpose, SecureError};
use std::time::{Duration, Instant};

/// The timeout of one attempt to connect.
pub(super) const ATTEMPT: Duration = Duration::from_secs(1);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(20);
/// The most time that is reserved for the leader's reply that members are missing.
const LONGEST_ANSWER: Duration = Duration::from_secs(1);
/// The interval at which a follower polls the control plane for the end of the leader.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The result of following one leader, or of a leader's probe of a member.
pub(super) enum Followed {
    /// The proposal for which the follower was ready holds.
    Committed(Proposal),
    /// The leader had decided before.
    Decided(Proposal),
    /// The leader has ended, or has left the group.
    Gone,
    /// The leader is in another session: the others continued without this rank.
    LeftBehind,
    /// The leader has timed out. These ranks are missing.
    TimedOut(Vec<usize>),
    /// The follower's own deadline has passed.
    Late,
}

/// Handles the messages of the leader at the other end of `link`, until the connection ends or the
/// leader has decided. `prepared` is the last proposal that this process was ready for. `is_ended`:
/// the control plane has reported the end of the leader's process.
///
/// # Errors
/// How the connection has ended. The leader may still exist.
pub(super) fn obey(
    link: &mut DialedLink,
    prepared: &mut Option<Proposal>,
    deadline: Instant,
    is_ended: impl Fn() -> bool,
) -> Result<Followed, SecureError> {
    loop {
        // All messages of the leader arrive before the report of its process's end.
        let ended = is_ended();
        match link.receive(MAX_MESSAGE, deadline.min(Instant::now() + CHECK_INTERVAL)) {
            Ok(LeaderMessage::Prepare(proposal)) => {
                let ready = FollowerMessage::Ready(proposal.ballot);
                *prepared = Some(proposal);
                link.send(&ready, deadline)?;
            }
            Ok(LeaderMessage::Commit(ballot)) => {
                let committed = prepared.take_if(|proposal| proposal.ballot == ballot);
                return committed.map(Followed::Committed).ok_or(SecureError::UnknownProtocol);
            }
            Ok(LeaderMessage::Decided(proposal)) => return Ok(Followed::Decided(proposal)),
            Ok(LeaderMessage::Gone) => return Ok(Followed::Gone),
            Ok(LeaderMessage::TimedOut(missing)) => {
                // The leader has aborted its proposals.
                *prepared = None;
                return Ok(Followed::TimedOut(missing));
            }
            Err(error) if !is_timeout(&error) => return Err(error),
            Err(_) if ended => return Ok(Followed::Gone),
            Err(_) if Instant::now() >= deadline => return Ok(Followed::Late),
            Err(_) => {}
        }
    }
}

/// Connects to `rank` again and again, and listens on each connection, until that has a result, the
/// rank is gone or the deadline has passed. Also returns the last connection.
pub(super) fn pursue(
    rank: usize,
    mut dial: impl FnMut() -> Result<DialedLink, SecureError>,
    mut listen: impl FnMut(&mut DialedLink) -> Result<Followed, SecureError>,
    is_gone: impl Fn() -> bool,
    deadline: Instant,
) -> (Followed, Option<DialedLink>) {
    let mut unreachable = UnreachableSince::default();
    loop {
        if is_gone() {
            return (Followed::Gone, None);
        }
        match dial() {
            Ok(mut link) => {
                unreachable.reached();
                if let Ok(followed) = listen(&mut link) {
                    return (followed, Some(link));
                }
            }
            Err(SecureError::WrongKey) => return (Followed::LeftBehind, None),
            Err(error) if unreachable.is_gone(&error) => return (Followed::Gone, None),
            Err(error) => tracing::debug!(rank, %error, "a member does not answer"),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return (Followed::Late, None);
        }
        std::thread::sleep(left.min(BETWEEN_ATTEMPTS));
    }
}

impl Member<'_> {
    /// Follows `leader`. `prepared` is the last proposal that this rank was ready for. Also returns the
    /// last connection to the leader.
    pub(super) fn follow(
        &self,
        leader: usize,
        prepared: &mut Option<Proposal>,
    ) -> (Followed, Option<DialedLink>) {
        let dial = || self.call_leader(leader);
        let listen = |link: &mut DialedLink| self.listen_to(leader, link, prepared);
        pursue(leader, dial, listen, || self.is_known_gone(leader), self.deadline)
    }

    fn call_leader(&self, leader: usize) -> Result<DialedLink, SecureError> {
        let until = self.deadline.min(Instant::now() + ATTEMPT);
        let shared = &self.service.shared;
        let proof = (&shared.settings.secret, &self.binding(leader, FOLLOWER));
        DialedLink::dial(shared.peers[leader].listen, SILENCE_LIMIT, proof, until)
    }

    /// The leader's time to wait for other members. The rest of the deadline is for its reply.
    fn patience(&self) -> Duration {
        let left = self.deadline.saturating_duration_since(Instant::now());
        left - (left / 4).min(LONGEST_ANSWER)
    }

    pub(super) fn binding(&self, responder: usize, lane: u32) -> Binding {
        binding(Purpose::Shrink, (self.group, lane), [self.rank(), responder])
    }

    /// Sends `Hello`, and handles the leader's messages.
    fn listen_to(
        &self,
        leader: usize,
        link: &mut DialedLink,
        prepared: &mut Option<Proposal>,
    ) -> Result<Followed, SecureError> {
        let (own, patience) = (Box::new(self.own.clone()), self.patience());
        let hello = FollowerMessage::Hello { own, prepared: prepared.clone(), patience };
        link.send(&hello, self.deadline)?;
        obey(link, prepared, self.deadline, || self.is_known_ended(leader))
    }
}

#[cfg(test)]
mod tests {
    use super::super::agreement::{AgreedWorld, Ballot};
    use super::*;
    use maypole_transports::secure::{JobSecret, Responder};
    use std::net::TcpListener;

    /// Both ends of a connection: the follower's, and the leader's.
    fn pair(deadline: Instant) -> (DialedLink, DialedLink) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let secret = JobSecret { key: [7; 32], job: "pair".to_owned(), session: [0; 16] };
        let (purpose, group, lane) = (Purpose::Shrink, [0; 2], FOLLOWER);
        let binding = Binding { purpose, group, lane, initiator: 1, responder: 0 };
        std::thread::scope(|threads| {
            let leader = threads.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let (_, channel) = Responder::new(&secret).advance(&mut stream).unwrap().unwrap();
                DialedLink { stream, channel }
            });
            let proof = (&secret, &binding);
            let here = DialedLink::dial(address, SILENCE_LIMIT, proof, deadline).unwrap();
            (here, leader.join().unwrap())
        })
    }

    #[test]
    fn a_follower_remembers_a_proposal_until_its_leader_gives_up() {
        let deadline = Instant::now() + Duration::from_secs(60);
        let (mut here, mut leader) = pair(deadline);
        let ballot = Ballot { leader: 0, number: 1 };
        let world = AgreedWorld { session: [1; 16], peers: Vec::new() };
        let proposal = Proposal { ballot, members: vec![0], world };
        let mut prepared = None;
        leader.send(&LeaderMessage::Prepare(proposal.clone()), deadline).unwrap();
        leader.send(&LeaderMessage::TimedOut(vec![2]), deadline).unwrap();
        let followed = obey(&mut here, &mut prepared, deadline, || false);
        assert!(matches!(followed, Ok(Followed::TimedOut(missing)) if missing == [2]));
        assert!(prepared.is_none());
        let said = leader.receive(MAX_MESSAGE, deadline);
        assert!(matches!(said, Ok(FollowerMessage::Ready(said)) if said == ballot));
        assert!(matches!(obey(&mut here, &mut prepared, deadline, || true), Ok(Followed::Gone)));
        // A leader that dies may have committed it.
        leader.send(&LeaderMessage::Prepare(proposal), deadline).unwrap();
        drop(leader);
        assert!(obey(&mut here, &mut prepared, deadline, || false).is_err());
        assert!(prepared.is_some_and(|proposal| proposal.ballot == ballot));
    }
}
