//! A stream over TCP.
//!
//! One system call moves a head and its body. Long messages go from and to the caller's memory,
//! without a copy. The calling thread drives both directions, so two ranks that send to one another
//! concurrently need no third thread. At most 256 KiB move in one call, so neither direction starves
//! the other.
//!
//! Short messages are copied, which costs less than system calls. A sender copies the body after
//! its head. A receiver takes all that has arrived, in one call, into a buffer: if the sender runs
//! ahead, such as a root that only sends, one call receives many messages.

use crate::parts::{unfilled, unsent};
use crate::poll::{PollFd, interest};
use crate::read_ahead::ReadAhead;
use crate::stream::{Fault, HEAD, Result, Stream};
use maypole_kernels::{View, ViewMut};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// Most bytes of a body that one call moves.
const MOST_PER_CALL: usize = 256 << 10;

/// Most bytes of a message, or of the rest of one, that is received into the buffer of short
/// messages. Copying more costs as much as the saved system calls.
pub const LONGEST_AHEAD: usize = HEAD + (2 << 10);

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
pub struct Tcp {
    socket: TcpStream,
    ahead: ReadAhead,
}

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
        if is_within_host(&socket) {
            stop_pacing(&socket);
        }
        Ok(Self { socket, ahead: ReadAhead::new() })
    }

    /// Returns the number of bytes that were taken and that the peer's host has not acknowledged
    /// yet, or zero if the kernel does not report it. These bytes are lost if the connection is
    /// closed while bytes from the peer are unread.
    pub fn unsent(&self) -> usize {
        let mut bytes: libc::c_int = 0;
        // SAFETY: the request writes one `int`, which outlives this call.
        let outcome = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::TIOCOUTQ, &mut bytes) };
        if outcome == 0 { usize::try_from(bytes).unwrap_or(0) } else { 0 }
    }
}

/// Most bytes of a body that is copied after its head into one buffer. The copy of so few bytes
/// costs less than a system call with two buffers.
const INLINE: usize = 112;

impl Tcp {
    #[inline]
    fn send_inline(&mut self, head: &[u8; HEAD], body: View<'_>) -> Result<usize> {
        let mut whole = [0; HEAD + INLINE];
        let whole = &mut whole[..HEAD + body.len()];
        whole[..HEAD].copy_from_slice(head);
        body.copy_to(&mut whole[HEAD..]);
        // SAFETY: `whole` is readable for its length, and outlives this call.
        let sent = attempt(|| unsafe {
            libc::send(self.socket.as_raw_fd(), whole.as_ptr().cast(), whole.len(), FLAGS)
        })?;
        Ok(sent.unwrap_or(0))
    }

    /// Receives all bytes that have arrived, at most a buffer full.
    #[inline]
    fn read_ahead(&mut self) -> Result<()> {
        let Self { socket, ahead } = self;
        ahead.fill(|into| {
            // SAFETY: `into` is writable for its length, and outlives this call.
            let received = attempt(|| unsafe {
                libc::recv(socket.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), FLAGS)
            })?;
            unless_ended(received)
        })
    }

    /// Receives to `head` and `body`, at most [`MOST_PER_CALL`] bytes of the body. If these are all, the head of the
    /// next message comes with them: who needs it to know the place of the next body makes no call for it.
    #[inline]
    fn receive_straight(&mut self, head: ViewMut<'_>, body: ViewMut<'_>) -> Result<usize> {
        let Self { socket, ahead } = self;
        let wanted = head.len() + body.len().min(MOST_PER_CALL);
        let next = if body.len() <= MOST_PER_CALL { HEAD } else { 0 };
        let mut received = 0;
        ahead.fill(|into| {
            let mut parts = [
                part(head.as_mut_ptr(), head.len()),
                part(body.as_mut_ptr(), wanted - head.len()),
                part(into.as_mut_ptr(), next),
            ];
            let mut message = message(&mut parts);
            // SAFETY: `message` names three parts, each writable for as long as it says, and all outlive
            // this call.
            let attempted =
                attempt(|| unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, FLAGS) })?;
            received = unless_ended(attempted)?;
            Ok::<_, Fault>(received.saturating_sub(wanted))
        })?;
        Ok(received.min(wanted))
    }
}

impl Stream for Tcp {
    #[inline]
    fn send(&mut self, head: &[u8; HEAD], body: View<'_>, skip: usize) -> Result<usize> {
        if skip == 0 && body.len() <= INLINE {
            return self.send_inline(head, body);
        }
        let [head, body] = unsent(head, body, skip);
        let mut parts =
            [part(head.as_ptr(), head.len()), part(body.as_ptr(), body.len().min(MOST_PER_CALL))];
        let message = message(&mut parts);
        // SAFETY: `message` names two parts, each readable for as long as its view, and both views
        // outlive this call.
        let sent = attempt(|| unsafe { libc::sendmsg(self.socket.as_raw_fd(), &message, FLAGS) })?;
        Ok(sent.unwrap_or(0))
    }

    #[inline]
    fn receive(&mut self, head: &mut [u8; HEAD], body: ViewMut<'_>, skip: usize) -> Result<usize> {
        if self.ahead.is_empty() {
            if HEAD + body.len() - skip > LONGEST_AHEAD {
                let [head, body] = unfilled(head, body, skip);
                return self.receive_straight(head, body);
            }
            self.read_ahead()?;
        }
        Ok(self.ahead.take(head, body, skip))
    }

    fn interest(&self, reads: bool, writes: bool) -> Option<PollFd<'_>> {
        interest(self.socket.as_fd(), reads, writes)
    }

    fn finish(&mut self) {
        // It fails only for a connection that is lost already; the next receive reports that.
        let _ = self.socket.shutdown(Shutdown::Write);
    }
}

/// True if both ends have the same address. False if the connection is lost; its first use then
/// fails.
fn is_within_host(socket: &TcpStream) -> bool {
    match (socket.peer_addr(), socket.local_addr()) {
        (Ok(peer), Ok(own)) => peer.ip() == own.ip(),
        _ => false,
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
fn message(parts: &mut [libc::iovec]) -> libc::msghdr {
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

/// Returns how many bytes a call has received. A message is never empty, so a call that received none
/// has reached the end of the stream.
#[inline]
fn unless_ended(attempted: Option<usize>) -> Result<usize> {
    if attempted == Some(0) { Err(Fault::Closed) } else { Ok(attempted.unwrap_or(0)) }
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
    use std::time::Instant;

    fn pair() -> (Tcp, Tcp) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Tcp::new(here).unwrap(), Tcp::new(listener.accept().unwrap().0).unwrap())
    }

    #[test]
    fn a_connection_is_set_up_for_small_messages_and_vanishing_hosts() {
        let (here, _there) = pair();
        let socket = SockRef::from(&here.socket);
        assert!(
            here.socket.nodelay().unwrap()
                && socket.keepalive().unwrap()
                && socket.nonblocking().unwrap()
        );
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(10));
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), Duration::from_secs(5));
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 4);
        assert_eq!(socket.tcp_user_timeout().unwrap(), None);
    }

    #[test]
    fn a_connection_within_a_host_is_not_paced() {
        let (here, there) = pair();
        for end in [&here, &there] {
            let name = SockRef::from(&end.socket).tcp_congestion().unwrap();
            assert!(name.starts_with(b"reno\0"), "{}", String::from_utf8_lossy(&name));
        }
    }

    /// Sends messages of these lengths, and returns when all have reached the far end's kernel.
    fn send_all(here: &mut Tcp, lengths: &[usize]) {
        for (position, len) in lengths.iter().enumerate() {
            let body = vec![position as u8; *len];
            let sent = here.send(&[position as u8; HEAD], View::of(&body), 0).unwrap();
            assert_eq!(sent, HEAD + len, "a call sends a head and its body together");
        }
        let end = Instant::now() + Duration::from_secs(30);
        while here.unsent() > 0 {
            assert!(Instant::now() < end, "{} bytes do not arrive", here.unsent());
            std::thread::yield_now();
        }
    }

    /// Receives messages of these lengths, each in one attempt.
    fn receive_all(there: &mut Tcp, lengths: &[usize]) {
        for (position, len) in lengths.iter().enumerate() {
            let mut head = [0; HEAD];
            let mut body = vec![0; *len];
            let received = there.receive(&mut head, ViewMut::of(&mut body), 0).unwrap();
            assert_eq!(received, HEAD + len, "a call receives a head and its body together");
            let sent = ([position as u8; HEAD], vec![position as u8; *len]);
            assert!((head, body) == sent, "message {position} is another");
        }
    }

    /// The bytes that have arrived and that no system call has received.
    fn waiting(there: &Tcp) -> usize {
        there.socket.peek(&mut vec![0; 1 << 20]).unwrap_or(0)
    }

    #[test]
    fn one_call_moves_a_head_and_its_body() {
        let (mut here, mut there) = pair();
        let lengths = [LONGEST_AHEAD, 5000, 60_000, 0, LONGEST_AHEAD];
        for len in lengths {
            send_all(&mut here, &[len]);
            receive_all(&mut there, &[len]);
        }
    }

    #[test]
    fn a_body_comes_with_the_next_head() {
        let (mut here, mut there) = pair();
        send_all(&mut here, &[5000, 60_000, 0]);
        let mut calls = 0;
        for (position, len) in [5000, 60_000, 0].into_iter().enumerate() {
            let (mut head, mut body) = ([0; HEAD], vec![0; len]);
            let mut received = 0;
            while received < HEAD + len {
                let known = if received < HEAD { 0 } else { len };
                let body = ViewMut::of(&mut body[..known]);
                let before = waiting(&there);
                received += there.receive(&mut head, body, received).unwrap();
                calls += usize::from(waiting(&there) < before);
            }
            assert!((head, body) == ([position as u8; HEAD], vec![position as u8; len]));
        }
        // The first one fills the buffer, and the second one takes the rest.
        assert_eq!(calls, 2);
    }

    #[test]
    fn one_call_receives_many_short_messages() {
        let (mut here, mut there) = pair();
        let lengths = [0, 8, 1, 100, 300, 8, 0];
        send_all(&mut here, &lengths);
        receive_all(&mut there, &lengths[..1]);
        assert_eq!(waiting(&there), 0, "the first call has taken all");
        for (position, len) in lengths.iter().enumerate().skip(1) {
            let (mut head, mut body) = ([0; HEAD], vec![0; *len]);
            there.receive(&mut head, ViewMut::of(&mut body), 0).unwrap();
            assert!((head, body) == ([position as u8; HEAD], vec![position as u8; *len]));
        }
        assert_eq!(there.receive(&mut [0; HEAD], ViewMut::EMPTY, 0).unwrap(), 0);
    }

    #[test]
    fn a_long_message_behind_short_ones_arrives_whole() {
        let (mut here, mut there) = pair();
        send_all(&mut here, &[8, 30_000, 8]);
        receive_all(&mut there, &[8]);
        let mut head = [0; HEAD];
        let mut body = vec![0u8; 30_000];
        let mut received = 0;
        while received < HEAD + body.len() {
            received += there.receive(&mut head, ViewMut::of(&mut body), received).unwrap();
        }
        assert!((head, body) == ([1; HEAD], vec![1; 30_000]), "the long message is another");
        // The head may have come with the body before.
        let (mut body, mut received) = ([0u8; 8], 0);
        while received < HEAD + body.len() {
            received += there.receive(&mut head, ViewMut::of(&mut body), received).unwrap();
        }
        assert_eq!((head, body), ([2; HEAD], [2; 8]));
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
