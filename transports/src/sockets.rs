//! Functions on sockets that the standard library lacks: options of TCP, abstract Unix names that
//! the kernel chooses, the user at the other end, the limit of descriptors.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

/// Silence after which the kernel begins to probe the other host.
const IDLE: Duration = Duration::from_secs(5);
/// Time between two probes.
const BETWEEN_PROBES: Duration = Duration::from_secs(1);

/// Makes the kernel send small writes immediately, and abort a connection whose other host has been
/// silent for `silence`.
///
/// A stopped process keeps its connection, because the kernel of its host still acknowledges.
///
/// # Errors
/// Errors of the kernel.
pub fn set_tcp_options(socket: &TcpStream, silence: Duration) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let socket = SockRef::from(socket);
    socket.set_tcp_keepalive(
        &TcpKeepalive::new().with_time(IDLE).with_interval(BETWEEN_PROBES).with_retries(5),
    )?;
    // The kernel takes milliseconds in an `int`.
    socket.set_tcp_user_timeout(Some(silence.min(Duration::from_secs(1_000_000))))
}

/// What the kernel has counted on a connection: fields of its `struct tcp_info`.
struct Counted {
    /// Bytes of a segment.
    segment: u32,
    /// Segments that are not acknowledged.
    unacknowledged: u32,
    /// The shortest round trip of the last minutes, in microseconds.
    round_trip: u32,
    /// The greatest rate at which segments were acknowledged, in bytes a second.
    rate: u64,
}

/// Reads an option of a socket. Returns how many bytes of `value` the kernel has written.
fn option(socket: &impl AsRawFd, (level, name): (i32, i32), value: &mut [u8]) -> io::Result<usize> {
    let mut len = value.len() as libc::socklen_t;
    let (descriptor, start) = (socket.as_raw_fd(), value.as_mut_ptr().cast());
    // SAFETY: the kernel writes at most `len` bytes to `value`, and both live until it returns.
    match unsafe { libc::getsockopt(descriptor, level, name, start, &raw mut len) } {
        0 => Ok(len as usize),
        _ => Err(io::Error::last_os_error()),
    }
}

fn counted(socket: &TcpStream) -> Option<Counted> {
    let mut info = [0u8; 168];
    let len = option(socket, (libc::IPPROTO_TCP, libc::TCP_INFO), &mut info).ok()?;
    let word = |at: usize| info[at..].first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
    let (segment, unacknowledged, round_trip) = (word(16)?, word(24)?, word(148)?);
    let rate = u64::from_ne_bytes(*info.last_chunk()?);
    let is_known = len == info.len() && (1..u32::MAX).contains(&round_trip);
    is_known.then_some(Counted { segment, unacknowledged, round_trip, rate })
}

/// Returns the shortest round trip that the kernel has seen on a connection in the last minutes; `None` if it
/// has seen none.
pub fn round_trip(socket: &TcpStream) -> Option<Duration> {
    counted(socket).map(|it| Duration::from_micros(it.round_trip.into()))
}

/// Shorter round trips are those of one machine or of one switch: a hop costs the same as over loopback, and no
/// bandwidth is worth measuring.
pub const NEAR: Duration = Duration::from_micros(64);

/// What a new connection may send before the first byte is acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    /// How many bytes.
    pub bytes: usize,
    segments: usize,
}

impl Flight {
    /// Segments that a connection may begin with (RFC 6928).
    const SEGMENTS: usize = 10;
    /// Receivers have room for so many bytes.
    const MOST: usize = 32 << 10;

    /// The flight of a connection that has nothing under way; `None` if the kernel does not count.
    pub fn of(socket: &TcpStream) -> Option<Self> {
        let segment = (counted(socket)?.segment as usize).max(1);
        let bytes = Self::MOST.min(Self::SEGMENTS * segment);
        Some(Self { bytes, segments: bytes.div_ceil(segment) })
    }

    /// Returns the bandwidth of the path in bytes a second, on a connection that has sent this flight, and nothing since
    /// the last acknowledgement: the slowest link spaces the segments, so that the last is acknowledged later than
    /// after a round trip (packet-train dispersion: Dovrolis, Ramanathan and Moore, INFOCOM 2001). The kernel takes
    /// the times, so a late reader does not change them. `None` if it counts none by `deadline`.
    pub fn bandwidth(self, socket: &TcpStream, deadline: Instant) -> Option<u64> {
        loop {
            let Counted { segment, unacknowledged, round_trip, rate } = counted(socket)?;
            if unacknowledged == 0 && rate > 0 {
                // The kernel's rate counts each segment as one of today's length.
                let counted = self.segments as u64 * u64::from(segment);
                let spread = (counted * 1_000_000 / rate).saturating_sub(round_trip.into());
                return Some(self.bytes as u64 * 1_000_000 / spread.max(1));
            }
            if Instant::now() >= deadline {
                return None;
            }
            // The kernel signals no acknowledgement, so this polls.
            thread::sleep(Duration::from_micros(u64::from(round_trip / 8).clamp(20, 1000)));
        }
    }
}

/// Listens on an abstract Unix name that the kernel chooses. Returns the listener and that name.
///
/// # Errors
/// If the process has no descriptor left.
pub fn listen_abstract(backlog: usize) -> io::Result<(UnixListener, Vec<u8>)> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // On Linux, binding to no name at all makes the kernel choose one.
    rustix::net::bind(&socket, &SocketAddrUnix::new_unnamed())?;
    rustix::net::listen(&socket, i32::try_from(backlog).unwrap_or(i32::MAX))?;
    let listener = UnixListener::from(socket);
    let address = listener.local_addr()?;
    let name = address.as_abstract_name().ok_or(io::ErrorKind::AddrNotAvailable)?.to_vec();
    Ok((listener, name))
}

/// Connects to an abstract Unix name.
///
/// # Errors
/// If no process of this network namespace listens there.
pub fn connect_abstract(name: &[u8]) -> io::Result<UnixStream> {
    UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)
}

/// Connects to an abstract Unix name, and fails rather than wait if the listener's queue is full.
/// The connection is non-blocking.
///
/// # Errors
/// If no process of this network namespace listens there, or the listener's queue is full.
pub fn connect_abstract_nonblocking(name: &[u8]) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    Ok(UnixStream::from(socket))
}

/// Returns true if the process at the other end runs as this process's user.
///
/// # Errors
/// Errors of the kernel.
pub fn same_user(socket: &UnixStream) -> io::Result<bool> {
    // `struct ucred`: a process, its user and its group. `rustix` reports an error for a process in another
    // namespace of process numbers, which has the number 0 here.
    let mut peer = [0, u32::MAX, u32::MAX];
    let bytes = bytemuck::bytes_of_mut(&mut peer);
    option(socket, (libc::SOL_SOCKET, libc::SO_PEERCRED), bytes)?;
    Ok(peer[1] == effective_user())
}

/// Raises the limit of open descriptors to the hard limit. Returns that limit, or `None` if there
/// is none.
pub fn raise_descriptor_limit() -> Option<u64> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Always allowed up to the hard limit. If it fails all the same, the old limit remains.
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    let _ = setrlimit(Resource::Nofile, raised);
    getrlimit(Resource::Nofile).current
}

/// Returns the soft limit of open descriptors, or `None` if there is none.
pub fn descriptor_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// Returns the effective user of this process.
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn a_kernel_chosen_name_can_be_connected_to() {
        let (listener, name) = listen_abstract(4).unwrap();
        let mut here = connect_abstract(&name).unwrap();
        let (mut there, _) = listener.accept().unwrap();
        assert!(same_user(&there).unwrap() && same_user(&here).unwrap());
        here.write_all(b"x").unwrap();
        let mut byte = [0];
        there.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
    }

    #[test]
    fn a_full_queue_is_not_waited_for() {
        let (listener, name) = listen_abstract(1).unwrap();
        let connections: Vec<_> =
            (0..10).map_while(|_| connect_abstract_nonblocking(&name).ok()).collect();
        assert!((1..10).contains(&connections.len()), "{} connected", connections.len());
        drop(listener);
        connect_abstract_nonblocking(&name).unwrap_err();
    }

    #[test]
    fn the_descriptor_limit_is_the_hard_limit_afterwards() {
        let limit = raise_descriptor_limit();
        assert_eq!(limit, rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum);
    }
}
