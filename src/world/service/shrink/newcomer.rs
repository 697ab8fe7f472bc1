//! A newcomer's part. It follows the leader that added it until the leader has decided or is gone.

use super::agreement::Proposal;
use super::follow::{Followed, obey};
use super::{GrownWorld, ServiceBase, Survivors, refused, scope_of};
use crate::world::service::{DialedLink, Service, ServiceError};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::Instant;

/// Joins the agreement of the leader at the other end of `link`; returns this process's service in
/// the new world, after a successful trial. `base.own` has the address of `listener`. The inner
/// error allows a retry: the leader has ended, or has decided on a world without this process.
///
/// # Errors
/// If the deadline passes, or the system refuses a socket or a thread.
pub(crate) fn enter(
    mut link: DialedLink,
    base: ServiceBase,
    listener: TcpListener,
    deadline: Instant,
) -> Result<Result<(Service, GrownWorld), String>, ServiceError> {
    let own = base.own.listen;
    let (proposal, committed) = match await_world(&mut link, deadline)? {
        Ok(agreed) => agreed,
        Err(why) => return Ok(Err(why)),
    };
    let Some(rank) = proposal.place_of(own) else {
        return Ok(Err("the ranks went on without this process".to_owned()));
    };
    let mut controls = BTreeMap::new();
    if committed {
        controls.insert(0, link.into_control().map_err(refused)?);
    }
    let places = (0..proposal.members.len()).collect();
    let ran: Vec<bool> = proposal.world.peers.iter().map(|it| !it.is_newcomer()).collect();
    let world = proposal.world.within(scope_of(own));
    let service = base.settings.start(rank, &world, listener, controls).map_err(refused)?;
    match (Survivors { service, places, grown: Some(GrownWorld::of(world)) }).tried(deadline) {
        Err(error @ ServiceError::TimedOut { .. }) => Err(error),
        Err(error) => Ok(Err(error.to_string())),
        // Newcomers alone have no data of the job.
        Ok(survivors) if !survivors.places.iter().any(|place| ran[*place]) => {
            Ok(Err("the ranks that took this process died".to_owned()))
        }
        Ok(Survivors { service, grown, .. }) => {
            Ok(Ok((service, grown.expect("it was grown at first"))))
        }
    }
}

/// The world that the leader has committed, or one that it may have committed before it died: then
/// the processes that were ready for it try it together. The inner error is the reason why there is
/// none.
fn await_world(
    link: &mut DialedLink,
    deadline: Instant,
) -> Result<Result<(Proposal, bool), String>, ServiceError> {
    let mut prepared = None;
    Ok(match obey(link, &mut prepared, deadline, || false) {
        Ok(Followed::Committed(proposal)) => Ok((proposal, true)),
        Ok(Followed::Late) => {
            return Err(ServiceError::TimedOut { what: super::WHAT, missing: Vec::new() });
        }
        Ok(_) => Err("the ranks could not agree to take this process".to_owned()),
        Err(error) => prepared.map(|proposal| (proposal, false)).ok_or_else(|| error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::super::agreement::{AgreedWorld, Ballot, LeaderMessage};
    use super::super::contribution::Contribution;
    use super::*;
    use crate::world::bootstrap::admission::{WaitingRoom, knock};
    use crate::world::bootstrap::{JoinConfig, JoinError, JoinStop};
    use crate::world::peer::Peer;
    use maypole_transports::watch::Watch;
    use std::thread;
    use std::time::Duration;

    type Entered = Result<(Service, GrownWorld), JoinError>;

    /// A newcomer is ready for a world of rank 0, the members that `join` adds, and itself. Then
    /// the leader, rank 0, dies. Returns the newcomer's result.
    fn leader_dies<T>(
        name: &str,
        join: impl FnOnce(&ServiceBase, &mut Vec<Peer>) -> T,
        go_on: impl FnOnce(ServiceBase, AgreedWorld, T, Instant),
    ) -> Entered {
        let job = format!("{name} {}", std::process::id());
        let mut config = JoinConfig::new(1, 2, "127.0.0.1").with_job(&job);
        config.join_timeout = Duration::from_secs(5);
        let room = WaitingRoom::open(&config, false).unwrap();
        thread::scope(|threads| {
            let newcomer = threads.spawn(|| knock(&config, &[], &JoinStop::default()));
            assert_eq!(room.count(config.join_timeout), 1);
            let Contribution { mut waiting, base, .. } = room.take(1);
            let base = base.unwrap();
            let (mut control, peer) = waiting.pop().unwrap();
            let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let mut peers = vec![member(&base, dead)];
            let joined = join(&base, &mut peers);
            peers.push(peer);
            let members = (0..peers.len()).collect();
            let world = AgreedWorld { session: [3; 16], peers };
            control.push(&LeaderMessage::Prepare(Proposal {
                ballot: Ballot { leader: 0, number: 1 },
                members,
                world: world.clone(),
            }));
            let watch = Watch::new().unwrap();
            watch.add(&control.stream, 1, false).unwrap();
            control.flush(1, &watch);
            // Its reply has arrived: it is ready.
            watch.wait(&mut Vec::new(), config.join_timeout).unwrap();
            drop(control);
            go_on(base, world, joined, Instant::now() + Duration::from_secs(60));
            newcomer.join().unwrap()
        })
    }

    fn member(base: &ServiceBase, listen: std::net::SocketAddr) -> Peer {
        Peer { listen, report: Vec::new(), wish: None, ..base.own.clone() }
    }

    #[test]
    fn newcomers_alone_are_no_world() {
        match leader_dies("orphans", |_, _| (), |_, _, (), _| ()) {
            Err(error) if error.to_string().contains("was not admitted") => {}
            other => panic!("{other:?}"),
        }
    }

    /// A member was ready, too, and continues with the processes that were.
    #[test]
    fn a_newcomer_that_was_ready_goes_on_with_the_members() {
        let listen = |base: &ServiceBase, peers: &mut Vec<Peer>| {
            let listener = base.listen_again().unwrap();
            peers.push(member(base, listener.local_addr().unwrap()));
            listener
        };
        let entered = leader_dies("in doubt", listen, |base, world, listener, deadline| {
            let service = base.settings.start(1, &world, listener, BTreeMap::new()).unwrap();
            let survivors =
                Survivors { service, places: vec![0, 1, 2], grown: Some(GrownWorld::of(world)) };
            assert_eq!(survivors.tried(deadline).unwrap().places, [1, 2]);
        });
        let (service, grown) = entered.unwrap();
        assert_eq!((service.rank(), service.world()), (1, 2));
        assert_eq!(grown.kept, [1, 2]);
    }
}
