//! Shared memory between the ranks of one host: the lowest rank makes a segment and sends it to
//! the others over a Unix socket.

use crate::world::service::message::ExchangePurpose;
use crate::world::service::{GroupId, Service, ServiceError, binding};
use maypole_transports::deadline::DeadlineSocket;
use maypole_transports::secure::{Purpose, initiate, respond};
use maypole_transports::shm::{Segment, receive_segment, send_segment};
use maypole_transports::sockets::{connect_abstract, listen_abstract, same_user};
use maypole_transports::watch::Watch;
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// How long sending the segment to one receiver may take.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the maker of a segment checks, while it waits for receivers, whether the world has
/// failed.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// The byte by which a receiver confirms that it has the segment.
const RECEIVED: u8 = b'H';

fn failed(why: impl ToString) -> ServiceError {
    ServiceError::Failed { what: "sharing memory", why: why.to_string() }
}

impl Service {
    /// A segment of `bytes` zeroed bytes that `local_members` (world ranks of one host, this one
    /// among them) share. All of them call it, with equal arguments, in the same order; the lowest
    /// rank makes it.
    ///
    /// The segment is sent over an abstract Unix socket, whose name goes over the control plane,
    /// to processes of the same user that prove the job's key.
    ///
    /// # Errors
    /// If the deadline passes (the error names the missing ranks), a member left, the world fails
    /// meanwhile or has failed, or the system has no memory.
    pub fn share(
        &self,
        group: GroupId,
        local_members: &[usize],
        bytes: usize,
        deadline: Instant,
    ) -> Result<Segment, ServiceError> {
        self.check_members(local_members)?;
        let maker = local_members.iter().copied().min().expect("this rank is a member");
        if local_members.len() == 1 {
            return Segment::create(bytes).map_err(failed);
        }
        if maker != self.rank() {
            let purpose = ExchangePurpose::SharedMemory;
            let announced =
                self.exchange_for(purpose, group, local_members, Vec::new(), deadline)?;
            let at = local_members
                .iter()
                .position(|member| *member == maker)
                .expect("the maker is one of the members");
            return self.receive(group, maker, &announced[at], bytes, deadline);
        }
        // An empty name tells the others that there is no segment, so that they do not wait for
        // it.
        let made = Segment::create(bytes)
            .and_then(|segment| Ok((segment, listen_abstract(local_members.len())?)));
        let name = made.as_ref().map_or(Vec::new(), |(_, (_, name))| name.clone());
        self.exchange_for(ExchangePurpose::SharedMemory, group, local_members, name, deadline)?;
        let (segment, (listener, _)) = made.map_err(failed)?;
        let receivers = local_members.iter().copied().filter(|member| *member != maker).collect();
        self.send_to_all(group, &segment, &listener, receivers, deadline)?;
        Ok(segment)
    }

    fn send_to_all(
        &self,
        group: GroupId,
        segment: &Segment,
        listener: &UnixListener,
        mut awaited: BTreeSet<usize>,
        deadline: Instant,
    ) -> Result<(), ServiceError> {
        let watch = Watch::new().map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        watch.add(listener, 0, false).map_err(failed)?;
        while !awaited.is_empty() {
            if let Some(failure) = self.shared.state().failure() {
                return Err(failure);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let missing = awaited.into_iter().collect();
                return Err(ServiceError::TimedOut { what: "sharing memory", missing });
            }
            watch.wait(&mut Vec::new(), left.min(CHECK_INTERVAL)).map_err(failed)?;
            let Ok((socket, _)) = listener.accept() else { continue };
            match self.send_to_one(
                group,
                segment,
                socket,
                deadline.min(Instant::now() + TRANSFER_TIMEOUT),
            ) {
                Ok(receiver) => drop(awaited.remove(&receiver)),
                Err(error) => {
                    tracing::debug!(%error, "a connection to a segment's socket was refused")
                }
            }
        }
        Ok(())
    }

    fn send_to_one(
        &self,
        group: GroupId,
        segment: &Segment,
        mut socket: UnixStream,
        deadline: Instant,
    ) -> Result<usize, ServiceError> {
        if !same_user(&socket).map_err(failed)? {
            return Err(failed("the process belongs to another user"));
        }
        let mut timed = DeadlineSocket { socket: &mut socket, deadline };
        let (proved, _) = respond(&mut timed, &self.shared.settings.secret).map_err(failed)?;
        let receiver = proved.initiator as usize;
        if proved != binding(Purpose::Segment, (group, 0), [receiver, self.rank()]) {
            return Err(failed("the connection is for something else"));
        }
        send_segment(timed.socket, segment).map_err(failed)?;
        let mut confirmation = [0];
        timed.read_exact(&mut confirmation).map_err(failed)?;
        if confirmation == [RECEIVED] {
            Ok(receiver)
        } else {
            Err(failed("the receiver sent no confirmation"))
        }
    }

    fn receive(
        &self,
        group: GroupId,
        maker: usize,
        name: &[u8],
        bytes: usize,
        deadline: Instant,
    ) -> Result<Segment, ServiceError> {
        if name.is_empty() {
            return Err(failed(format!(
                "rank {maker} could not make {bytes} bytes of shared memory"
            )));
        }
        let receive = || -> io::Result<Segment> {
            let mut socket = connect_abstract(name)?;
            if !same_user(&socket)? {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            let mut timed = DeadlineSocket { socket: &mut socket, deadline };
            let binding = binding(Purpose::Segment, (group, 0), [self.rank(), maker]);
            initiate(&mut timed, &self.shared.settings.secret, &binding)
                .map_err(io::Error::other)?;
            let segment = receive_segment(timed.socket, bytes)?;
            timed.write_all(&[RECEIVED])?;
            Ok(segment)
        };
        receive().map_err(|error| self.blame(maker, failed(error)))
    }
}
