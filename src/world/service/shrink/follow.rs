//! A follower's part: it stays with one leader until the leader has decided or is gone.

use super::agreement::{FollowerMessage, LeaderMessage, Proposal};
use super::calls::FOLLOWER;
use super::{Member, UnreachableSince};
use crate::world::service::message::{MAX_MESSAGE, decode, encode};
use crate::world::service::{ControlConnection, SILENCE_LIMIT, read_message};
use maypole_transports::deadline::DeadlineSocket;
use maypole_transports::secure::{Binding, Channel, Purpose, SecureError, initiate};
use maypole_transports::sockets::set_tcp_options;
use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How long one attempt to connect to the leader may take.
const ATTEMPT: Duration = Duration::from_secs(1);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(20);
/// The most time that is kept for the leader's answer that members are missing.
const LONGEST_ANSWER: Duration = Duration::from_secs(1);
/// How often a follower checks whether the leader is known to be gone.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// How following one leader ended.
pub(super) enum Followed {
    /// The proposal holds. The connection is to rank 0 of the new world.
    Committed(Proposal, Box<ControlConnection>),
    /// The leader had decided before.
    Decided(Proposal),
    /// The leader does not exist any more, or has left the group.
    Gone,
    /// The leader is in another session: the others went on without this rank.
    LeftBehind,
    /// The deadline passed. These ranks are missing.
    TimedOut(Vec<usize>),
}

/// A connection to the leader.
struct LeaderLink {
    stream: TcpStream,
    channel: Channel,
}

/// What is known after one connection to the leader has ended.
enum LinkEnd {
    /// The leader may still exist.
    Lost,
    Over(Followed),
}

impl Member<'_> {
    /// Follows `leader`. `prepared` is the last proposal that this rank was ready for.
    pub(super) fn follow(&self, leader: usize, prepared: &mut Option<Proposal>) -> Followed {
        let mut unreachable = UnreachableSince::default();
        loop {
            if self.is_known_gone(leader) {
                return Followed::Gone;
            }
            match self.call_leader(leader) {
                Ok(link) => {
                    unreachable.reached();
                    if let LinkEnd::Over(followed) = self.listen_to(leader, link, prepared) {
                        return followed;
                    }
                }
                Err(SecureError::WrongKey) => return Followed::LeftBehind,
                Err(error) if is_gone(&error, &mut unreachable) => return Followed::Gone,
                Err(error) => tracing::debug!(leader, %error, "the leader does not answer"),
            }
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Followed::TimedOut(vec![leader]);
            }
            std::thread::sleep(left.min(BETWEEN_ATTEMPTS));
        }
    }

    /// Connects to `leader`, and says hello.
    fn call_leader(&self, leader: usize) -> Result<LeaderLink, SecureError> {
        let until = self.deadline.min(Instant::now() + ATTEMPT);
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let shared = &self.service.shared;
        let mut stream = TcpStream::connect_timeout(&shared.peers[leader].listen, left)?;
        set_tcp_options(&stream, SILENCE_LIMIT)?;
        let mut timed = DeadlineSocket { socket: &mut stream, deadline: until };
        let channel = initiate(&mut timed, &shared.secret, &self.binding(leader, FOLLOWER))?;
        Ok(LeaderLink { stream, channel })
    }

    /// How long the leader may wait for other members. What is left then is for its answer.
    fn patience(&self) -> Duration {
        let left = self.deadline.saturating_duration_since(Instant::now());
        left - (left / 4).min(LONGEST_ANSWER)
    }

    pub(super) fn binding(&self, responder: usize, lane: u32) -> Binding {
        Binding {
            purpose: Purpose::Shrink,
            group: self.group.words(),
            lane,
            initiator: self.rank() as u32,
            responder: responder as u32,
        }
    }

    /// Does what the leader says, until the connection ends or the leader has decided.
    fn listen_to(
        &self,
        leader: usize,
        mut link: LeaderLink,
        prepared: &mut Option<Proposal>,
    ) -> LinkEnd {
        let (own, prepared_for) = (Box::new(self.own.clone()), prepared.clone());
        let hello =
            FollowerMessage::Hello { own, prepared: prepared_for, patience: self.patience() };
        if link.send(&hello, self.deadline).is_err() {
            return LinkEnd::Lost;
        }
        loop {
            // What the leader sent before its process ended has arrived by the time that the end is
            // known.
            let ended = self.is_known_ended(leader);
            let message = match link.receive(self.deadline.min(Instant::now() + CHECK_INTERVAL)) {
                Ok(message) => message,
                Err(error) if is_timeout(&error) => {
                    if ended {
                        return LinkEnd::Over(Followed::Gone);
                    }
                    if Instant::now() >= self.deadline {
                        return LinkEnd::Over(Followed::TimedOut(vec![leader]));
                    }
                    continue;
                }
                Err(_) => return LinkEnd::Lost,
            };
            match message {
                LeaderMessage::Prepare(proposal) => {
                    let ready = FollowerMessage::Ready(proposal.ballot);
                    *prepared = Some(proposal);
                    if link.send(&ready, self.deadline).is_err() {
                        return LinkEnd::Lost;
                    }
                }
                LeaderMessage::Commit(ballot) => {
                    let committed = prepared.take_if(|proposal| proposal.ballot == ballot);
                    let Some(proposal) = committed else { return LinkEnd::Lost };
                    let control = ControlConnection::new(link.stream, link.channel);
                    return LinkEnd::Over(match control {
                        Ok(control) => Followed::Committed(proposal, Box::new(control)),
                        Err(_) => Followed::Decided(proposal),
                    });
                }
                LeaderMessage::Decided(proposal) => {
                    return LinkEnd::Over(Followed::Decided(proposal));
                }
                LeaderMessage::Gone => return LinkEnd::Over(Followed::Gone),
                LeaderMessage::TimedOut(missing) => {
                    // The leader has given its proposals up.
                    *prepared = None;
                    return LinkEnd::Over(Followed::TimedOut(missing));
                }
            }
        }
    }
}

impl LeaderLink {
    fn send(&mut self, message: &FollowerMessage, deadline: Instant) -> Result<(), SecureError> {
        let mut sealed = Vec::new();
        self.channel.seal(&encode(message), &mut sealed);
        DeadlineSocket { socket: &mut self.stream, deadline }.write_all(&sealed)?;
        Ok(())
    }

    fn receive(&mut self, deadline: Instant) -> Result<LeaderMessage, SecureError> {
        let mut timed = DeadlineSocket { socket: &mut self.stream, deadline };
        let message = read_message(&mut timed, &mut self.channel, MAX_MESSAGE)?;
        decode(&message).ok_or(SecureError::UnknownProtocol)
    }
}

pub(super) fn is_timeout(error: &SecureError) -> bool {
    let waited = |kind| matches!(kind, ErrorKind::TimedOut | ErrorKind::WouldBlock);
    matches!(error, SecureError::Io(error) if waited(error.kind()))
}

/// True if the rank does not exist any more, as `error` of an attempt to connect shows.
pub(super) fn is_gone(error: &SecureError, unreachable: &mut UnreachableSince) -> bool {
    match error {
        // Another program listens there now.
        SecureError::OtherJob | SecureError::UnknownProtocol => true,
        // Its kernel has accepted the connection: it is busy, stopped, or about to end.
        SecureError::Io(error) if is_end_or_timeout(error.kind()) => false,
        SecureError::Io(error) => unreachable.is_gone(error, Instant::now()),
        _ => false,
    }
}

fn is_end_or_timeout(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::WouldBlock
            | ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::BrokenPipe
    )
}
