//! The joining end: knock at every place where rank 0 may be, until one of them proves to be it.

use super::addresses::{listen_at, resolve, secret};
use super::protocol::{Differences, JoinReply, JoinRequest, VERSION};
use super::{JoinConfig, JoinError};
use crate::world::service::message::{WHILE_JOINING, decode};
use crate::world::service::{Acceptor, ControlConnection, Service, ServiceStart};
use maypole_transports::deadline::DeadlineSocket;
use maypole_transports::secure::{Binding, Channel, JobSecret, Purpose, SecureError, initiate};
use maypole_transports::sockets::{random, set_tcp_options};
use maypole_transports::watch::Watch;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// What a silent place is given at first; it doubles up to [`MOST_PATIENCE`], so that one candidate
/// that never answers does not keep us from the others.
const LEAST_PATIENCE: Duration = Duration::from_millis(500);
const MOST_PATIENCE: Duration = Duration::from_secs(5);
/// Between two rounds of knocking; it doubles up to a quarter of a second.
const LEAST_PAUSE: Duration = Duration::from_millis(10);
/// Rank 0 may notice later than we that somebody is missing, and its word names who.
const GRACE: Duration = Duration::from_secs(2);

pub(super) fn dial(config: &JoinConfig, deadline: Instant) -> Result<Service, JoinError> {
    let secret = secret(config, [0; 16]);
    let (mut stream, mut channel, root) = knock(config, &secret, deadline)?;
    let listener = listen_at(config, stream.local_addr()?.ip())?;
    let hello = JoinRequest::new(config, listener.local_addr()?, random()?)?;
    let lost = |why: SecureError| JoinError::Lost {
        rank: config.rank,
        address: root,
        why: why.to_string(),
    };
    let mut out = Vec::new();
    channel.seal(&hello.encode(), &mut out);
    let mut timed = DeadlineSocket { socket: &mut stream, deadline: deadline + GRACE };
    timed.write_all(&out).map_err(|error| lost(error.into()))?;
    let reply = answer(&mut timed, &mut channel).map_err(lost)?;
    let waited = config.join_timeout;
    let (session, mut peers) = match decode::<JoinReply>(&reply) {
        Some(JoinReply::Welcome { session, peers }) if peers.len() == config.world => {
            (session, peers)
        }
        Some(JoinReply::OtherVersion(version)) => {
            return Err(JoinError::Differs(Differences::of_version(
                config.rank,
                &version,
                VERSION,
            )));
        }
        Some(JoinReply::Refused(refusal)) => return Err(JoinError::refused(refusal, waited)),
        _ => return Err(lost(SecureError::UnknownProtocol)),
    };
    // Whatever rank 0 believes its address to be, this one works from here.
    peers[0].listen = root;
    let watch = Watch::new()?;
    let door = Acceptor::new(listener, JobSecret { session, ..secret.clone() }, &watch)?;
    let controls = [(0, ControlConnection::new(stream, channel)?)].into();
    let secret = JobSecret { session, ..secret };
    Ok(Service::start(ServiceStart {
        rank: config.rank,
        secret,
        peers,
        timeout: config.timeout,
        watch,
        door,
        controls,
    })?)
}

/// What the best of all attempts came to: how much it looked like rank 0, and the error to report.
type BestAttempt = Option<(u8, JoinError)>;

fn knock(
    config: &JoinConfig,
    secret: &JobSecret,
    deadline: Instant,
) -> Result<(TcpStream, Channel, SocketAddr), JoinError> {
    let addresses = resolve(config)?;
    let rank = config.rank as u32;
    let binding =
        Binding { purpose: Purpose::Join, group: [0; 2], lane: 0, initiator: rank, responder: 0 };
    let (mut patience, mut pause) = (LEAST_PATIENCE, LEAST_PAUSE);
    let mut best: BestAttempt = None;
    loop {
        for address in &addresses {
            for port in &config.ports {
                let place = SocketAddr::new(*address, *port);
                let until = deadline.min(Instant::now() + patience);
                match attempt(place, secret, &binding, until) {
                    Ok((stream, channel)) => return Ok((stream, channel, place)),
                    Err(why) => keep_best(&mut best, config, place, why),
                }
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(best.expect("there is at least one place").1);
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(250));
        patience = (patience * 2).min(MOST_PATIENCE);
    }
}

fn attempt(
    place: SocketAddr,
    secret: &JobSecret,
    binding: &Binding,
    until: Instant,
) -> Result<(TcpStream, Channel), SecureError> {
    let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let mut stream = TcpStream::connect_timeout(&place, left)?;
    if stream.local_addr()? == stream.peer_addr()? {
        // Nobody listens, and the kernel happened to connect us to ourselves.
        return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
    }
    set_tcp_options(&stream, crate::world::service::SILENCE)?;
    let channel =
        initiate(&mut DeadlineSocket { socket: &mut stream, deadline: until }, secret, binding)?;
    Ok((stream, channel))
}

/// Nothing that an unauthenticated place says ends the search: it may be a stranger on the wrong
/// port. It only tells what to report in the end.
fn keep_best(best: &mut BestAttempt, config: &JoinConfig, address: SocketAddr, why: SecureError) {
    let (rank, job) = (config.rank, config.job.clone());
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
        4 => JoinError::WrongKey { rank, address, job },
        2 | 3 => JoinError::NotRankZero { rank, address, job, what: why.to_string() },
        _ => JoinError::NobodyListening {
            rank,
            address: config.address.clone().unwrap_or_else(|| address.ip().to_string()),
            ports: config.ports.clone(),
            waited: config.join_timeout,
            last: format!("{address}: {why}"),
        },
    };
    *best = Some((likeness, error));
}

/// Waits for the one message that ends joining.
fn answer(
    timed: &mut DeadlineSocket<'_, TcpStream>,
    channel: &mut Channel,
) -> Result<Vec<u8>, SecureError> {
    let mut bytes = [0; 4096];
    loop {
        // A table of a large world is longer than what a joining rank may say.
        if let Some(message) = channel.open(16 * WHILE_JOINING)? {
            return Ok(message);
        }
        match timed.read(&mut bytes)? {
            0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            read => channel.receive(&bytes[..read]),
        }
    }
}
