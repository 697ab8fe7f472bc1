//! A blocking socket whose every read and write ends by one deadline, however slowly the other end
//! drips.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Sockets that can give up.
pub(crate) trait Patience: Read + Write {
    fn set_patience(&self, patience: Duration) -> io::Result<()>;
}

impl Patience for TcpStream {
    fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))?;
        self.set_write_timeout(Some(patience))
    }
}

impl Patience for UnixStream {
    fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))?;
        self.set_write_timeout(Some(patience))
    }
}

pub(crate) struct Timed<'a, S> {
    pub(crate) socket: &'a mut S,
    pub(crate) deadline: Instant,
}

impl<S: Patience> Timed<'_, S> {
    fn arm(&self) -> io::Result<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // Less than a microsecond would mean for ever.
        self.socket.set_patience(left.max(Duration::from_millis(1)))
    }
}

impl<S: Patience> Read for Timed<'_, S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.arm()?;
        self.socket.read(into)
    }
}

impl<S: Patience> Write for Timed<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.arm()?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}
