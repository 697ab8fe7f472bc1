//! Encrypted connections for messages between processes: blocking ones, and control connections,
//! which never block.

use crate::wire::{decode, encode};
use crate::world::calls::GroupId;
use maypole_transports::deadline::DeadlineSocket;
use maypole_transports::secure::{Binding, Channel, JobSecret, Purpose, SecureError, initiate};
use maypole_transports::sockets::set_tcp_options;
use maypole_transports::watch::Watch;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The calling end of a connection whose other end has proved the job's key. Each send or receive
/// blocks until a deadline.
#[derive(Debug)]
pub(crate) struct DialedLink {
    pub(crate) stream: TcpStream,
    pub(crate) channel: Channel,
}

impl DialedLink {
    /// Connects to `address` by `until`. The connection fails once the other host has been silent
    /// for `silence`.
    pub(crate) fn dial(
        address: SocketAddr,
        silence: Duration,
        (secret, binding): (&JobSecret, &Binding),
        until: Instant,
    ) -> Result<Self, SecureError> {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let mut stream = TcpStream::connect_timeout(&address, left)?;
        if stream.local_addr()? == stream.peer_addr()? {
            // No process listens at that port, and the kernel connected the socket to itself.
            return Err(io::Error::from(ErrorKind::ConnectionRefused).into());
        }
        set_tcp_options(&stream, silence)?;
        let mut timed = DeadlineSocket { socket: &mut stream, deadline: until };
        let channel = initiate(&mut timed, secret, binding)?;
        Ok(Self { stream, channel })
    }

    /// The same connection, non-blocking.
    pub(crate) fn into_control(self) -> io::Result<ControlConnection> {
        ControlConnection::new(self.stream, self.channel)
    }

    /// Sends `message`.
    pub(crate) fn send<T: Serialize>(
        &mut self,
        message: &T,
        deadline: Instant,
    ) -> Result<(), SecureError> {
        let mut sealed = Vec::new();
        self.channel.seal(&encode(message), &mut sealed);
        Ok(DeadlineSocket { socket: &mut self.stream, deadline }.write_all(&sealed)?)
    }

    /// Waits for one message of at most `maximum` bytes.
    ///
    /// # Errors
    /// If the connection ends or its deadline passes before that, or the bytes are no message.
    pub(crate) fn receive<T: DeserializeOwned>(
        &mut self,
        maximum: usize,
        deadline: Instant,
    ) -> Result<T, SecureError> {
        let mut timed = DeadlineSocket { socket: &mut self.stream, deadline };
        let mut bytes = [0; 4096];
        loop {
            if let Some(message) = self.channel.open(maximum)? {
                return decode(&message).map_err(|_| SecureError::UnknownProtocol);
            }
            match timed.read(&mut bytes)? {
                0 => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
                read => self.channel.receive(&bytes[..read]),
            }
        }
    }
}

/// The binding of a connection for `purpose`, from the first of two ranks to the second.
pub(crate) fn binding(
    purpose: Purpose,
    (group, lane): (GroupId, u32),
    [initiator, responder]: [usize; 2],
) -> Binding {
    let [initiator, responder] = [initiator, responder].map(|rank| rank as u32);
    Binding { purpose, group: group.words(), lane, initiator, responder }
}

/// True for a wait whose deadline has passed, and for a socket error of a timeout.
pub(crate) fn is_timeout(error: &SecureError) -> bool {
    let waited = |kind| matches!(kind, ErrorKind::TimedOut | ErrorKind::WouldBlock);
    matches!(error, SecureError::Io(error) if waited(error.kind()))
}

/// One end of a control connection.
#[derive(Debug)]
pub(crate) struct ControlConnection {
    pub(crate) stream: TcpStream,
    pub(crate) channel: Channel,
    /// Encrypted bytes that do not fit into the socket's buffer yet.
    out: Vec<u8>,
    /// True while the watch reports when the socket's buffer has room.
    writable: bool,
    /// The time of the last received bytes.
    pub(crate) heard: Instant,
}

impl ControlConnection {
    pub(crate) fn new(stream: TcpStream, channel: Channel) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, channel, out: Vec::new(), writable: false, heard: Instant::now() })
    }

    /// Queues a message; [`flush`](Self::flush) sends it.
    pub(crate) fn push<T: Serialize>(&mut self, message: &T) {
        self.push_bytes(&encode(message));
    }

    /// Queues a message that is encoded already.
    pub(crate) fn push_bytes(&mut self, message: &[u8]) {
        self.channel.seal(message, &mut self.out);
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.out.is_empty()
    }

    /// Sends the bytes that fit into the socket's buffer. If bytes are left, the watch reports when
    /// it has room.
    pub(crate) fn flush(&mut self, number: u64, watch: &Watch) {
        // A read reports a failed connection.
        let _ = self.write();
        let writable = !self.out.is_empty();
        if writable != self.writable && watch.change(&self.stream, number, writable).is_ok() {
            self.writable = writable;
        }
    }

    fn write(&mut self) -> io::Result<()> {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(written) => drop(self.out.drain(..written)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => {
                    self.out.clear();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Sends the queued bytes that fit into the socket's buffer, and ends the connection.
    pub(crate) fn finish(&mut self) {
        let _ = self.write();
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Reads all complete messages, and the reason if the connection has ended after them.
    pub(crate) fn read(&mut self, maximum: usize) -> (Vec<Vec<u8>>, Option<String>) {
        let mut messages = Vec::new();
        let ended = self.read_into(maximum, &mut messages).err();
        (messages, ended)
    }

    fn read_into(&mut self, maximum: usize, messages: &mut Vec<Vec<u8>>) -> Result<(), String> {
        let mut bytes = vec![0; 64 << 10];
        // Messages may have arrived together with the last bytes of joining.
        self.open(maximum, messages)?;
        let ended = || Err("its connection ended without a goodbye".to_owned());
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return ended(),
                Ok(read) => self.channel.receive(&bytes[..read]),
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => continue,
                    ErrorKind::WouldBlock => return Ok(()),
                    // A killed process with unread bytes resets its connections.
                    ErrorKind::ConnectionReset => return ended(),
                    _ => return Err(format!("its connection failed ({error})")),
                },
            }
            self.heard = Instant::now();
            self.open(maximum, messages)?;
        }
    }

    fn open(&mut self, maximum: usize, messages: &mut Vec<Vec<u8>>) -> Result<(), String> {
        let broken = |why| format!("its connection is broken ({why})");
        while let Some(bytes) = self.channel.open(maximum).map_err(broken)? {
            messages.push(bytes);
        }
        Ok(())
    }
}
