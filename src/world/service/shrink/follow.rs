//! A follower's part: it stays with one leader until the leader has decided or is gone.

use super::agreement::{FollowerMessage, LeaderMessage, Proposal};
use super::calls::FOLLOWER;
use super::{Member, UnreachableSince};
use crate::world::service::message::MAX_MESSAGE;
use crate::world::service::{ControlConnection, DialedLink, SILENCE_LIMIT, is_timeout};
use maypole_transports::secure::{Binding, Purpose, SecureError};
use std::io::ErrorKind;
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

/// How listening to a leader ended.
pub(super) enum Heard {
    /// The proposal for which the listener was ready holds.
    Committed(Proposal),
    /// The leader had decided before.
    Decided(Proposal),
    /// The leader does not exist any more, or has left the group.
    Gone,
    /// The leader must not wait any longer. These ranks are missing.
    TimedOut(Vec<usize>),
    /// The listener's own deadline has passed.
    Late,
    /// The connection has ended. The leader may still exist.
    Lost(SecureError),
}

/// Does what the leader at the other end of `link` says, until the connection ends or the leader has
/// decided. `prepared` is the last proposal that this process was ready for. `is_ended`: the leader's
/// process is known to have ended.
pub(super) fn obey(
    link: &mut DialedLink,
    prepared: &mut Option<Proposal>,
    deadline: Instant,
    is_ended: impl Fn() -> bool,
) -> Heard {
    loop {
        // What the leader sent before its process ended has arrived by the time that the end is
        // known.
        let ended = is_ended();
        match link.receive(MAX_MESSAGE, deadline.min(Instant::now() + CHECK_INTERVAL)) {
            Ok(LeaderMessage::Prepare(proposal)) => {
                let ready = FollowerMessage::Ready(proposal.ballot);
                *prepared = Some(proposal);
                if let Err(error) = link.send(&ready, deadline) {
                    return Heard::Lost(error);
                }
            }
            Ok(LeaderMessage::Commit(ballot)) => {
                let committed = prepared.take_if(|proposal| proposal.ballot == ballot);
                let unknown = || Heard::Lost(SecureError::UnknownProtocol);
                return committed.map_or_else(unknown, Heard::Committed);
            }
            Ok(LeaderMessage::Decided(proposal)) => return Heard::Decided(proposal),
            Ok(LeaderMessage::Gone) => return Heard::Gone,
            Ok(LeaderMessage::TimedOut(missing)) => {
                // The leader has given its proposals up.
                *prepared = None;
                return Heard::TimedOut(missing);
            }
            Err(error) if !is_timeout(&error) => return Heard::Lost(error),
            Err(_) if ended => return Heard::Gone,
            Err(_) if Instant::now() >= deadline => return Heard::Late,
            Err(_) => {}
        }
    }
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
                Ok(mut link) => {
                    unreachable.reached();
                    match self.listen_to(leader, &mut link, prepared) {
                        Heard::Committed(proposal) => return committed(proposal, link),
                        Heard::Decided(proposal) => return Followed::Decided(proposal),
                        Heard::Gone => return Followed::Gone,
                        Heard::TimedOut(missing) => return Followed::TimedOut(missing),
                        Heard::Late => return Followed::TimedOut(vec![leader]),
                        Heard::Lost(_) => {}
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

    fn call_leader(&self, leader: usize) -> Result<DialedLink, SecureError> {
        let until = self.deadline.min(Instant::now() + ATTEMPT);
        let shared = &self.service.shared;
        let proof = (&shared.settings.secret, &self.binding(leader, FOLLOWER));
        DialedLink::dial(shared.peers[leader].listen, SILENCE_LIMIT, proof, until)
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

    /// Says hello, and does what the leader says.
    fn listen_to(
        &self,
        leader: usize,
        link: &mut DialedLink,
        prepared: &mut Option<Proposal>,
    ) -> Heard {
        let (own, patience) = (Box::new(self.own.clone()), self.patience());
        let hello = FollowerMessage::Hello { own, prepared: prepared.clone(), patience };
        match link.send(&hello, self.deadline) {
            Ok(()) => obey(link, prepared, self.deadline, || self.is_known_ended(leader)),
            Err(error) => Heard::Lost(error),
        }
    }
}

/// The connection by which `proposal` was committed becomes the control connection.
fn committed(proposal: Proposal, link: DialedLink) -> Followed {
    match ControlConnection::new(link.stream, link.channel) {
        Ok(control) => Followed::Committed(proposal, Box::new(control)),
        Err(_) => Followed::Decided(proposal),
    }
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
