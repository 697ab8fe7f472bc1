//! Rank 0's side of joining: accept every other rank once, then send all of them the table of
//! peers.

use super::addresses::{PORT, listen_as_root, scope_of, secret};
use super::protocol::{Differences, JoinRefusal, JoinReply, JoinRequest, VERSION};
use super::{JoinConfig, JoinError};
use crate::world::VerbsAccess;
use crate::world::peer::Peer;
use crate::world::service::message::{MAX_JOIN_MESSAGE, encode};
use crate::world::service::{
    ACCEPTOR, Acceptor, Authenticated, ControlConnection, LateAnswer, Service, ServiceStart,
};
use maypole_transports::interfaces::with_scope;
use maypole_transports::random;
use maypole_transports::secure::{JobSecret, Purpose};
use maypole_transports::sockets::set_tcp_options;
use maypole_transports::watch::Watch;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an authenticated connection may take to send its join request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The most reasons of refused attempts that [`JoinError::Missing`] reports.
const MAX_NOTES: usize = 3;

/// Accepts all other ranks of the world.
pub(super) fn accept_ranks(config: &JoinConfig, deadline: Instant) -> Result<Service, JoinError> {
    let listener = listen_as_root(config, PORT)?;
    let session = random::bytes()?;
    let own_request = JoinRequest::new(config, listener.local_addr()?, random::bytes()?)?;
    let watch = Watch::new()?;
    let secret = secret(config, session);
    let acceptor = Acceptor::new(listener, secret.clone(), 0, &watch)?;
    let mut admission = RankAdmission {
        config,
        own_request,
        watch,
        acceptor,
        pending: BTreeMap::new(),
        next: 1,
        notes: Vec::new(),
    };
    admission.run(deadline)?;
    admission.welcome(secret)
}

struct RankAdmission<'a> {
    config: &'a JoinConfig,
    own_request: JoinRequest,
    watch: Watch,
    acceptor: Acceptor,
    /// All connections that have proved the job's key, by their number in `watch`.
    pending: BTreeMap<u64, PendingRank>,
    /// The number of the next connection in `watch`.
    next: u64,
    /// Why connections were refused, one sentence each.
    notes: Vec<String>,
}

/// A connection that has proved the job's key.
struct PendingRank {
    control: ControlConnection,
    rank: usize,
    since: Instant,
    /// The rank's join request, once it has come and was accepted.
    accepted: Option<JoinRequest>,
}

/// Why a rank may not join.
enum Rejection {
    /// It runs another version, and may not understand more than that.
    Version(Differences),
    /// It differs from rank 0 in something that must be equal. The whole world fails.
    Fatal(Differences),
    /// It alone is refused; the others continue to join.
    ThisRank(JoinRefusal),
}

impl RankAdmission<'_> {
    fn run(&mut self, deadline: Instant) -> Result<(), JoinError> {
        let mut numbers = Vec::new();
        while self.joined() + 1 < self.config.world {
            let now = Instant::now();
            if now >= deadline {
                return Err(self.give_up());
            }
            self.expire(now);
            let request_deadlines = self
                .pending
                .values()
                .filter(|pending| pending.accepted.is_none())
                .map(|pending| pending.since + REQUEST_TIMEOUT);
            let until =
                request_deadlines.chain(self.acceptor.deadline()).fold(deadline, Instant::min);
            self.watch.wait(&mut numbers, until.saturating_duration_since(now))?;
            for number in numbers.drain(..) {
                if number >= ACCEPTOR {
                    if let Some(authenticated) = self.acceptor.ready(number, &self.watch) {
                        self.add(authenticated)?;
                    }
                } else {
                    self.read(number)?;
                }
            }
        }
        Ok(())
    }

    fn joined(&self) -> usize {
        self.pending.values().filter(|pending| pending.accepted.is_some()).count()
    }

    fn expire(&mut self, now: Instant) {
        self.acceptor.expire(now, &self.watch);
        let is_late = |pending: &PendingRank| {
            pending.accepted.is_none() && pending.since + REQUEST_TIMEOUT <= now
        };
        let late: Vec<u64> = self
            .pending
            .iter()
            .filter(|(_, pending)| is_late(pending))
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            self.dismiss(number, "sent no join request");
        }
    }

    /// Takes an authenticated connection whose purpose is to join.
    fn add(&mut self, authenticated: Authenticated) -> Result<(), JoinError> {
        let Authenticated { stream, binding, channel } = authenticated;
        if binding.purpose != Purpose::Join || binding.responder != 0 {
            return Ok(());
        }
        let number = self.next;
        self.next += 1;
        let tuned = set_tcp_options(&stream, crate::world::service::SILENCE_LIMIT);
        let watched = tuned.and_then(|()| self.watch.add(&stream, number, false));
        let Ok(control) = watched.and_then(|()| ControlConnection::new(stream, channel)) else {
            return Ok(());
        };
        let pending = PendingRank {
            control,
            rank: binding.initiator as usize,
            since: Instant::now(),
            accepted: None,
        };
        self.pending.insert(number, pending);
        self.read(number)
    }

    /// Reads what a connection has sent: its join request, or its end.
    fn read(&mut self, number: u64) -> Result<(), JoinError> {
        let Some(pending) = self.pending.get_mut(&number) else { return Ok(()) };
        let (messages, ended) = pending.control.read(MAX_JOIN_MESSAGE);
        let rank = pending.rank;
        match (messages.first(), &pending.accepted) {
            (Some(message), None) => {
                if let Err(rejection) = self.examine(number, rank, message) {
                    return self.refuse(number, rejection);
                }
            }
            (Some(_), Some(_)) => self.dismiss(number, "sent a second message while joining"),
            (None, _) => {}
        }
        if ended.is_some() {
            self.dismiss(number, "went away while the others were joining");
        }
        Ok(())
    }

    /// Accepts the join request `message` of `rank`, or says why it cannot be accepted.
    fn examine(&mut self, number: u64, rank: usize, message: &[u8]) -> Result<(), Rejection> {
        let world = self.config.world;
        let (version, request) = JoinRequest::decode(message).unwrap_or_default();
        let Some(request) = request else {
            return Err(Rejection::Version(Differences::of_version(rank, VERSION, &version)));
        };
        if let Some(differences) = Differences::between(&self.own_request, rank, &request) {
            return Err(Rejection::Fatal(differences));
        }
        if rank == 0 {
            return Err(Rejection::ThisRank(duplicate(0, &self.own_request.peer)));
        }
        if rank >= world {
            return Err(Rejection::ThisRank(JoinRefusal::OutOfRange { rank, world }));
        }
        let same_rank = |pending: &PendingRank| pending.rank == rank;
        let holder = self.pending.iter().find_map(|(number, pending)| {
            let accepted = pending.accepted.as_ref().filter(|_| same_rank(pending))?;
            Some((*number, accepted))
        });
        if let Some((old, accepted)) = holder {
            if accepted.nonce != request.nonce {
                return Err(Rejection::ThisRank(duplicate(rank, &accepted.peer)));
            }
            self.dismiss(old, "connected again");
        }
        let pending = self.pending.get_mut(&number).expect("its message was just read");
        pending.accepted = Some(request);
        Ok(())
    }

    /// Refuses one rank. A difference between two ranks fails both of them, and so the world.
    fn refuse(&mut self, number: u64, rejection: Rejection) -> Result<(), JoinError> {
        let Some(mut pending) = self.pending.remove(&number) else { return Ok(()) };
        self.watch.remove(&pending.control.stream);
        let (reply, differences) = match rejection {
            Rejection::Version(differences) => {
                (JoinReply::OtherVersion(VERSION.to_owned()), Some(differences))
            }
            Rejection::Fatal(differences) => {
                (JoinReply::Refused(JoinRefusal::Differs(differences.clone())), Some(differences))
            }
            Rejection::ThisRank(refusal) => {
                self.notes.push(JoinError::refused(refusal.clone(), Duration::ZERO).to_string());
                (JoinReply::Refused(refusal), None)
            }
        };
        pending.control.push(&reply);
        pending.control.finish();
        let Some(differences) = differences else { return Ok(()) };
        self.refuse_all(&JoinRefusal::Differs(differences.clone()));
        Err(JoinError::Differs(differences))
    }

    /// Drops a connection without an answer.
    fn dismiss(&mut self, number: u64, why: &str) {
        if let Some(pending) = self.pending.remove(&number) {
            self.watch.remove(&pending.control.stream);
            self.notes.push(format!("rank {} {why}", pending.rank));
        }
    }

    fn refuse_all(&mut self, refusal: &JoinRefusal) {
        for pending in self.pending.values_mut() {
            pending.control.push(&JoinReply::Refused(refusal.clone()));
            pending.control.finish();
        }
    }

    fn give_up(&mut self) -> JoinError {
        let is_here = |rank: &usize| {
            let joined =
                |pending: &PendingRank| pending.rank == *rank && pending.accepted.is_some();
            self.pending.values().any(joined)
        };
        let ranks: Vec<usize> = (1..self.config.world).filter(|rank| !is_here(rank)).collect();
        let mut notes = std::mem::take(&mut self.notes);
        notes.drain(..notes.len().saturating_sub(MAX_NOTES));
        notes.extend(self.acceptor.complaint());
        let refusal = JoinRefusal::Missing { ranks, note: notes.join("; ") };
        self.refuse_all(&refusal);
        JoinError::refused(refusal, self.config.join_timeout)
    }

    /// Sends the table of peers to all ranks, and starts the service of rank 0.
    fn welcome(self, secret: JobSecret) -> Result<Service, JoinError> {
        let mut joined = Vec::new();
        let scope = scope_of(self.own_request.peer.listen);
        // A connection that proved the key but sent no request in time is dropped.
        for pending in self.pending.into_values() {
            self.watch.remove(&pending.control.stream);
            if let Some(mut request) = pending.accepted {
                // Each host numbers its interfaces by itself.
                request.peer.listen = with_scope(request.peer.listen, scope);
                joined.push((pending.rank, request.peer, pending.control));
            }
        }
        joined.sort_by_key(|(rank, ..)| *rank);
        let mut peers = vec![self.own_request.peer];
        peers.extend(joined.iter().map(|(_, peer, _)| peer.clone()));
        let late_answer = late_answer(peers.clone());
        let welcome = JoinReply::Welcome { session: secret.session, peers: peers.clone() };
        let mut controls = BTreeMap::new();
        for (rank, _, mut control) in joined {
            control.push(&welcome);
            controls.insert(rank, control);
        }
        Ok(Service::start(ServiceStart {
            rank: 0,
            secret,
            peers,
            timeout: self.config.timeout,
            encrypt: self.config.encrypt,
            data_ports: self.config.data_ports.clone(),
            verbs: Arc::new(VerbsAccess::new(self.config.verbs.clone())),
            watch: self.watch,
            acceptor: self.acceptor,
            controls,
            late_answer: Some(late_answer),
        })?)
    }
}

/// The answer to a process that wants to join when all ranks have joined: its rank is taken, or
/// does not exist.
fn late_answer(peers: Vec<Peer>) -> LateAnswer {
    LateAnswer(Box::new(move |rank| {
        let refusal = match peers.get(rank) {
            Some(holder) => duplicate(rank, holder),
            None => JoinRefusal::OutOfRange { rank, world: peers.len() },
        };
        encode(&JoinReply::Refused(refusal))
    }))
}

fn duplicate(rank: usize, holder: &Peer) -> JoinRefusal {
    let holder = format!("process {} at {}", holder.pid, holder.listen.ip());
    JoinRefusal::Duplicate { rank, holder }
}
