//! Data connections between two ranks. Either both ranks ask for one (the lower rank connects, the
//! higher one accepts), or one rank dials and the other finds it among its callers.

use super::{GroupId, Service, ServiceError};
use maypole_transports::deadline::DeadlineSocket;
use maypole_transports::secure::{Binding, Purpose, SecureError, initiate};
use maypole_transports::sockets::set_tcp_options;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Time limit of one attempt. A peer's service thread answers at once unless its machine is very
/// busy.
const ATTEMPT: Duration = Duration::from_secs(5);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(50);

impl Service {
    /// A data connection with rank `peer` (of the world). Both ends call it, with equal `group`
    /// and `lane`, once. Both have proved the job's key on it; what follows is not encrypted. The
    /// socket is non-blocking, sends small writes at once, and fails when the other host is silent
    /// for [`JoinConfig::timeout`](crate::world::bootstrap::JoinConfig).
    ///
    /// The lower rank does not wait until the higher rank calls.
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
        self.check_peer(peer)?;
        let stream = if self.rank() < peer {
            self.reach(group, peer, lane, deadline)?
        } else {
            self.await_peer(group, peer, lane, deadline)?
        };
        without_blocking(stream)
    }

    /// A data connection that this rank alone asks for; rank `peer` finds it among its
    /// [`callers`](Self::callers). Otherwise as [`connect`](Self::connect), which must not be used
    /// for the same lane.
    ///
    /// # Errors
    /// If the deadline passes, the peer left, or the world fails meanwhile or has failed.
    pub fn dial(
        &self,
        group: GroupId,
        peer: usize,
        lane: u32,
        deadline: Instant,
    ) -> Result<TcpStream, ServiceError> {
        self.check_peer(peer)?;
        without_blocking(self.reach(group, peer, lane, deadline)?)
    }

    /// The connections that peers [dialled](Self::dial) to this rank since the last call, by rank.
    pub fn callers(&self, group: GroupId, lane: u32) -> Vec<(usize, TcpStream)> {
        let mut state = self.shared.state();
        let called = |(of, _, on): &(GroupId, usize, u32)| (*of, *on) == (group, lane);
        let arrived = state.arrived.extract_if(|key, _| called(key));
        let mut callers: Vec<_> = arrived.map(|((_, peer, _), stream)| (peer, stream)).collect();
        callers.sort_unstable_by_key(|(peer, _)| *peer);
        callers.retain(|(_, stream)| stream.set_nonblocking(true).is_ok());
        callers
    }

    fn check_peer(&self, peer: usize) -> Result<(), ServiceError> {
        self.check_process()?;
        let rank = self.rank();
        if peer < self.world() && peer != rank {
            return Ok(());
        }
        Err(ServiceError::Invalid(format!("rank {rank} cannot connect to rank {peer}")))
    }

    fn await_peer(
        &self,
        group: GroupId,
        peer: usize,
        lane: u32,
        deadline: Instant,
    ) -> Result<TcpStream, ServiceError> {
        let arrived = self.shared.wait_or_fail(deadline, |state| {
            match state.arrived.remove(&(group, peer, lane)) {
                None if state.left.contains_key(&peer) => Some(None),
                stream => stream.map(Some),
            }
        });
        let late = || ServiceError::TimedOut { what: "a data connection", missing: vec![peer] };
        arrived.ok_or_else(late)??.ok_or_else(|| self.gone(peer))
    }

    fn reach(
        &self,
        group: GroupId,
        peer: usize,
        lane: u32,
        deadline: Instant,
    ) -> Result<TcpStream, ServiceError> {
        let binding = Binding {
            purpose: Purpose::Data,
            group: group.words(),
            lane,
            initiator: self.rank() as u32,
            responder: peer as u32,
        };
        loop {
            let until = deadline.min(Instant::now() + ATTEMPT);
            match self.attempt(peer, &binding, until) {
                Ok(stream) => return Ok(stream),
                Err(error) => {
                    tracing::debug!(peer, %error, "a data connection failed and is tried again")
                }
            }
            let again = deadline.min(Instant::now() + BETWEEN_ATTEMPTS);
            let gone = self
                .shared
                .wait_or_fail(again, |state| state.left.contains_key(&peer).then_some(()));
            match gone {
                Some(Ok(())) => return Err(self.gone(peer)),
                Some(Err(error)) => return Err(error),
                None if again == deadline => {
                    return Err(ServiceError::TimedOut {
                        what: "a data connection",
                        missing: vec![peer],
                    });
                }
                None => {}
            }
        }
    }

    fn attempt(
        &self,
        peer: usize,
        binding: &Binding,
        until: Instant,
    ) -> Result<TcpStream, SecureError> {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let mut stream = TcpStream::connect_timeout(&self.shared.peers[peer].listen, left)?;
        set_tcp_options(&stream, self.shared.timeout)?;
        initiate(
            &mut DeadlineSocket { socket: &mut stream, deadline: until },
            &self.shared.secret,
            binding,
        )?;
        Ok(stream)
    }
}

fn without_blocking(stream: TcpStream) -> Result<TcpStream, ServiceError> {
    let failed = |error: std::io::Error| ServiceError::Failed {
        what: "a data connection",
        why: error.to_string(),
    };
    stream.set_nonblocking(true).map_err(failed)?;
    Ok(stream)
}
