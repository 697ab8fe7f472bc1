//! Rank 0's end of joining: wait until everybody is here, and nobody twice.

use super::addresses::{listen_as_root, secret};
use super::protocol::{Differences, JoinRefusal, JoinReply, JoinRequest, VERSION};
use super::{JoinConfig, JoinError};
use crate::world::service::message::WHILE_JOINING;
use crate::world::service::{
    ACCEPTOR, Acceptor, Authenticated, ControlConnection, Service, ServiceStart,
};
use maypole_transports::secure::{JobSecret, Purpose};
use maypole_transports::sockets::{random, set_tcp_options};
use maypole_transports::watch::Watch;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What a rank that has proved its key may take to say who it is.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn gather(config: &JoinConfig, deadline: Instant) -> Result<Service, JoinError> {
    let listener = listen_as_root(config)?;
    let session = random()?;
    let mine = JoinRequest::new(config, listener.local_addr()?, random()?)?;
    let watch = Watch::new()?;
    let secret = secret(config, session);
    let door = Acceptor::new(listener, secret.clone(), &watch)?;
    let mut gathering = RankAdmission {
        config,
        mine,
        watch,
        door,
        comers: BTreeMap::new(),
        next: 1,
        notes: Vec::new(),
    };
    gathering.run(deadline)?;
    gathering.welcome(secret)
}

struct RankAdmission<'a> {
    config: &'a JoinConfig,
    mine: JoinRequest,
    watch: Watch,
    door: Acceptor,
    /// Everybody who has proved the key, under a number of the watch.
    comers: BTreeMap<u64, PendingRank>,
    next: u64,
    /// Who came in vain.
    notes: Vec<String>,
}

struct PendingRank {
    control: ControlConnection,
    rank: usize,
    since: Instant,
    /// Once it has said who it is and was found to fit.
    hello: Option<JoinRequest>,
}

/// Why a comer may not join.
enum Rejection {
    /// It runs another version, and may understand no more than that.
    Version(Differences),
    /// It differs in something that must be equal.
    Fatal(Differences),
    /// It is the comer's own mistake; the others need not mind.
    PendingRank(JoinRefusal),
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
            let slow = self
                .comers
                .values()
                .filter(|comer| comer.hello.is_none())
                .map(|comer| comer.since + PATIENCE);
            let until = slow.chain(self.door.deadline()).fold(deadline, Instant::min);
            self.watch.wait(&mut numbers, until.saturating_duration_since(now))?;
            for number in numbers.drain(..) {
                if number >= ACCEPTOR {
                    if let Some(admitted) = self.door.ready(number, &self.watch) {
                        self.admit(admitted)?;
                    }
                } else {
                    self.listen(number)?;
                }
            }
        }
        Ok(())
    }

    fn joined(&self) -> usize {
        self.comers.values().filter(|comer| comer.hello.is_some()).count()
    }

    fn expire(&mut self, now: Instant) {
        self.door.expire(now, &self.watch);
        let late = |comer: &PendingRank| comer.hello.is_none() && comer.since + PATIENCE <= now;
        let late: Vec<u64> = self
            .comers
            .iter()
            .filter(|(_, comer)| late(comer))
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            self.dismiss(number, "said nothing");
        }
    }

    fn admit(&mut self, admitted: Authenticated) -> Result<(), JoinError> {
        if admitted.binding.purpose != Purpose::Join || admitted.binding.responder != 0 {
            return Ok(());
        }
        let (number, rank) = (self.next, admitted.binding.initiator as usize);
        self.next += 1;
        let tuned = set_tcp_options(&admitted.stream, crate::world::service::SILENCE);
        let watched = tuned.and_then(|()| self.watch.add(&admitted.stream, number, false));
        let Ok(control) =
            watched.and_then(|()| ControlConnection::new(admitted.stream, admitted.channel))
        else {
            return Ok(());
        };
        self.comers
            .insert(number, PendingRank { control, rank, since: Instant::now(), hello: None });
        self.listen(number)
    }

    /// Hears what a comer says: who it is, or that it went away.
    fn listen(&mut self, number: u64) -> Result<(), JoinError> {
        let Some(comer) = self.comers.get_mut(&number) else { return Ok(()) };
        let (messages, ended) = comer.control.read(WHILE_JOINING);
        let rank = comer.rank;
        match (messages.first(), &comer.hello) {
            (Some(message), None) => {
                if let Err(objection) = self.judge(number, rank, message) {
                    return self.refuse(number, objection);
                }
            }
            (Some(_), Some(_)) => self.dismiss(number, "spoke out of turn"),
            (None, _) => {}
        }
        if ended.is_some() {
            self.dismiss(number, "went away while the others were joining");
        }
        Ok(())
    }

    fn judge(&mut self, number: u64, rank: usize, message: &[u8]) -> Result<(), Rejection> {
        let world = self.config.world;
        let (version, hello) = JoinRequest::decode(message).unwrap_or_default();
        let Some(hello) = hello else {
            return Err(Rejection::Version(Differences::of_version(rank, VERSION, &version)));
        };
        if let Some(differences) = Differences::between(&self.mine, rank, &hello) {
            return Err(Rejection::Fatal(differences));
        }
        if rank == 0 || rank >= world {
            let refusal = if rank == 0 {
                duplicate(0, &self.mine)
            } else {
                JoinRefusal::OutOfRange { rank, world }
            };
            return Err(Rejection::PendingRank(refusal));
        }
        let holder =
            self.comers.iter().find(|(_, comer)| comer.rank == rank && comer.hello.is_some());
        if let Some((old, holder)) =
            holder.and_then(|(old, comer)| Some((*old, comer.hello.as_ref()?)))
        {
            if holder.nonce != hello.nonce {
                return Err(Rejection::PendingRank(duplicate(rank, holder)));
            }
            self.dismiss(old, "came again");
        }
        self.comers.get_mut(&number).expect("it just spoke").hello = Some(hello);
        Ok(())
    }

    /// Refuses one comer. What differs between two ranks fails both, and with them the world.
    fn refuse(&mut self, number: u64, objection: Rejection) -> Result<(), JoinError> {
        let Some(mut comer) = self.comers.remove(&number) else { return Ok(()) };
        self.watch.remove(&comer.control.stream);
        let (reply, differences) = match objection {
            Rejection::Version(differences) => {
                (JoinReply::OtherVersion(VERSION.to_owned()), Some(differences))
            }
            Rejection::Fatal(differences) => {
                (JoinReply::Refused(JoinRefusal::Differs(differences.clone())), Some(differences))
            }
            Rejection::PendingRank(refusal) => {
                self.notes.push(JoinError::refused(refusal.clone(), Duration::ZERO).to_string());
                (JoinReply::Refused(refusal), None)
            }
        };
        comer.control.push(&reply);
        comer.control.finish();
        let Some(differences) = differences else { return Ok(()) };
        self.refuse_all(&JoinRefusal::Differs(differences.clone()));
        Err(JoinError::Differs(differences))
    }

    fn dismiss(&mut self, number: u64, why: &str) {
        if let Some(comer) = self.comers.remove(&number) {
            self.watch.remove(&comer.control.stream);
            self.notes.push(format!("rank {} {why}", comer.rank));
        }
    }

    fn refuse_all(&mut self, refusal: &JoinRefusal) {
        for comer in self.comers.values_mut() {
            comer.control.push(&JoinReply::Refused(refusal.clone()));
            comer.control.finish();
        }
    }

    fn give_up(&mut self) -> JoinError {
        let here = |rank: &usize| {
            self.comers.values().any(|comer| comer.rank == *rank && comer.hello.is_some())
        };
        let ranks: Vec<usize> = (1..self.config.world).filter(|rank| !here(rank)).collect();
        let mut notes = std::mem::take(&mut self.notes);
        // The last few say enough.
        notes.drain(..notes.len().saturating_sub(3));
        notes.extend(self.door.complaint());
        let refusal = JoinRefusal::Missing { ranks, note: notes.join("; ") };
        self.refuse_all(&refusal);
        JoinError::refused(refusal, self.config.join_timeout)
    }

    fn welcome(mut self, secret: JobSecret) -> Result<Service, JoinError> {
        let (mut peers, mut controls) = (vec![self.mine.peer], BTreeMap::new());
        // Somebody who proved the key but did not join in time is nobody.
        self.comers.retain(|_, comer| {
            let joined = comer.hello.is_some();
            self.watch.remove(&comer.control.stream);
            joined
        });
        let mut comers: Vec<PendingRank> = self.comers.into_values().collect();
        comers.sort_by_key(|comer| comer.rank);
        peers.extend(
            comers.iter_mut().filter_map(|comer| comer.hello.take()).map(|hello| hello.peer),
        );
        let welcome = JoinReply::Welcome { session: secret.session, peers: peers.clone() };
        for mut comer in comers {
            comer.control.push(&welcome);
            controls.insert(comer.rank, comer.control);
        }
        let start = ServiceStart {
            rank: 0,
            secret,
            peers,
            timeout: self.config.timeout,
            watch: self.watch,
            door: self.door,
            controls,
        };
        Ok(Service::start(start)?)
    }
}

fn duplicate(rank: usize, holder: &JoinRequest) -> JoinRefusal {
    JoinRefusal::Duplicate {
        rank,
        holder: format!("process {} at {}", holder.peer.pid, holder.peer.listen.ip()),
    }
}
