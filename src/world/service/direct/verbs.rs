//! Data connections by verbs. The two ends exchange the addresses of their queue pairs and rings
//! only over the encrypted channel of a handshake.
//!
//! ```text
//! connecting rank              the other rank's service thread
//!      endpoint ------------------->
//!               <------------------- endpoint, or why there is none
//!      connects                      has connected
//!         ready ------------------->
//!               <------------------- ready
//! ```
//!
//! The accepting end connects before it replies, so it can receive all data after `ready`. It sends
//! nothing before it has read `ready`, because the connecting end could not receive it yet.

use super::data_link::{DataConnection, DataPath, failed};
use crate::world::service::message::MAX_JOIN_MESSAGE;
use crate::world::service::{DialedLink, GroupId, Service, ServiceError};
use crate::world::verbs::{PortChoice, VerbsAccess, VerbsPortOffer};
use maypole_transports::Stream;
use maypole_transports::ib::{ConnectedVerbs, UnconnectedVerbs, VerbsEndpoint, VerbsStream};
use maypole_transports::limits::{is_out_of_descriptors, with_limit};
use maypole_transports::secure::{Channel, SecureError};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// The bit of a lane's number that requests a connection by verbs.
pub(in crate::world::service) const VERBS_LANE: u32 = 1 << 31;

/// Timeout of a trial connection to a peer.
const TRIAL: Duration = Duration::from_secs(5);
/// The interval of polling for the peer's receipt of the sent bytes.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// A group, the other rank (of the world), and the number of their connection.
pub(in crate::world::service) type ConnectionKey = (GroupId, usize, u32);

/// A message between the two ends of a connection by verbs.
#[derive(Debug, Deserialize, Serialize)]
pub(in crate::world::service) enum VerbsMessage {
    /// Where the sender's queue pair and ring are: the bytes of a [`VerbsEndpoint`].
    Endpoint(Vec<u8>),
    /// The sender cannot connect, for this reason.
    Refused(String),
    /// The sender has connected.
    Ready,
}

/// Why an attempt to connect has failed.
pub(super) enum AttemptError {
    /// The next attempt may succeed.
    Passing(SecureError),
    /// No attempt will succeed.
    Lasting(ServiceError),
}

impl From<SecureError> for AttemptError {
    fn from(error: SecureError) -> Self {
        match error {
            SecureError::Io(error) if is_out_of_descriptors(&error) => {
                Self::Lasting(failed(with_limit(error)))
            }
            SecureError::NoDescriptor => Self::Lasting(failed(error)),
            error => Self::Passing(error),
        }
    }
}

impl From<std::io::Error> for AttemptError {
    fn from(error: std::io::Error) -> Self {
        SecureError::from(error).into()
    }
}

fn refused(why: impl ToString) -> AttemptError {
    AttemptError::Lasting(ServiceError::failed("a connection by verbs", why))
}

impl Service {
    /// Opens an RDMA port of this process, if it is not open, and checks that it can make
    /// `connections` connections. Peers may connect to this port by verbs from then on.
    ///
    /// # Errors
    /// A missing resource of this machine, and its remedy.
    pub(crate) fn open_verbs(
        &self,
        choice: PortChoice,
        connections: usize,
    ) -> Result<VerbsPortOffer, String> {
        let (hosts, me) = (self.hosts(), self.rank());
        let index = hosts[..me].iter().filter(|host| **host == hosts[me]).count();
        let (offer, adapter) = self.shared.settings.verbs.open(choice, index)?;
        let bytes = connections * UnconnectedVerbs::REGISTERED;
        adapter.check_memory(bytes).map_err(|error| error.to_string())?;
        Ok(offer)
    }

    /// Connects by verbs to rank `peer` of the world, which finds the connection among its
    /// [`callers`](Self::callers), and waits until the peer's port has received a number. An active
    /// port may be on another network, or a switch may drop its packets.
    ///
    /// # Errors
    /// The reason why `peer` is unreachable, within 5 s.
    pub fn try_verbs(&self, group: GroupId, peer: usize, lane: u32) -> Result<(), String> {
        let deadline = Instant::now() + TRIAL;
        let key = (group, peer, lane);
        let valid = self.check_peer(peer);
        let reached = valid.and_then(|()| self.reach(DataPath::Verbs, key, deadline));
        let DataConnection::Verbs(mut stream, _) = reached.map_err(|error| error.to_string())?
        else {
            return Err("the connection is none by verbs".to_owned());
        };
        stream.finish();
        // Dropping the stream must not wait a second time for a silent peer.
        stream.abandon();
        while !stream.is_delivered().map_err(|fault| fault.to_string())? {
            if Instant::now() >= deadline {
                return Err(format!("its port takes nothing within {} s", TRIAL.as_secs()));
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
        Ok(())
    }
}

/// Connects by verbs to the rank at the other end of `link`.
pub(super) fn meet(
    access: &VerbsAccess,
    mut link: DialedLink,
    (until, encrypts): (Instant, bool),
    peer: usize,
) -> Result<DataConnection, AttemptError> {
    let adapter = access.opened().map_err(refused)?;
    let end = UnconnectedVerbs::new(&adapter).map_err(refused)?;
    let mut ask = |message: VerbsMessage| -> Result<VerbsMessage, AttemptError> {
        link.send(&message, until)?;
        Ok(link.receive(MAX_JOIN_MESSAGE, until)?)
    };
    let theirs = match ask(VerbsMessage::Endpoint(end.endpoint().to_bytes()))? {
        VerbsMessage::Endpoint(theirs) => theirs,
        VerbsMessage::Refused(why) => return Err(refused(format!("rank {peer}: {why}"))),
        VerbsMessage::Ready => return Err(SecureError::UnknownProtocol.into()),
    };
    let theirs = VerbsEndpoint::from_bytes(&theirs).map_err(refused)?;
    let connected = end.connect(&theirs).map_err(refused)?;
    match ask(VerbsMessage::Ready)? {
        VerbsMessage::Ready => {
            Ok(DataConnection::Verbs(Box::new(connected.open()), encrypts.then_some(link.channel)))
        }
        _ => Err(SecureError::UnknownProtocol.into()),
    }
}

/// The accepting end of a connection by verbs that is being made.
#[derive(Debug)]
pub(in crate::world::service) struct VerbsMeeting {
    key: ConnectionKey,
    encrypts: bool,
    connected: Option<ConnectedVerbs>,
    /// The connection, once both ends have connected.
    pub(super) stream: Option<Box<VerbsStream>>,
}

impl VerbsMeeting {
    /// Begins with a connection whose other end has proved the job's key.
    pub(in crate::world::service) fn new(key: ConnectionKey, encrypts: bool) -> Self {
        Self { key, encrypts, connected: None, stream: None }
    }

    /// Handles a message of the connecting end, and returns the reply.
    pub(super) fn hear(&mut self, message: VerbsMessage, access: &VerbsAccess) -> VerbsMessage {
        match (message, self.connected.take()) {
            (VerbsMessage::Endpoint(theirs), None) => match connect(&theirs, access) {
                Ok((connected, ours)) => {
                    self.connected = Some(connected);
                    VerbsMessage::Endpoint(ours)
                }
                Err(why) => VerbsMessage::Refused(why),
            },
            (VerbsMessage::Ready, Some(connected)) => {
                self.stream = Some(Box::new(connected.open()));
                VerbsMessage::Ready
            }
            _ => VerbsMessage::Refused("this message is out of order".to_owned()),
        }
    }

    /// The connection that was made, whose handshake gave `channel`.
    pub(super) fn end(self, channel: Channel) -> Option<(ConnectionKey, DataConnection)> {
        let channel = self.encrypts.then_some(channel);
        Some((self.key, DataConnection::Verbs(self.stream?, channel)))
    }
}

/// Connects to the end whose endpoint has these bytes. Returns it, and the bytes of this rank's own
/// endpoint.
fn connect(theirs: &[u8], access: &VerbsAccess) -> Result<(ConnectedVerbs, Vec<u8>), String> {
    let adapter = access.opened()?;
    let make = || {
        let theirs = VerbsEndpoint::from_bytes(theirs)?;
        let end = UnconnectedVerbs::new(&adapter)?;
        let ours = end.endpoint().to_bytes();
        Ok((end.connect(&theirs)?, ours))
    };
    make().map_err(|error: maypole_transports::ib::VerbsError| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meeting() -> VerbsMeeting {
        VerbsMeeting { key: (GroupId::WORLD, 1, 0), encrypts: false, connected: None, stream: None }
    }

    fn why(answer: VerbsMessage) -> String {
        match answer {
            VerbsMessage::Refused(why) => why,
            other => panic!("{other:?}"),
        }
    }

    /// The connecting rank receives the reason before its deadline.
    #[test]
    fn a_rank_that_uses_no_verbs_says_so() {
        let access = VerbsAccess::default();
        let mut meeting = meeting();
        let answer = meeting.hear(VerbsMessage::Endpoint(vec![1; 40]), &access);
        assert!(meeting.stream.is_none());
        assert_eq!(why(answer), "this rank has not been asked to use verbs");
    }

    #[test]
    fn messages_out_of_order_make_no_connection() {
        for message in [VerbsMessage::Ready, VerbsMessage::Refused(String::new())] {
            let mut meeting = meeting();
            let answer = meeting.hear(message, &VerbsAccess::default());
            assert!(meeting.stream.is_none());
            assert!(why(answer).contains("out of order"));
        }
    }
}
