//! Sleeping for a bounded time, until a stream can send or receive.

use arrayvec::ArrayVec;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Descriptors that [`poll`] watches without allocating.
const WITHOUT_ALLOCATING: usize = 64;

/// The awaited events of one descriptor. The end of the stream and a failed link always end the
/// wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Interest {
    /// Until bytes, or the end of them, can be read.
    Read,
    /// Until bytes can be written.
    Write,
    /// Until bytes, or the end of them, can be read, or bytes can be written.
    Both,
}

impl Interest {
    /// Returns the interest of a link that `reads`, `writes`, does both or neither.
    ///
    /// ```
    /// use maypole_transports::poll::Interest;
    /// assert_eq!(Interest::new(true, false), Some(Interest::Read));
    /// assert_eq!(Interest::new(false, false), None);
    /// ```
    pub fn new(reads: bool, writes: bool) -> Option<Self> {
        match (reads, writes) {
            (true, true) => Some(Self::Both),
            (true, false) => Some(Self::Read),
            (false, true) => Some(Self::Write),
            (false, false) => None,
        }
    }

    fn flags(self) -> PollFlags {
        match self {
            Self::Read => PollFlags::IN,
            Self::Write => PollFlags::OUT,
            Self::Both => PollFlags::IN | PollFlags::OUT,
        }
    }
}

/// Sleeps until one of `interests` is met, but no longer than `timeout`. Without interests it
/// sleeps for `timeout`.
///
/// The result does not name the met interest, because the caller tries every stream again in any
/// case. A signal may end the sleep early. A stream that the peer has closed is always readable, so
/// leave out closed streams. Up to 64 descriptors are watched without allocating.
///
/// # Errors
/// Errors of poll(2): out of memory, or more descriptors than the process may open.
///
/// ```
/// use maypole_transports::poll::{Interest, poll};
/// use std::{io::Write, os::fd::AsFd, os::unix::net::UnixStream, time::Duration};
///
/// let (here, mut there) = UnixStream::pair()?;
/// there.write_all(b"x")?;
/// poll(&[(here.as_fd(), Interest::Read)], Duration::from_secs(60))?; // at once
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn poll(interests: &[(BorrowedFd<'_>, Interest)], timeout: Duration) -> io::Result<()> {
    let watched = interests
        .iter()
        .map(|(descriptor, interest)| PollFd::from_borrowed_fd(*descriptor, interest.flags()));
    let outcome = if interests.len() <= WITHOUT_ALLOCATING {
        sleep(&mut watched.collect::<ArrayVec<_, WITHOUT_ALLOCATING>>(), timeout)
    } else {
        sleep(&mut watched.collect::<Vec<_>>(), timeout)
    };
    match outcome {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn sleep(watched: &mut [PollFd<'_>], timeout: Duration) -> rustix::io::Result<usize> {
    let longest = Timespec { tv_sec: i64::MAX, tv_nsec: 0 };
    rustix::event::poll(watched, Some(&Timespec::try_from(timeout).unwrap_or(longest)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(2);

    #[test]
    fn nothing_to_wait_for_sleeps_out_the_timeout() {
        let start = Instant::now();
        poll(&[], SHORT).unwrap();
        assert!(start.elapsed() >= SHORT);
    }

    #[test]
    fn a_silent_descriptor_is_waited_for_until_the_timeout() {
        let (here, _there) = UnixStream::pair().unwrap();
        let start = Instant::now();
        poll(&[(here.as_fd(), Interest::Read)], SHORT).unwrap();
        assert!(start.elapsed() >= SHORT);
    }

    #[test]
    fn bytes_wake() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let start = Instant::now();
        std::thread::scope(|threads| {
            threads.spawn(|| there.write_all(b"x").unwrap());
            poll(&[(here.as_fd(), Interest::Read)], LONG).unwrap();
        });
        assert!(start.elapsed() < LONG / 2);
    }

    #[test]
    fn room_to_write_wakes_a_writer() {
        let (here, _there) = UnixStream::pair().unwrap();
        for interest in [Interest::Write, Interest::Both] {
            let start = Instant::now();
            poll(&[(here.as_fd(), interest)], LONG).unwrap();
            assert!(start.elapsed() < LONG / 2);
        }
    }

    #[test]
    fn a_peer_that_closes_its_end_wakes() {
        let (here, there) = UnixStream::pair().unwrap();
        drop(there);
        let start = Instant::now();
        poll(&[(here.as_fd(), Interest::Read)], Duration::MAX).unwrap();
        assert!(start.elapsed() < LONG / 2);
    }

    #[test]
    fn the_last_of_very_many_descriptors_wakes_too() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let (silent, _peer) = UnixStream::pair().unwrap();
        there.write_all(b"x").unwrap();
        for others in [0, WITHOUT_ALLOCATING - 1, WITHOUT_ALLOCATING, 3 * WITHOUT_ALLOCATING] {
            let mut interests = vec![(silent.as_fd(), Interest::Read); others];
            interests.push((here.as_fd(), Interest::Read));
            let start = Instant::now();
            poll(&interests, LONG).unwrap();
            assert!(start.elapsed() < LONG / 2, "{others} others");
        }
    }
}
