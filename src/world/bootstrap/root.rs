//! Rank 0's side of joining: it takes every other rank once, and then sends all of them the world.

use super::addresses::{listen_as_root, reached_at, settings};
use super::protocol::{JoinReply, JoinRequest};
use super::reception::{Reception, TurnedAway, Visitor};
use super::{JoinConfig, JoinError, JoinStop};
use crate::wire::encode;
use crate::world::peer::Peer;
use crate::world::service::{AgreedWorld, Service, ServiceSettings, scope_of};
use maypole_transports::random;
use maypole_transports::watch::Watch;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

/// The most reasons of refused attempts that an error of missing ranks reports.
const MAX_NOTES: usize = 3;

/// Accepts all other ranks of the world, which receive the `report` of this one.
pub(super) fn accept_ranks(
    config: &JoinConfig,
    report: &[u8],
    stop: &JoinStop,
    deadline: Instant,
) -> Result<(Service, AgreedWorld), JoinError> {
    let listener = listen_as_root(config)?;
    let listens_at = listener.local_addr()?;
    let settings = settings(config, random::bytes()?);
    let own = JoinRequest::new(config, reached_at(config, &listener)?, report)?;
    let watch = Watch::new()?;
    let reception = Reception::new(listener, settings.secret.clone(), own, &watch)?;
    let mut admission =
        RankAdmission { config, stop, listens_at, watch, reception, notes: Vec::new() };
    admission.run(deadline)?;
    admission.welcome(settings)
}

struct RankAdmission<'a> {
    config: &'a JoinConfig,
    stop: &'a JoinStop,
    listens_at: SocketAddr,
    watch: Watch,
    reception: Reception,
    /// The reasons of refused connections, one sentence each.
    notes: Vec<String>,
}

impl RankAdmission<'_> {
    fn run(&mut self, deadline: Instant) -> Result<(), JoinError> {
        let mut numbers = Vec::new();
        while self.reception.ready() + 1 < self.config.world {
            self.stop.check()?;
            let now = Instant::now();
            if now >= deadline {
                return Err(self.give_up());
            }
            for late in self.reception.expire(now, &self.watch) {
                self.note(late)?;
            }
            let until = self.reception.deadline().map_or(deadline, |until| until.min(deadline));
            let until = self.stop.pause(until);
            self.watch.wait(&mut numbers, until.saturating_duration_since(now))?;
            for number in numbers.drain(..) {
                if let Some(away) = self.reception.event(number, &self.watch) {
                    self.note(away)?;
                }
            }
        }
        Ok(())
    }

    /// Notes why a connection was closed. A difference between two ranks fails both of them, and so
    /// the world.
    fn note(&mut self, away: TurnedAway) -> Result<(), JoinError> {
        self.notes.push(match away {
            TurnedAway::Differs(differences) => {
                self.refuse_all(&differences);
                return Err(differences);
            }
            TurnedAway::Refused(why) => why.to_string(),
            TurnedAway::Gone(rank, why) => format!("rank {rank} {why}"),
        });
        Ok(())
    }

    fn refuse_all(&mut self, why: &JoinError) {
        for visitor in self.reception.visitors.values_mut() {
            visitor.control.push(&JoinReply::Refused(why.clone()));
            visitor.control.finish();
        }
    }

    fn give_up(&mut self) -> JoinError {
        let is_here = |rank: &usize| {
            let joined = |it: &Visitor| it.rank == *rank && it.request.is_some();
            self.reception.visitors.values().any(joined)
        };
        let ranks: Vec<usize> = (1..self.config.world).filter(|rank| !is_here(rank)).collect();
        let mut notes = std::mem::take(&mut self.notes);
        notes.drain(..notes.len().saturating_sub(MAX_NOTES));
        notes.extend(self.reception.acceptor.complaint());
        notes.extend(self.listening());
        let missing = JoinError::missing(self.config, &ranks, &notes);
        self.refuse_all(&missing);
        missing
    }

    /// The address at which this rank waits for the others, in words; `None` if it is the
    /// configured one.
    fn listening(&self) -> Option<String> {
        let (at, name) = (self.listens_at, self.config.address.as_deref()?);
        let beyond = if at.ip().is_loopback() { ", where no other host reaches it" } else { "" };
        let is_name = name != at.ip().to_string();
        is_name.then(|| format!("rank 0 listens at {}, port {}{beyond}", at.ip(), at.port()))
    }

    /// Sends all ranks the world, and starts the service of rank 0.
    fn welcome(self, settings: ServiceSettings) -> Result<(Service, AgreedWorld), JoinError> {
        let Self { watch, reception, .. } = self;
        let Reception { acceptor, own, visitors, .. } = reception;
        let mut joined = BTreeMap::new();
        // A connection that proved the key but sent no request in time is dropped.
        for Visitor { control, rank, request, .. } in visitors.into_values() {
            watch.remove(&control.stream);
            joined.extend(request.map(|request| (rank, (control, request.peer))));
        }
        // Each host numbers its interfaces by itself.
        let (scope, session) = (scope_of(own.peer.listen), settings.secret.session);
        let mut peers = vec![own.peer];
        let mut controls = BTreeMap::new();
        for (rank, (control, peer)) in joined {
            peers.push(peer);
            controls.insert(rank, control);
        }
        let world = AgreedWorld { session, peers }.within(scope);
        let (peers, welcome) = (world.peers.clone(), JoinReply::Welcome(world.clone()));
        controls.values_mut().for_each(|control| control.push(&welcome));
        let entrance = (watch, acceptor);
        let service = Service::start(settings, (0, peers), entrance, controls, Some(late_answer))?;
        Ok((service, world))
    }
}

/// The reply to a process that arrives after all ranks have joined: its rank is taken, or does not
/// exist.
fn late_answer(peers: &[Peer], rank: usize) -> Vec<u8> {
    let refusal = match peers.get(rank) {
        Some(holder) => JoinError::duplicate(rank, holder),
        None => JoinError::out_of_range(rank, peers.len()),
    };
    encode(&JoinReply::Refused(refusal))
}
