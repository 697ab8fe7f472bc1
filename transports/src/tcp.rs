//! A stream over TCP.
//!
//! One system call moves a head and its body, from and to the caller's memory: nothing is copied,
//! allocated or kept here, except for messages that fit into one small buffer. The calling thread
//! drives both directions, so two ranks that send to one another at once need no third thread. At
//! most 256 KiB move in one call, so neither direction starves the other.

use crate::parts::{unfilled, unsent};
use crate::stream::{Fault, HEAD, Stream};
use maypole_kernels::{View, ViewMut};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// Most bytes of a body that one call moves.
const MOST_PER_CALL: usize = 256 << 10;

/// Calls never wait, and never raise SIGPIPE.
const FLAGS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// An established TCP connection, as a [`Stream`].
///
/// Dropping it closes the connection. Bytes that [`send`](Stream::send) has taken still arrive,
/// with one exception: if bytes *from* the peer are left unread, the kernel resets the connection,
/// and the bytes that it still held are lost. To lose none, call [`finish`](Stream::finish) and
/// then receive until [`Fault::Closed`].
///
/// ```
/// use maypole_kernels::{View, ViewMut};
/// use maypole_transports::{HEAD, Stream, Tcp};
/// use std::net::{TcpListener, TcpStream};
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let mut here = Tcp::new(TcpStream::connect(listener.local_addr()?)?)?;
/// let mut there = Tcp::new(listener.accept()?.0)?;
///
/// assert_eq!(here.send(&[7; HEAD], View::of(b"ribbon"), 0)?, HEAD + 6);
///
/// let mut head = [0; HEAD];
/// let mut body = [0; 6];
/// let mut received = 0;
/// while received < HEAD + 6 {
///     received += there.receive(&mut head, ViewMut::of(&mut body), received)?;
/// }
/// assert_eq!((head, &body), ([7; HEAD], b"ribbon"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Tcp(TcpStream);

impl Tcp {
    /// Makes a stream of a connection. Makes the socket non-blocking, turns off Nagle's delay, and
    /// lets the kernel probe an idle connection, which detects a dead host after 30 s of silence.
    /// The kernel chooses the sizes of the buffers, and, unless both ends are on one host, the
    /// congestion control.
    ///
    /// # Errors
    /// If the kernel refuses one of these options, as for a socket that is not connected any more.
    pub fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let probes = TcpKeepalive::new()
            .with_time(Duration::from_secs(10))
            .with_interval(Duration::from_secs(5));
        SockRef::from(&socket).set_tcp_keepalive(&probes.with_retries(4))?;
        if socket.peer_addr()?.ip() == socket.local_addr()?.ip() {
            stop_pacing(&socket);
        }
        Ok(Self(socket))
    }

    /// Makes the kernel give up the connection, with [`io::ErrorKind::TimedOut`] in [`Fault::Io`],
    /// if for `silence` the peer's host has not acknowledged sent bytes, or the peer has not read
    /// although its buffers are full.
    ///
    /// By default the kernel gives up only after about 15 minutes of retransmission. Choose more
    /// than any deadline of a collective: a peer that computes for a while with full buffers is
    /// late, but not dead, and `TCP_USER_TIMEOUT` does not tell the two apart. It counts a closed
    /// window as silence, even if the peer's host answers every probe.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn give_up_after(&self, silence: Duration) -> io::Result<()> {
        SockRef::from(&self.0).set_tcp_user_timeout(Some(silence))
    }
}

impl Tcp {
    /// Returns the number of bytes that were taken and that the peer's host has not acknowledged
    /// yet, or zero if the kernel does not know. These bytes are lost if the connection is closed
    /// while bytes from the peer are unread.
    pub fn unsent(&self) -> usize {
        let mut bytes: libc::c_int = 0;
        // SAFETY: the request writes one `int`, which outlives this call.
        let outcome = unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TIOCOUTQ, &mut bytes) };
        if outcome == 0 { usize::try_from(bytes).unwrap_or(0) } else { 0 }
    }
}

/// Most bytes of a body that is copied behind its head into one buffer. The copy of so few bytes
/// costs less than a system call with two buffers.
const INLINE: usize = 112;

impl Tcp {
    #[inline]
    fn send_inline(&mut self, head: &[u8; HEAD], body: View<'_>) -> Result<usize, Fault> {
        let mut whole = [0; HEAD + INLINE];
        let whole = &mut whole[..HEAD + body.len()];
        whole[..HEAD].copy_from_slice(head);
        body.copy_to(&mut whole[HEAD..]);
        // SAFETY: `whole` is readable for its length, and outlives this call.
        let sent = attempt(|| unsafe {
            libc::send(self.0.as_raw_fd(), whole.as_ptr().cast(), whole.len(), FLAGS)
        })?;
        Ok(sent.unwrap_or(0))
    }

    #[inline]
    fn receive_inline(&mut self, head: &mut [u8; HEAD], body: ViewMut<'_>) -> Result<usize, Fault> {
        let mut whole = [0; HEAD + INLINE];
        let whole = &mut whole[..HEAD + body.len()];
        // SAFETY: `whole` is writable for its length, and outlives this call.
        let attempted = attempt(|| unsafe {
            libc::recv(self.0.as_raw_fd(), whole.as_mut_ptr().cast(), whole.len(), FLAGS)
        })?;
        let received = match attempted {
            Some(0) => return Err(Fault::Closed),
            received => received.unwrap_or(0),
        };
        let in_head = received.min(HEAD);
        head[..in_head].copy_from_slice(&whole[..in_head]);
        body.slice(0, received - in_head).fill_from(&whole[in_head..received]);
        Ok(received)
    }
}

impl Stream for Tcp {
    #[inline]
    fn send(&mut self, head: &[u8; HEAD], body: View<'_>, skip: usize) -> Result<usize, Fault> {
        if skip == 0 && body.len() <= INLINE {
            return self.send_inline(head, body);
        }
        let [head, body] = unsent(head, body, skip);
        let mut parts =
            [part(head.as_ptr(), head.len()), part(body.as_ptr(), body.len().min(MOST_PER_CALL))];
        let message = message(&mut parts);
        // SAFETY: `message` names two parts, each readable for as long as its view, and both views
        // outlive this call.
        let sent = attempt(|| unsafe { libc::sendmsg(self.0.as_raw_fd(), &message, FLAGS) })?;
        Ok(sent.unwrap_or(0))
    }

    #[inline]
    fn receive(
        &mut self,
        head: &mut [u8; HEAD],
        body: ViewMut<'_>,
        skip: usize,
    ) -> Result<usize, Fault> {
        if skip == 0 && body.len() <= INLINE {
            return self.receive_inline(head, body);
        }
        let [head, body] = unfilled(head, body, skip);
        let mut parts = [
            part(head.as_mut_ptr(), head.len()),
            part(body.as_mut_ptr(), body.len().min(MOST_PER_CALL)),
        ];
        let mut message = message(&mut parts);
        // SAFETY: `message` names two parts, each writable for as long as its view, and both views
        // outlive this call.
        match attempt(|| unsafe { libc::recvmsg(self.0.as_raw_fd(), &mut message, FLAGS) })? {
            // A message is never empty, so zero bytes mean the end of the stream.
            Some(0) => Err(Fault::Closed),
            received => Ok(received.unwrap_or(0)),
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }

    fn finish(&mut self) {
        // It fails only for a connection that is lost already; the next receive reports that.
        let _ = self.0.shutdown(Shutdown::Write);
    }
}

/// Chooses a congestion control that does not pace, for a connection within one host.
///
/// Nothing is lost or queued on the way there. An algorithm that paces packets by timers, such as
/// BBR, only delays them: over loopback, collectives of 1 MiB and more took 4 to 17 % longer, and
/// small messages in a row up to 20 %.
fn stop_pacing(socket: &TcpStream) {
    // Every kernel has Reno. An administrator may forbid it, and then the default remains.
    let _ = SockRef::from(socket).set_tcp_congestion(b"reno");
}

#[inline]
fn part(start: *const u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: start.cast_mut().cast(), iov_len: len }
}

/// Returns the message that `parts` make up, for a connected socket. The message points to them.
#[inline]
fn message(parts: &mut [libc::iovec; 2]) -> libc::msghdr {
    // SAFETY: all fields of a message are integers and pointers, for which zero is a value: no
    // address, no control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len() as _;
    message
}

/// Returns the bytes that `call` moved, or `None` if it would have to wait. Repeats a call that a
/// signal interrupts.
#[inline]
fn attempt(mut call: impl FnMut() -> libc::ssize_t) -> Result<Option<usize>, Fault> {
    loop {
        if let Ok(bytes) = usize::try_from(call()) {
            return Ok(Some(bytes));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN) => return Ok(None),
            Some(libc::EINTR) => continue,
            _ => return Err(lost(error)),
        }
    }
}

#[cold]
fn lost(error: io::Error) -> Fault {
    match error.raw_os_error() {
        Some(libc::ECONNRESET | libc::EPIPE) => Fault::Closed,
        _ => Fault::Io(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (Tcp, Tcp) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Tcp::new(here).unwrap(), Tcp::new(listener.accept().unwrap().0).unwrap())
    }

    #[test]
    fn a_connection_is_set_up_for_small_messages_and_vanishing_hosts() {
        let (here, _there) = pair();
        let socket = SockRef::from(&here.0);
        assert!(
            here.0.nodelay().unwrap()
                && socket.keepalive().unwrap()
                && socket.nonblocking().unwrap()
        );
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(10));
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), Duration::from_secs(5));
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 4);
        assert_eq!(socket.tcp_user_timeout().unwrap(), None);
        here.give_up_after(Duration::from_secs(400)).unwrap();
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(400)));
    }

    #[test]
    fn a_connection_within_a_host_is_not_paced() {
        let (here, there) = pair();
        for end in [&here, &there] {
            let name = SockRef::from(&end.0).tcp_congestion().unwrap();
            assert!(name.starts_with(b"reno\0"), "{}", String::from_utf8_lossy(&name));
        }
    }

    #[test]
    fn one_call_moves_a_bounded_part_of_a_body() {
        let (mut here, mut there) = pair();
        let body = vec![1; 8 << 20];
        let sent = here.send(&[0; HEAD], View::of(&body), 0).unwrap();
        assert!((1..=HEAD + MOST_PER_CALL).contains(&sent), "{sent}");
        let mut into = vec![0; 8 << 20];
        while there.receive(&mut [0; HEAD], ViewMut::of(&mut into), 0).unwrap() == 0 {}
    }

    #[test]
    fn only_a_peer_that_left_counts_as_closed() {
        for left in [libc::ECONNRESET, libc::EPIPE] {
            assert!(matches!(lost(io::Error::from_raw_os_error(left)), Fault::Closed));
        }
        for refused in [libc::ETIMEDOUT, libc::EHOSTUNREACH, libc::ENOMEM, libc::EBADF] {
            let Fault::Io(error) = lost(io::Error::from_raw_os_error(refused)) else {
                panic!("{refused} is a refusal")
            };
            assert_eq!(error.raw_os_error(), Some(refused));
        }
    }

    #[test]
    fn an_interrupted_call_is_repeated() {
        let mut answers = [-1, -1, 3].into_iter();
        let moved = attempt(|| {
            // SAFETY: errno belongs to this thread.
            unsafe { *libc::__errno_location() = libc::EINTR };
            answers.next().unwrap()
        });
        assert_eq!(moved.unwrap(), Some(3));
    }
}
