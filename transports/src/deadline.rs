//! A blocking socket whose reads and writes all end by one deadline, even if the peer sends slowly.

use crate::descriptor::bound_waits;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Borrows a blocking socket until a deadline.
///
/// A read or write that would last beyond the deadline fails with [`io::ErrorKind::TimedOut`] or
/// [`io::ErrorKind::WouldBlock`]. The last timeout stays set on the socket.
///
/// ```
/// use maypole_transports::deadline::DeadlineSocket;
/// use std::{io::Read, os::unix::net::UnixStream, time::{Duration, Instant}};
///
/// let (mut here, _silent) = UnixStream::pair()?;
/// let deadline = Instant::now() + Duration::from_millis(10);
/// let mut socket = DeadlineSocket { socket: &mut here, deadline };
/// assert!(socket.read(&mut [0]).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct DeadlineSocket<'a, S> {
    /// The socket, in blocking mode.
    pub socket: &'a mut S,
    /// The end of all reads and writes.
    pub deadline: Instant,
}

impl<S: AsFd> DeadlineSocket<'_, S> {
    fn arm(&self) -> io::Result<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // The system takes a timeout that rounds to zero microseconds as no timeout.
        bound_waits(&*self.socket, left.max(Duration::from_millis(1)))
    }
}

impl<S: AsFd + Read> Read for DeadlineSocket<'_, S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.arm()?;
        self.socket.read(into)
    }
}

impl<S: AsFd + Write> Write for DeadlineSocket<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.arm()?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}
