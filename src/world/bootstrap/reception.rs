//! Connections of joining processes at rank 0. Each has proved the job's key, and stays here until
//! its request has arrived and the ranks take it.

use super::JoinError;
use super::protocol::{FILLER, JoinReply, JoinRequest, VERSION, differences, other_version};
use crate::world::service::message::MAX_JOIN_MESSAGE;
use crate::world::service::{ACCEPTOR, Acceptor, Authenticated, ControlConnection, SILENCE_LIMIT};
use maypole_transports::secure::{JobSecret, Purpose};
use maypole_transports::sockets::set_tcp_options;
use maypole_transports::watch::Watch;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// The timeout of an authenticated connection for sending its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The number of the first visitor in the watch.
const FIRST: u64 = 1;

#[derive(Debug)]
pub(super) struct Reception {
    pub(super) acceptor: Acceptor,
    /// This rank's own request. Those of others must be equal to it.
    pub(super) own: JoinRequest,
    /// By number in the watch, in the order of arrival.
    pub(super) visitors: BTreeMap<u64, Visitor>,
    next: u64,
}

/// A connection that has proved the job's key.
#[derive(Debug)]
pub(super) struct Visitor {
    pub(super) control: ControlConnection,
    /// The rank that the handshake named.
    pub(super) rank: usize,
    since: Instant,
    /// Its request, once that was accepted.
    pub(super) request: Option<JoinRequest>,
}

/// Why a connection was closed.
pub(super) enum TurnedAway {
    /// Its process differs from this rank in something that must be equal.
    Differs(JoinError),
    /// It has no place in the world.
    Refused(JoinError),
    /// The process itself closed it; the handshake named this rank.
    Gone(usize, &'static str),
}

impl Visitor {
    fn is_late(&self, now: Instant) -> bool {
        self.request.is_none() && self.since + REQUEST_TIMEOUT <= now
    }
}

impl Reception {
    pub(super) fn new(
        listener: TcpListener,
        secret: JobSecret,
        own: JoinRequest,
        watch: &Watch,
    ) -> Result<Self, JoinError> {
        let acceptor = Acceptor::new(listener, secret, 0, watch)?;
        let visitors = BTreeMap::new();
        Ok(Self { acceptor, own, visitors, next: FIRST })
    }

    /// How many visitors have sent a request that was accepted.
    pub(super) fn ready(&self) -> usize {
        self.visitors.values().filter(|visitor| visitor.request.is_some()).count()
    }

    /// The next deadline for [`expire`](Self::expire).
    pub(super) fn deadline(&self) -> Option<Instant> {
        let silent = self.visitors.values().filter(|visitor| visitor.request.is_none());
        let requests = silent.map(|visitor| visitor.since + REQUEST_TIMEOUT);
        requests.chain(self.acceptor.deadline()).min()
    }

    /// Closes the connections whose deadline has passed.
    pub(super) fn expire(&mut self, now: Instant, watch: &Watch) -> Vec<TurnedAway> {
        self.acceptor.expire(now, watch);
        let late = self.visitors.iter().filter(|(_, visitor)| visitor.is_late(now));
        let late: Vec<u64> = late.map(|(number, _)| *number).collect();
        let gone = |number| self.dismiss(number, "sent no join request", watch);
        late.into_iter().filter_map(gone).collect()
    }

    fn dismiss(&mut self, number: u64, why: &'static str, watch: &Watch) -> Option<TurnedAway> {
        let mut visitor = self.visitors.remove(&number)?;
        watch.remove(&visitor.control.stream);
        visitor.control.finish();
        Some(TurnedAway::Gone(visitor.rank, why))
    }

    /// Handles the event of `number`: a new connection, or bytes on an open one.
    pub(super) fn event(&mut self, number: u64, watch: &Watch) -> Option<TurnedAway> {
        let number = match number {
            ACCEPTOR.. => {
                let authenticated = self.acceptor.ready(number, watch)?;
                // Its request may have arrived together with the handshake.
                self.add(authenticated, watch)?
            }
            _ => number,
        };
        let visitor = self.visitors.get_mut(&number)?;
        let (messages, ended) = visitor.control.read(MAX_JOIN_MESSAGE);
        if let Some(message) = messages.iter().find(|it| it.first() != Some(&FILLER)) {
            if visitor.request.is_some() {
                return self.dismiss(number, "sent a second message while joining", watch);
            }
            let rank = visitor.rank;
            let examined = self.examine(rank, message);
            let visitor = self.visitors.get_mut(&number)?;
            match examined {
                Ok(request) => visitor.request = Some(request),
                Err((reply, why)) => {
                    visitor.control.push(&reply);
                    self.dismiss(number, "", watch);
                    return Some(why);
                }
            }
            self.drop_older(number, watch);
        }
        ended.and_then(|_| self.dismiss(number, "went away while the others were joining", watch))
    }

    fn add(&mut self, authenticated: Authenticated, watch: &Watch) -> Option<u64> {
        let Authenticated { stream, binding, channel } = authenticated;
        if binding.purpose != Purpose::Join {
            return None;
        }
        let number = self.next;
        set_tcp_options(&stream, SILENCE_LIMIT).ok()?;
        watch.add(&stream, number, false).ok()?;
        let control = ControlConnection::new(stream, channel).ok()?;
        self.next += 1;
        let (rank, since) = (binding.initiator as usize, Instant::now());
        self.visitors.insert(number, Visitor { control, rank, since, request: None });
        Some(number)
    }

    /// The request in `message` of a process that has named `rank`, if it may join. Else the reply
    /// to it, and the reason.
    fn examine(&self, rank: usize, message: &[u8]) -> Result<JoinRequest, (JoinReply, TurnedAway)> {
        let (version, request) = JoinRequest::decode(message).unwrap_or_default();
        let Some(request) = request else {
            // The version is all that every version can decode.
            let reply = JoinReply::OtherVersion(VERSION.to_owned());
            return Err((reply, TurnedAway::Differs(other_version(rank, VERSION, &version))));
        };
        if let Some(why) = differences(&self.own, rank, &request) {
            return Err((JoinReply::Refused(why.clone()), TurnedAway::Differs(why)));
        }
        let refused = |why: JoinError| (JoinReply::Refused(why.clone()), TurnedAway::Refused(why));
        self.check_place(rank, &request).map_err(refused).map(|()| request)
    }

    /// Whether there is a place for the process of `request`, which agrees with this rank: as
    /// `rank`, which exists and as which no other process has joined.
    fn check_place(&self, rank: usize, request: &JoinRequest) -> Result<(), JoinError> {
        let world = self.own.world;
        let joined = self.visitors.values().filter(|visitor| visitor.rank == rank);
        let mut others = joined.filter_map(|visitor| visitor.request.as_ref());
        match rank {
            0 => Err(JoinError::duplicate(0, &self.own.peer)),
            _ if rank >= world => Err(JoinError::out_of_range(rank, world)),
            _ => match others.find(|joined| joined.nonce != request.nonce) {
                Some(joined) => Err(JoinError::duplicate(rank, &joined.peer)),
                None => Ok(()),
            },
        }
    }

    /// Closes an earlier connection of the process of visitor `number`.
    fn drop_older(&mut self, number: u64, watch: &Watch) {
        let nonce = |visitor: &Visitor| Some(visitor.request.as_ref()?.nonce);
        let own = self.visitors.get(&number).and_then(nonce);
        let mut older = self.visitors.iter().filter(|(at, it)| **at < number && nonce(it) == own);
        if let Some(number) = older.next().map(|(number, _)| *number) {
            self.dismiss(number, "", watch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::JoinConfig;
    use super::super::addresses::settings;
    use super::*;
    use crate::world::service::DialedLink;
    use maypole_transports::secure::Binding;

    #[test]
    fn a_connection_that_asks_for_nothing_is_no_rank_and_is_closed_in_time() {
        let config = JoinConfig::new(0, 2, "127.0.0.1");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let secret = settings(&config, [0; 16]).secret;
        let own = JoinRequest::new(&config, address, &[]).unwrap();
        let watch = Watch::new().unwrap();
        let mut reception = Reception::new(listener, secret.clone(), own, &watch).unwrap();
        let (purpose, group, lane) = (Purpose::Join, [0; 2], 0);
        let binding = Binding { purpose, group, lane, initiator: 1, responder: 0 };
        let deadline = Instant::now() + Duration::from_secs(60);
        let proof = (&secret, &binding);
        let link = std::thread::scope(|threads| {
            let dial = || DialedLink::dial(address, SILENCE_LIMIT, proof, deadline).unwrap();
            let dialed = threads.spawn(dial);
            let mut numbers = Vec::new();
            while reception.visitors.is_empty() {
                assert!(Instant::now() < deadline, "nobody has come");
                watch.wait(&mut numbers, Duration::from_secs(1)).unwrap();
                for number in numbers.drain(..) {
                    reception.event(number, &watch);
                }
            }
            dialed.join().unwrap()
        });
        assert_eq!(reception.ready(), 0);
        assert!(reception.expire(Instant::now(), &watch).is_empty());
        let late = reception.expire(Instant::now() + REQUEST_TIMEOUT, &watch);
        assert!(matches!(late[..], [TurnedAway::Gone(1, "sent no join request")]));
        assert!(reception.visitors.is_empty());
        drop(link);
    }
}
