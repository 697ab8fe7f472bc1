//! A control connection: encrypted messages over a non-blocking socket.

use super::message::encode;
use maypole_transports::secure::Channel;
use maypole_transports::watch::Watch;
use serde::Serialize;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

/// One end of a control connection.
#[derive(Debug)]
pub(crate) struct ControlConnection {
    pub(crate) stream: TcpStream,
    channel: Channel,
    /// Encrypted bytes that the socket has not taken.
    out: Vec<u8>,
    /// Whether the watch reports when the socket takes more.
    writable: bool,
    /// When the last bytes came from the other end.
    pub(crate) heard: Instant,
}

/// The end of a connection, and how it was noticed.
#[derive(Debug)]
pub(crate) struct ConnectionEnd(pub(crate) String);

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

    /// Sends what the socket takes. If bytes are left, the watch reports when it takes more.
    pub(crate) fn flush(&mut self, number: u64, watch: &Watch) {
        // A failed connection is noticed when it is read.
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

    /// Sends what is queued, if the socket takes it at once, and ends the connection.
    pub(crate) fn finish(&mut self) {
        let _ = self.write();
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Reads what has come: all messages, and the end if the connection has ended after them.
    pub(crate) fn read(&mut self, maximum: usize) -> (Vec<Vec<u8>>, Option<ConnectionEnd>) {
        let mut messages = Vec::new();
        let ended = self.read_into(maximum, &mut messages).err();
        (messages, ended)
    }

    fn read_into(
        &mut self,
        maximum: usize,
        messages: &mut Vec<Vec<u8>>,
    ) -> Result<(), ConnectionEnd> {
        let mut bytes = vec![0; 64 << 10];
        // Messages may have come together with the last bytes of joining.
        self.open(maximum, messages)?;
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => {
                    return Err(ConnectionEnd("its connection ended without a goodbye".to_owned()));
                }
                Ok(read) => self.channel.receive(&bytes[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // A process that is killed while bytes are unread resets its connections. The
                // connection has ended, as in the case above.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return Err(ConnectionEnd("its connection ended without a goodbye".to_owned()));
                }
                Err(error) => {
                    return Err(ConnectionEnd(format!("its connection failed ({error})")));
                }
            }
            self.heard = Instant::now();
            self.open(maximum, messages)?;
        }
    }

    fn open(&mut self, maximum: usize, messages: &mut Vec<Vec<u8>>) -> Result<(), ConnectionEnd> {
        let broken = |why| ConnectionEnd(format!("its connection is broken ({why})"));
        while let Some(bytes) = self.channel.open(maximum).map_err(broken)? {
            messages.push(bytes);
        }
        Ok(())
    }
}
