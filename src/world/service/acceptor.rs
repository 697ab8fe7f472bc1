//! Accepts connections at the one listening port of a process. A connection is pending until its
//! handshake has proved the job's key.

use maypole_transports::limits::is_out_of_descriptors;
use maypole_transports::secure::{Binding, Channel, JobSecret, Responder, SecureError, refuse};
use maypole_transports::watch::Watch;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// The most pending connections. A further one closes the oldest.
const MAX_PENDING: usize = 64;
/// The timeout of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The backoff after a failure to accept a connection.
const PAUSE: Duration = Duration::from_millis(100);
/// The most connections that are accepted before other events are handled.
const MAX_ACCEPTS: usize = 64;

/// The number of the listener in a [`Watch`]; pending connections have the numbers above it.
pub(crate) const ACCEPTOR: u64 = 4 << 40;

#[derive(Debug)]
pub(crate) struct Acceptor {
    listener: TcpListener,
    /// A descriptor that is closed to refuse a connection when no other one is left.
    spare: Option<TcpListener>,
    secret: JobSecret,
    /// The rank of this process. Connections to other ranks are refused.
    rank: u32,
    pending: VecDeque<PendingConnection>,
    next: u64,
    /// No connection is accepted until then, because the process has no free descriptor.
    paused_until: Option<Instant>,
    /// How many connections were refused.
    pub(crate) refused: u64,
    /// The most specific reason of a refusal, with its weight and the address of the connection.
    best_reason: Option<(u8, String)>,
}

#[derive(Debug)]
struct PendingConnection {
    number: u64,
    stream: TcpStream,
    from: SocketAddr,
    responder: Responder,
    until: Instant,
}

/// A connection whose other end holds the job's key. Non-blocking.
#[derive(Debug)]
pub(crate) struct Authenticated {
    pub(crate) stream: TcpStream,
    pub(crate) binding: Binding,
    pub(crate) channel: Channel,
}

impl Acceptor {
    pub(crate) fn new(
        listener: TcpListener,
        secret: JobSecret,
        rank: usize,
        watch: &Watch,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        watch.add(&listener, ACCEPTOR, false)?;
        Ok(Self {
            spare: listener.try_clone().ok(),
            listener,
            secret,
            rank: rank as u32,
            pending: VecDeque::new(),
            next: ACCEPTOR,
            paused_until: None,
            refused: 0,
            best_reason: None,
        })
    }

    pub(crate) fn close(&self, watch: &Watch) {
        watch.remove(&self.listener);
    }

    /// The number of pending handshakes.
    pub(crate) fn half_open(&self) -> usize {
        self.pending.len()
    }

    /// The number of refused connections in words, with one reason; `None` if there were none.
    pub(crate) fn complaint(&self) -> Option<String> {
        let (_, why) = self.best_reason.as_ref()?;
        Some(format!("{} connections were refused, one of them from {why}", self.refused))
    }

    /// The next deadline for [`expire`](Self::expire).
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.pending.front().map(|pending| pending.until).into_iter().chain(self.paused_until).min()
    }

    /// Handles the event of `number`; returns a connection whose handshake has completed.
    pub(crate) fn ready(&mut self, number: u64, watch: &Watch) -> Option<Authenticated> {
        if number == ACCEPTOR {
            self.accept(watch);
            return None;
        }
        let at = self.pending.iter().position(|pending| pending.number == number)?;
        let PendingConnection { stream, responder, .. } = &mut self.pending[at];
        match responder.advance(stream) {
            Ok(None) => None,
            Ok(Some((binding, channel))) => {
                let pending = self.pending.remove(at).expect("found above");
                watch.remove(&pending.stream);
                Some(Authenticated { stream: pending.stream, binding, channel })
            }
            Err(why) => {
                self.refuse(at, &why, watch);
                None
            }
        }
    }

    fn accept(&mut self, watch: &Watch) {
        for _ in 0..MAX_ACCEPTS {
            let (stream, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if is_out_of_descriptors(&error) && self.refuse_without_descriptor() => {
                    continue;
                }
                Err(error) => return self.pause_unless_harmless(&error, watch),
            };
            if self.pending.len() == MAX_PENDING {
                self.refuse(0, &SecureError::Refused, watch);
            }
            self.next += 1;
            let number = self.next;
            if stream.set_nonblocking(true).is_err() || watch.add(&stream, number, false).is_err() {
                self.refused += 1;
                continue;
            }
            let _ = stream.set_nodelay(true);
            let until = Instant::now() + HANDSHAKE_TIMEOUT;
            self.pending.push_back(PendingConnection {
                number,
                stream,
                from,
                responder: Responder::new(&self.secret).of_rank(self.rank),
                until,
            });
        }
    }

    /// Accepts a connection by the spare descriptor, sends the reason of its refusal, and closes
    /// it, so that the other end does not wait. Returns false if that is not possible.
    fn refuse_without_descriptor(&mut self) -> bool {
        if self.spare.take().is_none() {
            return false;
        }
        let accepted = self.listener.accept();
        if let Ok((stream, from)) = &accepted {
            // Reads the bytes of the other end: closing a socket with unread bytes could lose the
            // reply.
            let answered = stream.set_nonblocking(true);
            let mut stream = stream;
            let _ = answered.and_then(|()| stream.write_all(&refuse(&SecureError::NoDescriptor)));
            let _ = stream.read(&mut [0; 256]);
            self.refused += 1;
            tracing::warn!(%from, "a connection was refused: no file descriptor is left");
        }
        let is_accepted = accepted.is_ok();
        drop(accepted);
        self.spare = self.listener.try_clone().ok();
        is_accepted
    }

    /// Without a free descriptor the watch would report the same connection indefinitely. So the
    /// listener is not watched during a backoff.
    fn pause_unless_harmless(&mut self, error: &io::Error, watch: &Watch) {
        use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
        if !matches!(error.kind(), WouldBlock | Interrupted | ConnectionAborted) {
            tracing::warn!(%error, "connections cannot be accepted");
            watch.remove(&self.listener);
            self.paused_until = Some(Instant::now() + PAUSE);
        }
    }

    /// Refuses connections whose handshake has timed out.
    pub(crate) fn expire(&mut self, now: Instant, watch: &Watch) {
        if self.paused_until.is_some_and(|until| until <= now) {
            self.paused_until =
                watch.add(&self.listener, ACCEPTOR, false).is_err().then(|| now + PAUSE);
        }
        while self.pending.front().is_some_and(|pending| pending.until <= now) {
            self.refuse(0, &SecureError::Io(io::ErrorKind::TimedOut.into()), watch);
        }
    }

    fn refuse(&mut self, at: usize, why: &SecureError, watch: &Watch) {
        let Some(mut pending) = self.pending.remove(at) else { return };
        let _ = pending.stream.write(&refuse(why));
        watch.remove(&pending.stream);
        self.refused += 1;
        let weight = match why {
            SecureError::WrongKey => 2,
            SecureError::OtherJob => 1,
            _ => 0,
        };
        if self.best_reason.as_ref().is_none_or(|(known, _)| *known <= weight) {
            self.best_reason = Some((weight, format!("{}: {why}", pending.from)));
        }
        tracing::debug!(from = %pending.from, %why, "a connection was refused");
    }
}
