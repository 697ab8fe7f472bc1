//! A newcomer's side: it finds the waiting room, waits to be invited, and enters.

use super::super::addresses::{listen_at, secret};
use super::super::joiner::{RootConnection, find_root};
use super::super::protocol::{Differences, JoinReply, JoinRequest, VERSION};
use super::super::{JoinConfig, JoinError, check};
use crate::world::VerbsAccess;
use crate::world::service::message::{MAX_JOIN_MESSAGE, decode};
use crate::world::service::{Entry, EntryError, ServiceBase, Survivors, read_message};
use maypole_transports::deadline::DeadlineSocket;
use maypole_transports::random;
use maypole_transports::secure::{Purpose, SecureError};
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The pause before a process whose rank 0 has died knocks again.
const PAUSE: Duration = Duration::from_millis(50);

/// How one visit to the waiting room ended.
enum Visit {
    Entered(Box<Survivors>),
    /// The room has closed, or the ranks went on without this process.
    TurnedOut {
        address: SocketAddr,
        why: String,
    },
}

/// Joins ranks that run, as rank `config.rank` if that is free. Waits until they call `admit` and
/// have room. `report` is what all of them are told.
///
/// # Errors
/// [`JoinError`], when [`JoinConfig::join_timeout`] has passed, or at once if they refuse this
/// process.
pub(crate) fn knock(config: &JoinConfig, report: &[u8]) -> Result<Survivors, JoinError> {
    check(config)?;
    let deadline = Instant::now() + config.join_timeout;
    loop {
        let secret = secret(config, [0; 16]);
        let root = find_root(config, &secret, Purpose::Admit, deadline)?;
        match visit(config, report, root, deadline)? {
            Visit::Entered(survivors) => return Ok(*survivors),
            Visit::TurnedOut { address, why } if Instant::now() >= deadline => {
                return Err(JoinError::NotAdmitted { rank: config.rank, address, why });
            }
            Visit::TurnedOut { why, .. } => tracing::debug!(why, "knocking again"),
        }
        std::thread::sleep(PAUSE);
    }
}

fn visit(
    config: &JoinConfig,
    report: &[u8],
    mut root: RootConnection,
    deadline: Instant,
) -> Result<Visit, JoinError> {
    let (rank, address) = (config.rank, root.address);
    let listener = listen_at(config, root.stream.local_addr()?)?;
    let mut request = JoinRequest::new(config, listener.local_addr()?, random::bytes()?)?;
    request.wish = Some(rank);
    request.report = report.to_vec();
    match ask(&request, &mut root, deadline) {
        Ok(JoinReply::Invited) => {}
        Ok(JoinReply::OtherVersion(version)) => {
            return Err(JoinError::Differs(Differences::of_version(rank, &version, VERSION)));
        }
        Ok(JoinReply::Refused(refusal)) => {
            return Err(JoinError::refused(refusal, config.join_timeout));
        }
        Ok(JoinReply::Welcome { .. }) => {
            let why = SecureError::UnknownProtocol.to_string();
            return Err(JoinError::Lost { rank, address, why });
        }
        // The system says the same of a connection whose other end has not answered for long.
        Err(SecureError::Io(error)) if is_late(error.kind()) && Instant::now() >= deadline => {
            let why = format!(
                "they did not let it in within {} s; a world that is full has no room",
                config.join_timeout.as_secs_f32()
            );
            return Err(JoinError::NotAdmitted { rank, address, why });
        }
        Err(why) => return Ok(Visit::TurnedOut { address, why: why.to_string() }),
    }
    let base = ServiceBase {
        own: request.peer,
        secret: secret(config, [0; 16]),
        timeout: config.timeout,
        encrypt: config.encrypt,
        data_ports: config.data_ports.clone(),
        verbs: Arc::new(VerbsAccess::new(config.verbs.clone())),
    };
    let entry = Entry { stream: root.stream, channel: root.channel, base, listener };
    match entry.enter(Instant::now() + config.timeout) {
        Ok(survivors) => Ok(Visit::Entered(Box::new(survivors))),
        Err(EntryError::NotTaken(why)) => Ok(Visit::TurnedOut { address, why }),
        Err(EntryError::Failed(error)) => {
            Err(JoinError::NotAdmitted { rank, address, why: error.to_string() })
        }
    }
}

/// Sends `request`, and waits until the room answers.
fn ask(
    request: &JoinRequest,
    root: &mut RootConnection,
    deadline: Instant,
) -> Result<JoinReply, SecureError> {
    let mut sealed = Vec::new();
    root.channel.seal(&request.encode(), &mut sealed);
    let mut timed = DeadlineSocket { socket: &mut root.stream, deadline };
    timed.write_all(&sealed)?;
    let reply = read_message(&mut timed, &mut root.channel, MAX_JOIN_MESSAGE)?;
    decode(&reply).ok_or(SecureError::UnknownProtocol)
}

fn is_late(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::TimedOut | ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Admissions, Communicator, Transport};
    use std::sync::mpsc::channel;

    /// As a process that is stopped once it waits: it is connected, and does nothing any more.
    #[test]
    fn a_newcomer_that_does_not_answer_is_left_out() {
        const TIMEOUT: Duration = Duration::from_secs(8);
        let job = format!("silent {}", std::process::id());
        let at = |rank, world| {
            let mut config = JoinConfig::new(rank, world, "127.0.0.1").with_job(&job);
            (config.join_timeout, config.timeout) = (TIMEOUT, TIMEOUT);
            config
        };
        let (done, until_done) = channel::<()>();
        std::thread::scope(|threads| {
            let config = at(1, 2);
            threads.spawn(move || {
                let deadline = Instant::now() + TIMEOUT;
                let key = secret(&config, [0; 16]);
                let mut root = find_root(&config, &key, Purpose::Admit, deadline).unwrap();
                let listener = listen_at(&config, root.stream.local_addr().unwrap()).unwrap();
                let own = listener.local_addr().unwrap();
                let mut request = JoinRequest::new(&config, own, [1; 16]).unwrap();
                request.wish = Some(1);
                assert!(matches!(ask(&request, &mut root, deadline), Ok(JoinReply::Invited)));
                let _ = until_done.recv();
            });
            let mut comm = Communicator::join(at(0, 1), Transport::Tcp).unwrap();
            let begun = Instant::now();
            let mut admissions = Admissions::new(at(0, 2));
            let comm = comm.admit(&mut admissions, TIMEOUT).unwrap().expect("one has come");
            assert_eq!(comm.world(), 1);
            assert!(begun.elapsed() < TIMEOUT, "it held the others up");
            drop(done);
        });
    }
}
