//! What the standard library's sockets leave out: options, kernel-chosen Unix names, who is at the
//! other end.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

/// Silence after which the kernel begins to ask whether the other host is still there.
const IDLE: Duration = Duration::from_secs(5);
const BETWEEN_PROBES: Duration = Duration::from_secs(1);

/// Sends small writes at once, and gives up a connection whose other host has not answered for
/// `patience`.
///
/// A process that is stopped does not count as gone: its kernel goes on answering.
///
/// # Errors
/// What the kernel reports.
pub fn set_tcp_options(socket: &TcpStream, patience: Duration) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let socket = SockRef::from(socket);
    socket.set_tcp_keepalive(
        &TcpKeepalive::new().with_time(IDLE).with_interval(BETWEEN_PROBES).with_retries(5),
    )?;
    // The kernel takes milliseconds in an `int`.
    socket.set_tcp_user_timeout(Some(patience.min(Duration::from_secs(1_000_000))))
}

/// Listens on an abstract Unix name of the kernel's choosing; gives that name, too.
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
/// If nobody listens there, or not in our network namespace.
pub fn connect_abstract(name: &[u8]) -> io::Result<UnixStream> {
    UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)
}

/// Connects to an abstract Unix name without ever waiting for who listens there. The connection is
/// non-blocking.
///
/// # Errors
/// If nobody listens there, or not in our network namespace, or too many others wait already.
pub fn connect_abstract_nonblocking(name: &[u8]) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    Ok(UnixStream::from(socket))
}

/// True if the process at the other end runs as our user.
///
/// # Errors
/// What the kernel reports.
pub fn same_user(socket: &UnixStream) -> io::Result<bool> {
    Ok(sockopt::socket_peercred(socket)?.uid == rustix::process::geteuid())
}

/// Allows this process as many descriptors as its hard limit, and says how many those are (`None`:
/// without end).
pub fn raise_descriptor_limit() -> Option<u64> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Up to the hard limit is always allowed; if it is refused all the same, what we had remains.
    let _ =
        setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit });
    getrlimit(Resource::Nofile).current
}

/// Our effective user's number.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// `N` bytes that nobody can guess.
///
/// # Errors
/// If the kernel has no random numbers (before 3.17, or forbidden).
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(more) => filled += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
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
    fn a_door_with_too_many_before_it_is_not_waited_at() {
        let (listener, name) = listen_abstract(1).unwrap();
        let callers: Vec<_> =
            (0..10).map_while(|_| connect_abstract_nonblocking(&name).ok()).collect();
        assert!((1..10).contains(&callers.len()), "{} got in", callers.len());
        drop(listener);
        connect_abstract_nonblocking(&name).unwrap_err();
    }

    #[test]
    fn the_descriptor_limit_is_the_hard_limit_afterwards() {
        let limit = raise_descriptor_limit();
        assert_eq!(limit, rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum);
    }

    #[test]
    fn random_bytes_differ() {
        assert_ne!(random::<16>().unwrap(), random::<16>().unwrap());
    }
}
