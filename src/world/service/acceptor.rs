//! The one listening port of a process: who connects is a stranger until its handshake is over.

use maypole_transports::secure::{
    Binding, Channel, HandshakeProgress, JobSecret, Responder, SecureError, refuse,
};
use maypole_transports::watch::Watch;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Strangers at a time; the oldest goes when another one comes.
const HALF_OPEN: usize = 64;
/// How long a stranger may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long nobody is let in after a failure to accept.
const PAUSE: Duration = Duration::from_millis(100);
/// Connections taken from the queue before other events are looked at.
const AT_ONCE: usize = 64;

/// The number of the listener in a [`Watch`]; strangers have the numbers above it.
pub(crate) const ACCEPTOR: u64 = 3 << 40;

#[derive(Debug)]
pub(crate) struct Acceptor {
    listener: TcpListener,
    secret: JobSecret,
    half_open: VecDeque<PendingConnection>,
    next: u64,
    /// Nobody is let in until then, because there is no descriptor for them.
    full: Option<Instant>,
    /// Connections that came to nothing.
    pub(crate) strangers: u64,
    /// The most telling reason of one of them, and where it came from.
    told: Option<(u8, String)>,
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
    pub(crate) fn new(listener: TcpListener, secret: JobSecret, watch: &Watch) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        watch.add(&listener, ACCEPTOR, false)?;
        Ok(Self {
            listener,
            secret,
            half_open: VecDeque::new(),
            next: ACCEPTOR,
            full: None,
            strangers: 0,
            told: None,
        })
    }

    pub(crate) fn close(&self, watch: &Watch) {
        watch.remove(&self.listener);
    }

    pub(crate) fn half_open(&self) -> usize {
        self.half_open.len()
    }

    /// Says how many connections came to nothing, and why one of them did; nothing if there were
    /// none.
    pub(crate) fn complaint(&self) -> Option<String> {
        let (_, why) = self.told.as_ref()?;
        Some(format!("{} connections were turned away, one of them from {why}", self.strangers))
    }

    /// When [`expire`](Self::expire) has something to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.half_open.front().map(|stranger| stranger.until).into_iter().chain(self.full).min()
    }

    /// Deals with the event of `number`; gives a connection that is no stranger's any more.
    pub(crate) fn ready(&mut self, number: u64, watch: &Watch) -> Option<Authenticated> {
        if number == ACCEPTOR {
            self.accept(watch);
            return None;
        }
        let at = self.half_open.iter().position(|stranger| stranger.number == number)?;
        match self.half_open[at].advance() {
            Ok(None) => None,
            Ok(Some((binding, channel))) => {
                let stranger = self.half_open.remove(at).expect("found above");
                watch.remove(&stranger.stream);
                Some(Authenticated { stream: stranger.stream, binding, channel })
            }
            Err(why) => {
                self.turn_away(at, &why, watch);
                None
            }
        }
    }

    fn accept(&mut self, watch: &Watch) {
        for _ in 0..AT_ONCE {
            let (stream, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => return self.pause_unless_harmless(&error, watch),
            };
            if self.half_open.len() == HALF_OPEN {
                self.turn_away(0, &SecureError::Refused, watch);
            }
            self.next += 1;
            let number = self.next;
            if stream.set_nonblocking(true).is_err() || watch.add(&stream, number, false).is_err() {
                self.strangers += 1;
                continue;
            }
            let _ = stream.set_nodelay(true);
            let until = Instant::now() + PATIENCE;
            self.half_open.push_back(PendingConnection {
                number,
                stream,
                from,
                responder: Responder::new(&self.secret),
                until,
            });
        }
    }

    /// Without descriptors the watch would report the same caller for ever; so it is not asked for
    /// a while.
    fn pause_unless_harmless(&mut self, error: &io::Error, watch: &Watch) {
        use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
        if !matches!(error.kind(), WouldBlock | Interrupted | ConnectionAborted) {
            tracing::warn!(%error, "connections cannot be accepted");
            watch.remove(&self.listener);
            self.full = Some(Instant::now() + PAUSE);
        }
    }

    /// Drops strangers that took too long.
    pub(crate) fn expire(&mut self, now: Instant, watch: &Watch) {
        if self.full.is_some_and(|until| until <= now) {
            self.full = watch.add(&self.listener, ACCEPTOR, false).is_err().then(|| now + PAUSE);
        }
        while self.half_open.front().is_some_and(|stranger| stranger.until <= now) {
            self.turn_away(0, &SecureError::Io(io::ErrorKind::TimedOut.into()), watch);
        }
    }

    fn turn_away(&mut self, at: usize, why: &SecureError, watch: &Watch) {
        let Some(mut stranger) = self.half_open.remove(at) else { return };
        let _ = stranger.stream.write(&refuse(why));
        watch.remove(&stranger.stream);
        self.strangers += 1;
        let telling = match why {
            SecureError::WrongKey => 2,
            SecureError::OtherJob => 1,
            _ => 0,
        };
        if self.told.as_ref().is_none_or(|(known, _)| *known <= telling) {
            self.told = Some((telling, format!("{}: {why}", stranger.from)));
        }
        tracing::debug!(from = %stranger.from, %why, "a connection was turned away");
    }
}

impl PendingConnection {
    /// Reads what has come, and answers.
    fn advance(&mut self) -> Result<Option<(Binding, Channel)>, SecureError> {
        let mut bytes = [0; 256];
        loop {
            let wants = self.responder.wants().min(bytes.len());
            let read = match self.stream.read(&mut bytes[..wants]) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            match self.responder.feed(&bytes[..read])? {
                HandshakeProgress::More => {}
                // A handshake's few bytes always fit into a fresh socket's buffer.
                HandshakeProgress::Send(answer) => self.stream.write_all(&answer)?,
                HandshakeProgress::Done { binding, channel, accepted } => {
                    self.stream.write_all(&accepted)?;
                    return Ok(Some((binding, *channel)));
                }
            }
        }
    }
}
