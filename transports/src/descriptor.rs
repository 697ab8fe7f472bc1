//! Descriptors that survive `exec`: made here for a child, or inherited from a launcher.
//!
//! An inherited descriptor is only a number in a variable. [`take_inherited`] turns that number
//! into an owned descriptor, once; [`inheritable_segment`] makes one that children inherit. Files
//! that hold a secret are opened with [`open_private`].

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::{Errno, FdFlags};

/// Numbers that must not be taken, because they were taken before, or because this module made them
/// for children and this process owns them.
static CLAIMED: Mutex<BTreeSet<RawFd>> = Mutex::new(BTreeSet::new());

/// How long a read of an inherited pipe waits for bytes.
const SILENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
const SILENT: &str = "a pipe that stays open, and from which nothing came for 10 s";

/// Takes ownership of a descriptor that this process inherited. Children of this process do not
/// inherit the descriptor.
///
/// Each number can be taken once. A descriptor that closes on `exec` cannot have been inherited, so
/// it belongs to this process's own code and is refused; so are the three standard streams.
///
/// # Errors
///
/// `InvalidInput` for a number that cannot be an inherited descriptor, `AlreadyExists` for one
/// that was taken before, and `EBADF` where nothing is open under the number (a program between
/// the launcher and this one closed it).
///
/// # Examples
///
/// ```
/// let no_such = maypole_transports::descriptor::take_inherited(987_654).unwrap_err();
/// assert_eq!(no_such.raw_os_error(), Some(9)); // EBADF
/// ```
pub fn take_inherited(number: RawFd) -> io::Result<OwnedFd> {
    if number < 3 {
        return failed(ErrorKind::InvalidInput, "0, 1 and 2 are the standard streams");
    }
    let mut claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
    if claimed.contains(&number) {
        return failed(ErrorKind::AlreadyExists, "this process has taken the descriptor already");
    }
    // SAFETY: the number is not -1, and the borrow ends before anything here could close it. If
    // nothing is open under it the one call made through it reports EBADF.
    let flags = rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) })?;
    if flags.contains(FdFlags::CLOEXEC) {
        let why = "this process opened the descriptor and did not inherit it";
        return failed(ErrorKind::InvalidInput, why);
    }
    claimed.insert(number);
    // SAFETY: the descriptor is open and survives exec. Rust's own descriptors do not, those that
    // this module makes for children are claimed, and a number is claimed for good: so nothing
    // else in the process owns it.
    let owned = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&owned, FdFlags::CLOEXEC)?;
    Ok(owned)
}

/// Takes an inherited descriptor, reads its whole contents and closes it.
///
/// A file or memory segment is read from its beginning, independent of its offset; a pipe is read
/// to its end.
///
/// # Errors
///
/// Those of [`take_inherited`]; `FileTooLarge` for more than `limit` bytes; `TimedOut` where a pipe
/// stays silent and open for ten seconds; and those of reading.
pub fn read_inherited(number: RawFd, limit: usize) -> io::Result<Vec<u8>> {
    let file = File::from(take_inherited(number)?);
    let mut bytes = vec![0; limit + 1];
    let mut filled = 0;
    while filled < bytes.len() {
        match read_on(&file, &mut bytes[filled..], filled as u64) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    if filled > limit {
        return failed(ErrorKind::FileTooLarge, format!("more than {limit} bytes"));
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Reads at an offset or, from a file without offsets, the next bytes.
fn read_on(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    match file.read_at(bytes, offset) {
        Err(error) if error.kind() == ErrorKind::NotSeekable => {
            wait_readable(file)?;
            (&mut &*file).read(bytes)
        }
        other => other,
    }
}

fn wait_readable(file: &File) -> io::Result<()> {
    let mut interest = [PollFd::from_borrowed_fd(file.as_fd(), PollFlags::IN)];
    match poll(&mut interest, Some(&SILENCE)) {
        Ok(0) => failed(ErrorKind::TimedOut, SILENT),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Makes a read-only segment of memory that holds `contents` and that every child started from now
/// on inherits, under the same number, until the descriptor is dropped.
///
/// The segment has no name in a file system, so nothing remains when the process ends.
///
/// # Errors
///
/// Where the system has no memory or no descriptors left.
///
/// # Examples
///
/// ```
/// use std::os::fd::AsRawFd;
/// let segment = maypole_transports::descriptor::inheritable_segment("greeting", b"hello")?;
/// let path = format!("/proc/self/fd/{}", segment.as_raw_fd());
/// let child = std::process::Command::new("cat").arg(path).output()?;
/// assert_eq!(child.stdout, b"hello");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn inheritable_segment(name: &str, contents: &[u8]) -> io::Result<OwnedFd> {
    // Without CLOEXEC, because a child must inherit it.
    let mut file = File::from(create_memfd(name, MemfdFlags::ALLOW_SEALING)?);
    CLAIMED.lock().unwrap_or_else(PoisonError::into_inner).insert(file.as_raw_fd());
    file.write_all(contents)?;
    rustix::fs::fcntl_add_seals(
        &file,
        SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL,
    )?;
    Ok(file.into())
}

/// Makes memory that is never executed. Kernels before 6.3 lack the flag, and some sandboxes allow
/// no memory without it.
pub(crate) fn create_memfd(name: &str, flags: MemfdFlags) -> Result<OwnedFd, Errno> {
    match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        made => made,
    }
}

/// Opens a file that must hold a secret: a regular file, owned by this process's user, with no
/// permissions for others, and whose path does not end in a symbolic link.
///
/// The opened file itself is checked, so it cannot be exchanged between check and use.
///
/// # Errors
///
/// The violated condition and its remedy.
pub fn open_private(path: &Path) -> io::Result<File> {
    // NONBLOCK: opening a named pipe would otherwise wait for its writer.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::LOOP) => {
            return refused("it is a symbolic link: name the file that it points to");
        }
        Err(error) => return refused(format!("cannot open it: {}", io::Error::from(error))),
    };
    let found = rustix::fs::fstat(&file)?;
    let (mode, owner) = (found.st_mode & 0o7777, found.st_uid);
    let (me, name) = (rustix::process::geteuid().as_raw(), path.display());
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        refused("it is not a regular file")
    } else if owner != me {
        refused(format!(
            "it belongs to user {owner}, and this process runs as user {me}: run \
             `chown {me} {name}`, or copy it to a file of your own"
        ))
    } else if mode & 0o077 != 0 {
        refused(format!(
            "its permissions are {mode:04o}, so others can use it: run `chmod 600 {name}`"
        ))
    } else {
        Ok(file.into())
    }
}

fn refused(why: impl Into<String>) -> io::Result<File> {
    failed(ErrorKind::Other, why)
}

fn failed<T>(kind: ErrorKind, why: impl Into<String>) -> io::Result<T> {
    Err(io::Error::new(kind, why.into()))
}

/// Sets a timeout on every later read and write of a socket of any family.
///
/// # Errors
///
/// Where the descriptor is not a socket.
pub fn bound_waits(socket: impl AsFd, limit: Duration) -> io::Result<()> {
    use rustix::net::sockopt::{Timeout, set_socket_timeout};
    set_socket_timeout(&socket, Timeout::Recv, Some(limit))?;
    Ok(set_socket_timeout(&socket, Timeout::Send, Some(limit))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::IntoRawFd;
    use std::sync::atomic::{AtomicI32, Ordering};

    /// Makes a pipe as a launcher leaves it: it survives exec, and nothing in the process owns its
    /// reading end. Each pipe gets a number of its own, because a number that was taken stays
    /// taken.
    fn inherited(contents: &[u8]) -> RawFd {
        static NEXT: AtomicI32 = AtomicI32::new(500);
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        File::from(writer).write_all(contents).unwrap();
        let numbered =
            rustix::io::fcntl_dupfd_cloexec(&reader, NEXT.fetch_add(1, Ordering::Relaxed)).unwrap();
        rustix::io::fcntl_setfd(&numbered, FdFlags::empty()).unwrap();
        numbered.into_raw_fd()
    }

    #[test]
    fn an_inherited_pipe_is_read_once_and_closed() {
        let number = inherited(b"secret");
        assert_eq!(read_inherited(number, 64).unwrap(), b"secret");
        assert_eq!(take_inherited(number).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn an_inheritable_segment_is_not_executable_where_the_kernel_can_say_so() {
        let segment = inheritable_segment("test", b"key").unwrap();
        let known = rustix::fs::memfd_create("test", MemfdFlags::NOEXEC_SEAL);
        let seals = rustix::fs::fcntl_get_seals(&segment).unwrap();
        assert_eq!(seals.contains(SealFlags::from_bits_retain(0x20)), known.is_ok());
        assert_eq!(
            std::fs::read(format!("/proc/self/fd/{}", segment.as_raw_fd())).unwrap(),
            b"key"
        );
    }

    #[test]
    fn more_than_the_limit_is_refused() {
        assert_eq!(
            read_inherited(inherited(b"12345"), 4).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
    }

    #[test]
    fn what_was_not_inherited_is_refused() {
        // High, so that no other test has claimed its number.
        let mine = rustix::io::fcntl_dupfd_cloexec(File::open("/dev/null").unwrap(), 900).unwrap();
        assert_eq!(
            take_inherited(mine.as_raw_fd()).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        for standard in -1..3 {
            assert_eq!(take_inherited(standard).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        let segment = inheritable_segment("test", b"for children").unwrap();
        assert_eq!(
            take_inherited(segment.as_raw_fd()).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
    }

    #[test]
    fn a_segment_for_children_cannot_be_changed() {
        let segment = File::from(inheritable_segment("test", b"sealed").unwrap());
        assert!(segment.write_at(b"x", 0).is_err());
        assert!(segment.set_len(0).is_err());
    }
}
