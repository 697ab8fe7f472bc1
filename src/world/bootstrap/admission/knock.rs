//! A newcomer's side: it connects to the waiting room, waits for the invitation, and joins.

use super::super::addresses::{listen_at, settings};
use super::super::joiner::find_root;
use super::super::protocol::JoinRequest;
use super::super::{JoinConfig, JoinError, JoinStop, check};
use crate::world::service::{
    DialedLink, GrownWorld, Service, ServiceBase, ServiceSettings, enter, is_timeout,
};
use maypole_transports::secure::{Purpose, SecureError};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The pause before a process connects again after the death of its rank 0.
const PAUSE: Duration = Duration::from_millis(50);

/// Joins a running world, as rank `config.rank` if that is free. Waits until its ranks call `admit`
/// and have room. All of them receive `report`.
///
/// # Errors
/// [`JoinError`], when [`JoinConfig::join_timeout`] has passed, or immediately if they refuse this
/// process.
pub(crate) fn knock(
    config: &JoinConfig,
    report: &[u8],
    stop: &JoinStop,
) -> Result<(Service, GrownWorld), JoinError> {
    check(config)?;
    let deadline = Instant::now() + config.join_timeout;
    loop {
        let settings = settings(config, [0; 16]);
        let found = find_root(config, &settings.secret, Purpose::Admit, stop, deadline)?;
        let address = found.1;
        match visit(config, settings, report, found, (stop, deadline))? {
            Ok(entered) => return Ok(entered),
            Err(why) if Instant::now() >= deadline => {
                return Err(JoinError::not_admitted(config.rank, address, why));
            }
            Err(why) => tracing::debug!(why, "knocking again"),
        }
        std::thread::sleep(PAUSE);
    }
}

/// Waits once in the waiting room at the other end of `link`. The inner error allows a retry: the
/// room has closed, or the ranks continued without this process.
fn visit(
    config: &JoinConfig,
    settings: ServiceSettings,
    report: &[u8],
    (mut link, address): (DialedLink, SocketAddr),
    (stop, deadline): (&JoinStop, Instant),
) -> Result<Result<(Service, GrownWorld), String>, JoinError> {
    let rank = config.rank;
    let listener = listen_at(config, link.stream.local_addr()?)?;
    let mut request = JoinRequest::new(config, listener.local_addr()?, report)?;
    request.peer.wish = Some(rank);
    let reply = match request.ask(&mut link, stop, deadline) {
        Ok(reply) => reply,
        Err(error) if is_timeout(&error) && Instant::now() >= deadline => {
            let why = format!(
                "they did not let it in within {} s; a world that is full has no room",
                config.join_timeout.as_secs_f32()
            );
            return Err(JoinError::not_admitted(rank, address, why));
        }
        Err(error) => return Ok(Err(error.to_string())),
    };
    if reply.accepted(config)?.is_some() {
        return Err(JoinError::lost(rank, address, SecureError::UnknownProtocol));
    }
    let base = ServiceBase { own: request.peer, settings };
    let entered = enter(link, base, listener, Instant::now() + config.timeout);
    entered.map_err(|error| JoinError::not_admitted(rank, address, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::bootstrap::protocol::JoinReply;
    use crate::{Admissions, Communicator, Transport};
    use std::sync::mpsc::channel;

    /// As a process that is stopped while it waits: it is connected, and sends nothing.
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
                let key = settings(&config, [0; 16]).secret;
                let (mut link, _) =
                    find_root(&config, &key, Purpose::Admit, &JoinStop::default(), deadline)
                        .unwrap();
                let listener = listen_at(&config, link.stream.local_addr().unwrap()).unwrap();
                let own = listener.local_addr().unwrap();
                let mut request = JoinRequest::new(&config, own, &[]).unwrap();
                request.peer.wish = Some(1);
                assert!(matches!(
                    request.ask(&mut link, &JoinStop::default(), deadline),
                    Ok(JoinReply::Invited)
                ));
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
