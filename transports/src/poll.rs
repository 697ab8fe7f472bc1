//! Sleeping for a bounded time, until a stream can send or receive.

pub use rustix::event::PollFd;
use rustix::event::{PollFlags, Timespec};
use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Returns the events of `descriptor` that end a sleep: with `reads` bytes, or the end of them, can be read; with
/// `writes` bytes can be written. `None` without both. A failed link always ends the sleep.
///
/// ```
/// use maypole_transports::poll::interest;
/// use std::os::fd::AsFd;
/// assert!(interest(std::io::stdin().as_fd(), true, false).is_some());
/// assert!(interest(std::io::stdin().as_fd(), false, false).is_none());
/// ```
pub fn interest(descriptor: BorrowedFd<'_>, reads: bool, writes: bool) -> Option<PollFd<'_>> {
    let mut events = PollFlags::empty();
    events.set(PollFlags::IN, reads);
    events.set(PollFlags::OUT, writes);
    (!events.is_empty()).then(|| PollFd::from_borrowed_fd(descriptor, events))
}

/// Sleeps until one of `interests` is met, but no longer than `timeout`. Without interests it
/// sleeps for `timeout`.
///
/// The result does not name the met interest, because the caller tries every stream again in any
/// case. A signal may end the sleep early. A stream that the peer has closed is always readable, so
/// leave out closed streams.
///
/// # Errors
/// Errors of poll(2): out of memory, or more descriptors than the process may open.
///
/// ```
/// use maypole_transports::poll::{interest, poll};
/// use std::{io::Write, os::fd::AsFd, os::unix::net::UnixStream, time::Duration};
///
/// let (here, mut there) = UnixStream::pair()?;
/// there.write_all(b"x")?;
/// let mut interests = [interest(here.as_fd(), true, false).unwrap()];
/// poll(&mut interests, Duration::from_secs(60))?; // at once
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn poll(interests: &mut [PollFd<'_>], timeout: Duration) -> io::Result<()> {
    let longest = Timespec { tv_sec: i64::MAX, tv_nsec: 0 };
    let timeout = Timespec::try_from(timeout).unwrap_or(longest);
    match rustix::event::poll(interests, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
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
        poll(&mut [], SHORT).unwrap();
        assert!(start.elapsed() >= SHORT);
    }

    #[test]
    fn a_silent_descriptor_is_waited_for_until_the_timeout() {
        let (here, _there) = UnixStream::pair().unwrap();
        let start = Instant::now();
        poll(&mut [interest(here.as_fd(), true, false).unwrap()], SHORT).unwrap();
        assert!(start.elapsed() >= SHORT);
    }

    #[test]
    fn bytes_wake() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let start = Instant::now();
        std::thread::scope(|threads| {
            threads.spawn(|| there.write_all(b"x").unwrap());
            poll(&mut [interest(here.as_fd(), true, false).unwrap()], LONG).unwrap();
        });
        assert!(start.elapsed() < LONG / 2);
    }

    #[test]
    fn room_to_write_wakes_a_writer() {
        let (here, _there) = UnixStream::pair().unwrap();
        for reads in [false, true] {
            let start = Instant::now();
            poll(&mut [interest(here.as_fd(), reads, true).unwrap()], LONG).unwrap();
            assert!(start.elapsed() < LONG / 2);
        }
    }

    #[test]
    fn a_peer_that_closes_its_end_wakes() {
        let (here, there) = UnixStream::pair().unwrap();
        drop(there);
        let start = Instant::now();
        poll(&mut [interest(here.as_fd(), true, false).unwrap()], Duration::MAX).unwrap();
        assert!(start.elapsed() < LONG / 2);
    }

    #[test]
    fn the_last_of_very_many_descriptors_wakes_too() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let (silent, _peer) = UnixStream::pair().unwrap();
        there.write_all(b"x").unwrap();
        for others in [0, 63, 64, 192] {
            let mut interests = vec![interest(silent.as_fd(), true, false).unwrap(); others];
            interests.push(interest(here.as_fd(), true, false).unwrap());
            let start = Instant::now();
            poll(&mut interests, LONG).unwrap();
            assert!(start.elapsed() < LONG / 2, "{others} others");
        }
    }
}
