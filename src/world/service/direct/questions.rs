//! Status requests from one rank to another, on a connection of their own. The service thread of
//! the other rank replies, even if its calling threads are busy. So a rank identifies the straggler
//! also if rank 0 is stopped, and never blames a responsive rank.

use crate::world::calls::RankStatus;
use crate::world::service::connection::{DialedLink, is_timeout};
use crate::world::service::message::MAX_MESSAGE;
use crate::world::service::state::ServiceContext;
use crate::world::service::{AskError, Cause, Diagnosis, GroupId, Service, binding};
use maypole_transports::secure::{Purpose, SecureError};
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

/// The timeout of one rank's reply.
const ANSWER_TIME: Duration = Duration::from_millis(500);
/// The timeout of following a chain of waits.
const CHAIN_TIME: Duration = Duration::from_secs(1);
/// The backoff before the next request to a busy rank.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(10);

/// A request of one rank to another.
#[derive(Debug, Deserialize, Serialize)]
pub(in crate::world::service) enum PeerQuestion {
    /// Requests the status of the rank, for which the sender waits in this group.
    Status(GroupId),
    /// The least cause that the sender has received, which rank 0 may not have. The reply is
    /// `None`.
    Failed(Cause),
}

impl Service {
    /// Diagnoses why `peer` is late in `group`: follows the chain of waits to a rank that does not
    /// reply, is outside the library, or is busy, or to a cycle. Sends requests only to the ranks
    /// on the chain. Takes at most a second.
    pub fn ask_where(&self, group: GroupId, peer: usize) -> Diagnosis {
        let deadline = Instant::now() + CHAIN_TIME;
        let ask = |rank, group| self.ask_status(group, rank, deadline);
        Diagnosis::follow(group, peer, ask)
    }

    fn ask_status(
        &self,
        group: GroupId,
        rank: usize,
        deadline: Instant,
    ) -> Result<RankStatus, AskError> {
        if rank == self.rank() {
            return Ok(self.shared.status(Some(group)));
        }
        let status = self.shared.ask_peer(rank, &PeerQuestion::Status(group), deadline)?;
        status.map(|status| *status).ok_or(AskError::Silent)
    }
}

impl ServiceContext {
    /// Sends a request to rank `peer` on a connection of its own. Returns its status if `question`
    /// requests it, by `deadline`, and after half a second at the latest.
    pub(in crate::world::service) fn ask_peer(
        &self,
        peer: usize,
        question: &PeerQuestion,
        deadline: Instant,
    ) -> Result<Option<Box<RankStatus>>, AskError> {
        let begun = Instant::now();
        let until = deadline.min(begun + ANSWER_TIME);
        let was_given_time = until.saturating_duration_since(begun) >= ANSWER_TIME / 2;
        loop {
            match self.ask_once(peer, question, until) {
                Ok(answer) => return Ok(answer),
                // The rank's queue of callers is full.
                Err(SecureError::Refused) if Instant::now() + BETWEEN_ATTEMPTS < until => {
                    std::thread::sleep(BETWEEN_ATTEMPTS);
                }
                Err(error @ SecureError::Io(_)) if !is_timeout(&error) => {
                    return Err(AskError::Unreachable(error.to_string()));
                }
                Err(_) if was_given_time => return Err(AskError::Silent),
                Err(_) => return Err(AskError::NoTime),
            }
        }
    }

    fn ask_once(
        &self,
        peer: usize,
        question: &PeerQuestion,
        until: Instant,
    ) -> Result<Option<Box<RankStatus>>, SecureError> {
        let Some(there) = self.peers.get(peer) else {
            return Err(io::Error::from(ErrorKind::NotFound).into());
        };
        let binding = binding(Purpose::Question, (GroupId::WORLD, 0), [self.rank, peer]);
        let secret = &self.settings.secret;
        let silence = self.settings.timeout;
        let mut link = DialedLink::dial(there.listen, silence, (secret, &binding), until)?;
        link.send(question, until)?;
        link.receive(MAX_MESSAGE, until)
    }
}
