//! The joining side: connect to every address where rank 0 may listen, until one of them proves
//! that it is rank 0 of this job.

use super::addresses::{PORT, listen_at, resolve, settings};
use super::protocol::{JoinRequest, host};
use super::{JoinConfig, JoinError, JoinStop};
use crate::world::service::{AgreedWorld, DialedLink, SILENCE_LIMIT, Service, scope_of};
use maypole_transports::secure::{Binding, JobSecret, Purpose, SecureError};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Timeout of the first attempt at an address. It doubles up to [`LONGEST_ATTEMPT`], so that an
/// unresponsive address does not block the others.
const FIRST_ATTEMPT: Duration = Duration::from_millis(500);
const LONGEST_ATTEMPT: Duration = Duration::from_secs(5);
/// First pause between two rounds of attempts. The pause doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// The time past its own deadline that a rank waits for rank 0, whose reply names the missing
/// ranks.
const GRACE: Duration = Duration::from_secs(2);

/// Joins the world of rank 0. All other ranks receive `report`.
pub(super) fn join_root(
    config: &JoinConfig,
    report: &[u8],
    stop: &JoinStop,
    deadline: Instant,
) -> Result<(Service, AgreedWorld), JoinError> {
    let settings = settings(config, [0; 16]);
    let (mut link, address) = find_root(config, &settings.secret, stop, deadline)?;
    let listener = listen_at(config, link.stream.local_addr()?)?;
    let request = JoinRequest::new(config, listener.local_addr()?, report)?;
    let lost = |why: SecureError| JoinError::lost(config.rank, address, why);
    let reply = request.ask(&mut link, stop, deadline + GRACE);
    stop.check()?;
    let reply = reply.map_err(lost)?;
    let mut world = reply.accepted(config)?;
    if world.peers.len() != config.world {
        return Err(lost(SecureError::UnknownProtocol));
    }
    // Rank 0 may have published another address; this one works from here.
    world.peers[0].listen = address;
    // Each host numbers its interfaces by itself.
    let world = world.within(scope_of(address));
    let controls = [(0, link.into_control()?)].into();
    let service = settings.start(config.rank, &world, listener, controls)?;
    Ok((service, world))
}

/// Tries all addresses and ports in turn until one of them is rank 0.
fn find_root(
    config: &JoinConfig,
    secret: &JobSecret,
    stop: &JoinStop,
    deadline: Instant,
) -> Result<(DialedLink, SocketAddr), JoinError> {
    // A process that cannot join fails before it connects to rank 0.
    host(config.host.as_deref())?;
    let addresses = resolve(config)?;
    let (purpose, initiator) = (Purpose::Join, config.rank as u32);
    let binding = Binding { purpose, group: [0; 2], lane: 0, initiator, responder: 0 };
    let mut time_limit = FIRST_ATTEMPT;
    let mut pause = FIRST_PAUSE;
    let mut best = None;
    loop {
        for address in &addresses {
            for port in &config.ports {
                stop.check()?;
                let mut address = *address;
                address.set_port(*port);
                let until = deadline.min(Instant::now() + time_limit);
                match DialedLink::dial(address, SILENCE_LIMIT, (secret, &binding), until) {
                    Ok(link) => return Ok((link, address)),
                    Err(why) => {
                        keep_most_telling(&mut best, config, (address, &addresses), why);
                    }
                }
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(best.expect("there is at least one address").1);
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(LONGEST_PAUSE);
        time_limit = (time_limit * 2).min(LONGEST_ATTEMPT);
    }
}

/// Keeps the more specific error: that of `best`, or that of the failed attempt at `address`.
/// `best` begins with the similarity of the other end to rank 0, from 0 (no reply) to 4 (another
/// key).
///
/// A reply of an unauthenticated address never ends the search, because another program may listen
/// at that port. It only selects the error that is reported in the end.
fn keep_most_telling(
    best: &mut Option<(u8, JoinError)>,
    config: &JoinConfig,
    (address, dialled): (SocketAddr, &[SocketAddr]),
    why: SecureError,
) {
    let likeness = match &why {
        SecureError::WrongKey => 4,
        SecureError::OtherJob => 3,
        SecureError::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => 0,
        SecureError::Io(_) => 1,
        _ => 2,
    };
    if best.as_ref().is_some_and(|(known, _)| *known > likeness) {
        return;
    }
    let error = match likeness {
        4 => JoinError::wrong_key(config, address),
        2 | 3 => JoinError::passing(format!(
            "rank {} found something other than rank 0 of job '{}' at {address}: {why}; name \
             another port with {PORT}",
            config.rank, config.job
        )),
        _ => JoinError::nobody_listening(config, (address, dialled), &why.to_string()),
    };
    *best = Some((likeness, error));
}
