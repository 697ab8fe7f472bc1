//! The joining side: connect to every address where rank 0 may listen, until one of them proves
//! that it is rank 0 of this job.

use super::addresses::{ADMISSION_PORT, PORT, listen_at, resolve, scope_of, secret};
use super::protocol::{Differences, JoinReply, JoinRequest, VERSION};
use super::{JoinConfig, JoinError};
use crate::world::VerbsAccess;
use crate::world::peer::Peer;
use crate::world::service::message::{MAX_JOIN_MESSAGE, decode};
use crate::world::service::{Acceptor, ControlConnection, Service, ServiceStart, read_message};
use maypole_transports::deadline::DeadlineSocket;
use maypole_transports::interfaces::with_scope;
use maypole_transports::random;
use maypole_transports::secure::{Binding, Channel, JobSecret, Purpose, SecureError, initiate};
use maypole_transports::sockets::set_tcp_options;
use maypole_transports::watch::Watch;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time limit of the first attempt at an address. The limit doubles up to
/// [`LONGEST_ATTEMPT`], so that an address that never answers does not block the others.
const FIRST_ATTEMPT: Duration = Duration::from_millis(500);
const LONGEST_ATTEMPT: Duration = Duration::from_secs(5);
/// First pause between two rounds of attempts. The pause doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// How much longer than its own deadline a rank waits for rank 0, whose answer names the missing
/// ranks.
const GRACE: Duration = Duration::from_secs(2);

/// An authenticated connection to rank 0.
pub(super) struct RootConnection {
    pub(super) stream: TcpStream,
    pub(super) channel: Channel,
    pub(super) address: SocketAddr,
}

/// Joins the world of rank 0.
pub(super) fn join_root(config: &JoinConfig, deadline: Instant) -> Result<Service, JoinError> {
    let secret = secret(config, [0; 16]);
    let mut root = find_root(config, &secret, Purpose::Join, deadline)?;
    let listener = listen_at(config, root.stream.local_addr()?)?;
    let request = JoinRequest::new(config, listener.local_addr()?, random::bytes()?)?;
    let (session, peers) = ask_to_join(config, &request, &mut root, deadline + GRACE)?;
    let secret = JobSecret { session, ..secret };
    let watch = Watch::new()?;
    let acceptor = Acceptor::new(listener, secret.clone(), config.rank, &watch)?;
    let controls = [(0, ControlConnection::new(root.stream, root.channel)?)].into();
    Ok(Service::start(ServiceStart {
        rank: config.rank,
        secret,
        peers,
        timeout: config.timeout,
        encrypt: config.encrypt,
        data_ports: config.data_ports.clone(),
        verbs: Arc::new(VerbsAccess::new(config.verbs.clone())),
        watch,
        acceptor,
        controls,
        late_answer: None,
    })?)
}

/// Sends `request` to rank 0 and waits for its answer: the session and all peers.
fn ask_to_join(
    config: &JoinConfig,
    request: &JoinRequest,
    root: &mut RootConnection,
    deadline: Instant,
) -> Result<([u8; 16], Vec<Peer>), JoinError> {
    let address = root.address;
    let lost =
        |why: SecureError| JoinError::Lost { rank: config.rank, address, why: why.to_string() };
    let mut sealed = Vec::new();
    root.channel.seal(&request.encode(), &mut sealed);
    let mut timed = DeadlineSocket { socket: &mut root.stream, deadline };
    timed.write_all(&sealed).map_err(|error| lost(error.into()))?;
    // The table of a large world is longer than the longest join request.
    let reply = read_message(&mut timed, &mut root.channel, 16 * MAX_JOIN_MESSAGE).map_err(lost)?;
    match decode::<JoinReply>(&reply) {
        Some(JoinReply::Welcome { session, mut peers }) if peers.len() == config.world => {
            // Rank 0 may know itself by another address; this one works from here.
            peers[0].listen = address;
            // Each host numbers its interfaces by itself.
            let scope = scope_of(address);
            peers.iter_mut().for_each(|peer| peer.listen = with_scope(peer.listen, scope));
            Ok((session, peers))
        }
        Some(JoinReply::OtherVersion(version)) => {
            let differences = Differences::of_version(config.rank, &version, VERSION);
            Err(JoinError::Differs(differences))
        }
        Some(JoinReply::Refused(refusal)) => Err(JoinError::refused(refusal, config.join_timeout)),
        _ => Err(lost(SecureError::UnknownProtocol)),
    }
}

/// Tries all addresses and ports in turn until one of them is rank 0.
pub(super) fn find_root(
    config: &JoinConfig,
    secret: &JobSecret,
    purpose: Purpose,
    deadline: Instant,
) -> Result<RootConnection, JoinError> {
    let addresses = resolve(config)?;
    // A newcomer has no rank yet, and may want that of rank 0.
    let initiator = if purpose == Purpose::Admit { u32::MAX } else { config.rank as u32 };
    let binding = Binding { purpose, group: [0; 2], lane: 0, initiator, responder: 0 };
    let mut time_limit = FIRST_ATTEMPT;
    let mut pause = FIRST_PAUSE;
    let mut best = None;
    loop {
        for address in &addresses {
            for port in &config.ports {
                let mut address = *address;
                address.set_port(*port);
                let until = deadline.min(Instant::now() + time_limit);
                match attempt(address, secret, &binding, until) {
                    Ok(root) => return Ok(root),
                    Err(why) => keep_most_telling(&mut best, config, purpose, address, why),
                }
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(best.expect("there is at least one address").error);
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(LONGEST_PAUSE);
        time_limit = (time_limit * 2).min(LONGEST_ATTEMPT);
    }
}

fn attempt(
    address: SocketAddr,
    secret: &JobSecret,
    binding: &Binding,
    until: Instant,
) -> Result<RootConnection, SecureError> {
    let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let mut stream = TcpStream::connect_timeout(&address, left)?;
    if stream.local_addr()? == stream.peer_addr()? {
        // No process listens there, and the kernel connected the socket to itself.
        return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
    }
    set_tcp_options(&stream, crate::world::service::SILENCE_LIMIT)?;
    let channel =
        initiate(&mut DeadlineSocket { socket: &mut stream, deadline: until }, secret, binding)?;
    Ok(RootConnection { stream, channel, address })
}

/// The failed attempt that says most about what is wrong.
struct BestAttempt {
    /// How much the other end looked like rank 0, from 0 (no answer) to 4 (another key).
    likeness: u8,
    error: JoinError,
}

/// Remembers the more telling one of `best` and the failed attempt at `address`.
///
/// No answer of an unauthenticated address ends the search, because it may come from another
/// program at that port. The answer only decides which error is reported in the end.
fn keep_most_telling(
    best: &mut Option<BestAttempt>,
    config: &JoinConfig,
    purpose: Purpose,
    address: SocketAddr,
    why: SecureError,
) {
    let variable = if purpose == Purpose::Admit { ADMISSION_PORT } else { PORT };
    let rank = config.rank;
    let job = config.job.clone();
    let likeness = match &why {
        SecureError::WrongKey => 4,
        SecureError::OtherJob => 3,
        SecureError::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => 0,
        SecureError::Io(_) => 1,
        _ => 2,
    };
    if best.as_ref().is_some_and(|best| best.likeness > likeness) {
        return;
    }
    let error = match likeness {
        4 => JoinError::WrongKey { rank, address, job },
        2 | 3 => JoinError::NotRankZero { rank, address, job, what: why.to_string(), variable },
        _ => JoinError::NobodyListening {
            rank,
            address: config.address.clone().unwrap_or_else(|| address.ip().to_string()),
            ports: config.ports.clone(),
            waited: config.join_timeout,
            last: format!("{address}: {why}"),
        },
    };
    *best = Some(BestAttempt { likeness, error });
}
