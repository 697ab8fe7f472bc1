//! A newcomer's part: a process that the leader has brought along. It stays with that leader until
//! the leader has decided or is gone.

use super::agreement::{FollowerMessage, LeaderMessage, Proposal};
use super::follow::is_timeout;
use super::{GrownWorld, ServiceBase, Survivors, refused};
use crate::world::service::message::{MAX_MESSAGE, decode, encode};
use crate::world::service::{ControlConnection, ServiceError, read_message};
use maypole_transports::deadline::DeadlineSocket;
use maypole_transports::secure::{Channel, SecureError};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

/// A process that may enter, and its connection to the leader.
pub(crate) struct Entry {
    pub(crate) stream: TcpStream,
    pub(crate) channel: Channel,
    pub(crate) base: ServiceBase,
    /// Where this process listens in the new world; `base.own` has its address.
    pub(crate) listener: TcpListener,
}

/// Why a process did not enter.
#[derive(Debug)]
pub(crate) enum EntryError {
    /// The leader is gone, or has decided on a world without this process. It may ask again.
    NotTaken(String),
    /// The deadline passed, or the system refused a socket or a thread.
    Failed(ServiceError),
}

impl Entry {
    /// Takes part in the leader's agreement; returns this process's place in the new world, which has
    /// worked once.
    pub(crate) fn enter(mut self, deadline: Instant) -> Result<Survivors, EntryError> {
        let own = self.base.own.listen;
        let (proposal, committed) = self.await_world(deadline)?;
        let gone = || EntryError::NotTaken("the ranks went on without this process".to_owned());
        let rank = proposal.place_of(own).ok_or_else(gone)?;
        let failed = |error: std::io::Error| EntryError::Failed(refused(error));
        let mut controls = BTreeMap::new();
        if committed {
            controls.insert(0, ControlConnection::new(self.stream, self.channel).map_err(failed)?);
        }
        let grown = GrownWorld::of(&proposal);
        let places = grown.kept.clone();
        let ran: Vec<bool> = proposal.attendees.iter().map(|it| !it.is_newcomer()).collect();
        let service = self.base.start(rank, proposal, self.listener, controls).map_err(failed)?;
        let survivors = Survivors { service, places, grown: Some(grown) };
        let survivors = survivors.tried(deadline).map_err(|error| match error {
            error @ ServiceError::TimedOut { .. } => EntryError::Failed(error),
            error => EntryError::NotTaken(error.to_string()),
        })?;
        // Newcomers alone have nothing of what the job has computed.
        let ranks_that_ran = survivors.places.iter().filter(|place| ran[**place]).count();
        match ranks_that_ran {
            0 => Err(EntryError::NotTaken("the ranks that took this process died".to_owned())),
            _ => Ok(survivors),
        }
    }

    /// The world that the leader has committed, or one that it may have: then it has died, and
    /// whoever was ready for it finds out together with the others.
    fn await_world(&mut self, deadline: Instant) -> Result<(Proposal, bool), EntryError> {
        let mut prepared: Option<Proposal> = None;
        loop {
            let message = match self.receive(deadline) {
                Ok(message) => message,
                // The system says the same of a leader whose host has not answered for long.
                Err(error) if is_timeout(&error) && Instant::now() >= deadline => {
                    let missing = Vec::new();
                    let error = ServiceError::TimedOut { what: super::WHAT, missing };
                    return Err(EntryError::Failed(error));
                }
                Err(error) => {
                    let in_doubt = prepared.map(|proposal| (proposal, false));
                    return in_doubt.ok_or_else(|| EntryError::NotTaken(error.to_string()));
                }
            };
            match message {
                LeaderMessage::Prepare(proposal) => {
                    let ready = FollowerMessage::Ready(proposal.ballot);
                    prepared = Some(proposal);
                    // A connection that has ended is noticed when it is read.
                    let _ = self.send(&ready, deadline);
                }
                LeaderMessage::Commit(ballot) => {
                    if let Some(proposal) = prepared.take_if(|it| it.ballot == ballot) {
                        return Ok((proposal, true));
                    }
                }
                LeaderMessage::Decided(_) | LeaderMessage::Gone | LeaderMessage::TimedOut(_) => {
                    let why = "the ranks could not agree to take this process".to_owned();
                    return Err(EntryError::NotTaken(why));
                }
            }
        }
    }

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

#[cfg(test)]
mod tests {
    use super::super::agreement::{Attendee, Ballot};
    use super::*;
    use crate::world::bootstrap::admission::{WaitingRoom, knock};
    use crate::world::bootstrap::{JoinConfig, JoinError};
    use maypole_transports::watch::Watch;
    use std::time::Duration;

    /// The leader dies after it has asked, and nobody else of the old world is there.
    #[test]
    fn newcomers_alone_are_no_world() {
        let job = format!("orphans {}", std::process::id());
        let mut config = JoinConfig::new(1, 2, "127.0.0.1").with_job(&job);
        config.join_timeout = Duration::from_secs(5);
        let room = WaitingRoom::open(&config, false).unwrap();
        std::thread::scope(|threads| {
            let newcomer = threads.spawn(|| knock(&config, &[]));
            assert_eq!(room.count(config.join_timeout), 1);
            let (mut control, attendee) = room.take(1).waiting.pop().unwrap();
            let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let mut peer = attendee.peer.clone();
            peer.listen = dead;
            let leader = Attendee { peer, report: Vec::new(), wish: None };
            control.push(&LeaderMessage::Prepare(Proposal {
                ballot: Ballot { leader: 0, number: 1 },
                session: [3; 16],
                members: vec![0, 2],
                attendees: vec![leader, attendee],
            }));
            let watch = Watch::new().unwrap();
            watch.add(&control.stream, 1, false).unwrap();
            control.flush(1, &watch);
            // Its answer has come: it is ready.
            watch.wait(&mut Vec::new(), config.join_timeout).unwrap();
            drop(control);
            match newcomer.join().unwrap() {
                Err(JoinError::NotAdmitted { rank: 1, .. }) => {}
                other => panic!("{other:?}"),
            }
        });
    }
}
