//! A newcomer's part: a process that the leader has brought along. It stays with that leader until
//! the leader has decided or is gone.

use super::agreement::Proposal;
use super::follow::{Followed, obey};
use super::{GrownWorld, ServiceBase, Survivors, refused, scope_of};
use crate::world::service::{DialedLink, Service, ServiceError};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::Instant;

/// A process that may enter, and its connection to the leader.
pub(crate) struct Entry {
    pub(crate) link: DialedLink,
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
    pub(crate) fn enter(mut self, deadline: Instant) -> Result<(Service, GrownWorld), EntryError> {
        let own = self.base.own.listen;
        let (proposal, committed) = self.await_world(deadline)?;
        let gone = || EntryError::NotTaken("the ranks went on without this process".to_owned());
        let rank = proposal.place_of(own).ok_or_else(gone)?;
        let failed = |error: std::io::Error| EntryError::Failed(refused(error));
        let mut controls = BTreeMap::new();
        if committed {
            controls.insert(0, self.link.into_control().map_err(failed)?);
        }
        let grown = GrownWorld::of(&proposal.world);
        let places = grown.kept.clone();
        let ran: Vec<bool> = proposal.world.attendees.iter().map(|it| !it.is_newcomer()).collect();
        let world = proposal.world.within(scope_of(own));
        let service = self.base.settings.start(rank, world, self.listener, controls);
        let service = service.map_err(failed)?;
        let survivors = Survivors { service, places, grown: Some(grown) };
        let survivors = survivors.tried(deadline).map_err(|error| match error {
            error @ ServiceError::TimedOut { .. } => EntryError::Failed(error),
            error => EntryError::NotTaken(error.to_string()),
        })?;
        // Newcomers alone have nothing of what the job has computed.
        let ranks_that_ran = survivors.places.iter().filter(|place| ran[**place]).count();
        match ranks_that_ran {
            0 => Err(EntryError::NotTaken("the ranks that took this process died".to_owned())),
            _ => Ok((survivors.service, survivors.grown.expect("it was grown at first"))),
        }
    }

    /// The world that the leader has committed, or one that it may have: then it has died, and
    /// whoever was ready for it finds out together with the others.
    fn await_world(&mut self, deadline: Instant) -> Result<(Proposal, bool), EntryError> {
        let mut prepared = None;
        match obey(&mut self.link, &mut prepared, deadline, || false) {
            Ok(Followed::Committed(proposal)) => Ok((proposal, true)),
            Ok(Followed::Late) => {
                let (what, missing) = (super::WHAT, Vec::new());
                Err(EntryError::Failed(ServiceError::TimedOut { what, missing }))
            }
            Ok(_) => {
                let why = "the ranks could not agree to take this process".to_owned();
                Err(EntryError::NotTaken(why))
            }
            Err(error) => {
                let in_doubt = prepared.map(|proposal| (proposal, false));
                in_doubt.ok_or_else(|| EntryError::NotTaken(error.to_string()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::agreement::{AgreedWorld, Attendee, Ballot, LeaderMessage};
    use super::super::contribution::Newcomers;
    use super::*;
    use crate::world::bootstrap::admission::{WaitingRoom, knock};
    use crate::world::bootstrap::{JoinConfig, JoinError, JoinStop};
    use crate::world::peer::Peer;
    use maypole_transports::watch::Watch;
    use std::thread;
    use std::time::Duration;

    type Entered = Result<(Service, GrownWorld), JoinError>;

    /// A newcomer has been ready for a world of rank 0, the members that `join` adds, and itself, and
    /// the leader, rank 0, has died then. Returns what became of it, and of the members.
    fn leader_dies<T>(
        name: &str,
        join: impl FnOnce(&ServiceBase, &mut Vec<Attendee>) -> T,
        go_on: impl FnOnce(ServiceBase, AgreedWorld, T, Instant),
    ) -> Entered {
        let job = format!("{name} {}", std::process::id());
        let mut config = JoinConfig::new(1, 2, "127.0.0.1").with_job(&job);
        config.join_timeout = Duration::from_secs(5);
        let room = WaitingRoom::open(&config, false).unwrap();
        thread::scope(|threads| {
            let newcomer = threads.spawn(|| knock(&config, &[], &JoinStop::default()));
            assert_eq!(room.count(config.join_timeout), 1);
            let Newcomers { mut waiting, base } = room.take(1);
            let (mut control, attendee) = waiting.pop().unwrap();
            let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let mut attendees = vec![member(&base, dead)];
            let joined = join(&base, &mut attendees);
            attendees.push(attendee);
            let members = (0..attendees.len()).collect();
            let world = AgreedWorld { session: [3; 16], attendees };
            control.push(&LeaderMessage::Prepare(Proposal {
                ballot: Ballot { leader: 0, number: 1 },
                members,
                world: world.clone(),
            }));
            let watch = Watch::new().unwrap();
            watch.add(&control.stream, 1, false).unwrap();
            control.flush(1, &watch);
            // Its answer has come: it is ready.
            watch.wait(&mut Vec::new(), config.join_timeout).unwrap();
            drop(control);
            go_on(base, world, joined, Instant::now() + Duration::from_secs(60));
            newcomer.join().unwrap()
        })
    }

    fn member(base: &ServiceBase, listen: std::net::SocketAddr) -> Attendee {
        let peer = Peer { listen, ..base.own.clone() };
        Attendee { peer, report: Vec::new(), wish: None }
    }

    #[test]
    fn newcomers_alone_are_no_world() {
        match leader_dies("orphans", |_, _| (), |_, _, (), _| ()) {
            Err(JoinError::NotAdmitted { rank: 1, .. }) => {}
            other => panic!("{other:?}"),
        }
    }

    /// A member was ready, too, and goes on with whoever was.
    #[test]
    fn a_newcomer_that_was_ready_goes_on_with_the_members() {
        let listen = |base: &ServiceBase, attendees: &mut Vec<Attendee>| {
            let listener = base.listen_again().unwrap();
            attendees.push(member(base, listener.local_addr().unwrap()));
            listener
        };
        let entered = leader_dies("in doubt", listen, |base, world, listener, deadline| {
            let grown = Some(GrownWorld::of(&world));
            let service = base.settings.start(1, world, listener, BTreeMap::new()).unwrap();
            let survivors = Survivors { service, places: vec![0, 1, 2], grown };
            assert_eq!(survivors.tried(deadline).unwrap().places, [1, 2]);
        });
        let (service, grown) = entered.unwrap();
        assert_eq!((service.rank(), service.world()), (1, 2));
        assert_eq!(grown.kept, [1, 2]);
    }
}
