//! Data connections between two ranks: the lower one connects, the higher one accepts.

use super::{GroupId, Service, ServiceError, Timed};
use maypole_transports::secure::{Binding, Purpose, SecureError, initiate};
use maypole_transports::sockets::tune;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// What one attempt may take: a peer's service thread answers at once unless its machine is very busy.
const ATTEMPT: Duration = Duration::from_secs(5);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(50);

impl Service {
    /// A data connection with rank `peer` (of the world). Both ends call it, with equal `group` and `lane`, once. Both
    /// have proved the job's key on it; what follows is plain bytes. Non-blocking, sends small writes at once, and is
    /// given up when the other host is silent for [`JoinConfig::timeout`](crate::bootstrap::JoinConfig).
    ///
    /// The lower rank need not wait for the higher one to call.
    ///
    /// # Errors
    /// If the deadline passes, the peer left, or the world fails meanwhile or has failed.
    pub fn connect(
        &self,
        group: GroupId,
        peer: usize,
        lane: u32,
        deadline: Instant,
    ) -> Result<TcpStream, ServiceError> {
        self.check_process()?;
        let rank = self.rank();
        if peer >= self.world() || peer == rank {
            return Err(ServiceError::Invalid(format!("rank {rank} cannot connect to rank {peer}")));
        }
        let stream = if rank < peer {
            self.reach(group, peer, lane, deadline)?
        } else {
            self.await_peer(group, peer, lane, deadline)?
        };
        let failed = |error: std::io::Error| ServiceError::Failed { what: "a data connection", why: error.to_string() };
        stream.set_nonblocking(true).map_err(failed)?;
        Ok(stream)
    }

    fn await_peer(&self, group: GroupId, peer: usize, lane: u32, deadline: Instant) -> Result<TcpStream, ServiceError> {
        let arrived = self.shared.wait_or_fail(deadline, |state| match state.arrived.remove(&(group, peer, lane)) {
            None if state.left.contains_key(&peer) => Some(None),
            stream => stream.map(Some),
        });
        let late = || ServiceError::TimedOut { what: "a data connection", missing: vec![peer] };
        arrived.ok_or_else(late)??.ok_or_else(|| self.why_gone(peer))
    }

    fn reach(&self, group: GroupId, peer: usize, lane: u32, deadline: Instant) -> Result<TcpStream, ServiceError> {
        let (initiator, responder) = (self.rank() as u32, peer as u32);
        let binding = Binding { purpose: Purpose::Data, group: group.words(), lane, initiator, responder };
        loop {
            let until = deadline.min(Instant::now() + ATTEMPT);
            match self.attempt(peer, &binding, until) {
                Ok(stream) => return Ok(stream),
                Err(error) => tracing::debug!(peer, %error, "a data connection is tried again"),
            }
            let again = deadline.min(Instant::now() + BETWEEN_ATTEMPTS);
            let gone = self.shared.wait_or_fail(again, |state| state.left.contains_key(&peer).then_some(()));
            match gone {
                Some(Ok(())) => return Err(self.why_gone(peer)),
                Some(Err(error)) => return Err(error),
                None if again == deadline => {
                    return Err(ServiceError::TimedOut { what: "a data connection", missing: vec![peer] });
                }
                None => {}
            }
        }
    }

    fn attempt(&self, peer: usize, binding: &Binding, until: Instant) -> Result<TcpStream, SecureError> {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let mut stream = TcpStream::connect_timeout(&self.shared.peers[peer].listen, left)?;
        tune(&stream, self.shared.timeout)?;
        initiate(&mut Timed { socket: &mut stream, deadline: until }, &self.shared.secret, binding)?;
        Ok(stream)
    }
}
