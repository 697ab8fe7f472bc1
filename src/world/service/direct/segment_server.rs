//! The socket by which the maker of a segment distributes it. Connections are served concurrently,
//! so a silent one delays no other.

use crate::world::service::acceptor::advance;
use crate::world::service::message::ExchangeRound;
use crate::world::service::{GroupId, Service, ServiceError, binding};
use maypole_transports::limits::with_limit;
use maypole_transports::secure::{Purpose, Responder};
use maypole_transports::shm::{Segment, send_segment};
use maypole_transports::sockets::{listen_abstract, same_user};
use maypole_transports::watch::Watch;
use std::collections::{BTreeSet, VecDeque};
use std::io::{self, ErrorKind};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// The timeout of a connection's handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval at which the maker polls for a failure of the world or of a receiver.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// The most connections that have not proved the job's key. A further one closes the oldest.
const MAX_PENDING: usize = 64;
/// The number of the listener in the watch; connections have the numbers above it.
const LISTENER: u64 = 0;

pub(super) fn failed(why: impl ToString) -> ServiceError {
    ServiceError::Failed { what: "sharing memory", why: why.to_string() }
}

/// A new segment, and the socket at which its receivers fetch it.
pub(super) struct SegmentServer {
    pub(super) segment: Segment,
    listener: UnixListener,
    /// The name of the socket.
    pub(super) name: Vec<u8>,
    watch: Watch,
    /// A descriptor that is closed to accept a connection when no other one is left.
    spare: Option<UnixListener>,
    pending: VecDeque<PendingReceiver>,
    next: u64,
}

struct PendingReceiver {
    number: u64,
    socket: UnixStream,
    responder: Responder,
    until: Instant,
}

impl SegmentServer {
    /// Makes a segment of `bytes` bytes for `members` ranks, and the socket that serves it.
    pub(super) fn new(bytes: usize, members: usize) -> io::Result<Self> {
        let make = || {
            let segment = Segment::create(bytes)?;
            let (listener, name) = listen_abstract(members + MAX_PENDING)?;
            listener.set_nonblocking(true)?;
            let watch = Watch::new()?;
            watch.add(&listener, LISTENER, false)?;
            let spare = Some(listener.try_clone()?);
            let (pending, next) = (VecDeque::new(), LISTENER);
            Ok(Self { segment, listener, name, watch, spare, pending, next })
        };
        make().map_err(with_limit)
    }

    /// Sends the segment to all `members` but this rank, until each has it, or all have contributed
    /// to `round`, or the `deadline` passes.
    ///
    /// # Errors
    /// If the world fails meanwhile, or this process can accept no connection.
    pub(super) fn serve(
        &mut self,
        service: &Service,
        group: GroupId,
        members: &[usize],
        round: &ExchangeRound,
        deadline: Instant,
    ) -> Result<(), ServiceError> {
        let others = members.iter().copied().filter(|member| *member != service.rank());
        let mut awaited: BTreeSet<usize> = others.collect();
        let mut numbers = Vec::new();
        while !awaited.is_empty() {
            if let Some(failure) = service.shared.state().failure(group) {
                return Err(failure);
            }
            let now = Instant::now();
            if service.shared.state().gathered.contains_key(round) || now >= deadline {
                return Ok(());
            }
            let most = CHECK_INTERVAL.min(deadline - now);
            self.watch.wait(&mut numbers, most).map_err(failed)?;
            for number in numbers.drain(..) {
                match number {
                    LISTENER => self.accept(service).map_err(failed)?,
                    number => {
                        let receiver = self.advance(service, group, number);
                        awaited.retain(|member| Some(*member) != receiver);
                    }
                }
            }
            self.pending.retain(|receiver| receiver.until > Instant::now());
        }
        Ok(())
    }

    fn accept(&mut self, service: &Service) -> io::Result<()> {
        loop {
            let socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // Without a free descriptor, frees the spare one and those of pending connections
                // for receivers.
                Err(_) if self.spare.take().is_some() => continue,
                Err(_) if self.pending.pop_front().is_some() => continue,
                Err(error) => return Err(with_limit(error)),
            };
            if self.pending.len() == MAX_PENDING {
                self.pending.pop_front();
            }
            self.next += 1;
            let number = self.next;
            let usable =
                socket.set_nonblocking(true).is_ok() && same_user(&socket).unwrap_or(false);
            if usable && self.watch.add(&socket, number, false).is_ok() {
                let responder = Responder::new(&service.shared.settings.secret);
                let until = Instant::now() + HANDSHAKE_TIMEOUT;
                self.pending.push_back(PendingReceiver { number, socket, responder, until });
            }
        }
    }

    /// Handles the bytes of the connection `number`. Returns the rank that was sent the segment.
    fn advance(&mut self, service: &Service, group: GroupId, number: u64) -> Option<usize> {
        let at = self.pending.iter().position(|receiver| receiver.number == number)?;
        let receiver = &mut self.pending[at];
        let ours = |rank| binding(Purpose::Segment, (group, 0), [rank, service.rank()]);
        let sent = match advance(&mut receiver.socket, &mut receiver.responder) {
            Ok(None) => return None,
            Ok(Some((proved, _))) if proved == ours(proved.initiator as usize) => {
                // The descriptor stays in the receiver's queue when this end is closed.
                let sent = send_segment(&receiver.socket, &self.segment);
                sent.map(|()| proved.initiator as usize).map_err(|error| error.to_string())
            }
            Ok(Some(_)) => Err("it is for something else".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        self.pending.remove(at);
        let refused =
            |why: &String| tracing::debug!(why, "a segment's socket refused a connection");
        sent.inspect_err(refused).ok()
    }
}
