//! Waiting for one of many descriptors (epoll), waking the waiting thread (eventfd), and
//! descriptors of processes (pidfd).

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// The most descriptors that one call of [`Watch::wait`] reports.
const AT_ONCE: usize = 64;

/// A set of descriptors to wait for, each with a number that the caller chooses.
///
/// [Remove](Self::remove) a descriptor before it is closed: while a forked child keeps the file
/// open, the set would still report it.
#[derive(Debug)]
pub struct Watch {
    epoll: OwnedFd,
}

impl Watch {
    /// Makes an empty set.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Reports `descriptor` as `number` while it can be read or has ended and, if `writable` is
    /// true, while it can be written.
    ///
    /// # Errors
    /// If the descriptor is in the set already, or the kernel has no room.
    pub fn add(&self, descriptor: impl AsFd, number: u64, writable: bool) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, descriptor, epoll::EventData::new_u64(number), flags(writable))?)
    }

    /// Changes whether `descriptor` is reported while it is writable.
    ///
    /// # Errors
    /// If the descriptor is not in the set.
    pub fn change(&self, descriptor: impl AsFd, number: u64, writable: bool) -> io::Result<()> {
        let number = epoll::EventData::new_u64(number);
        Ok(epoll::modify(&self.epoll, descriptor, number, flags(writable))?)
    }

    /// Stops reporting `descriptor`. Does nothing if it is not in the set.
    pub fn remove(&self, descriptor: impl AsFd) {
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// Sleeps until a descriptor is ready, but no longer than `timeout`. Appends the numbers of all
    /// ready descriptors to `into`. A signal may end the sleep early.
    ///
    /// # Errors
    /// If the kernel has no memory.
    pub fn wait(&self, into: &mut Vec<u64>, timeout: Duration) -> io::Result<()> {
        // At most a day, which every kernel accepts.
        let timeout = timeout.min(Duration::from_secs(86_400)).try_into().ok();
        let mut buffer = Vec::with_capacity(AT_ONCE);
        let space = rustix::buffer::spare_capacity(&mut buffer);
        match epoll::wait(&self.epoll, space, timeout.as_ref()) {
            Ok(_) => into.extend(buffer.iter().map(|event| event.data.u64())),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

fn flags(writable: bool) -> epoll::EventFlags {
    let always = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
    if writable { always | epoll::EventFlags::OUT } else { always }
}

/// Wakes a thread that sleeps in [`Watch::wait`], from another thread. Add it to the set.
#[derive(Debug)]
pub struct Waker(OwnedFd);

impl Waker {
    /// Makes a waker that is not readable.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes the waker readable until it is [cleared](Self::clear).
    pub fn wake(&self) {
        // Fails only after 2^64 calls, and the waker is readable then.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes the waker unreadable again.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns a descriptor that becomes readable when the process `pid` ends.
///
/// # Errors
/// If there is no such process, or the kernel has no such descriptors (before 5.3).
pub fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_waker_is_readable_until_it_is_cleared() {
        let watch = Watch::new().unwrap();
        let waker = Waker::new().unwrap();
        watch.add(&waker, 7, false).unwrap();
        let mut numbers = Vec::new();
        watch.wait(&mut numbers, Duration::ZERO).unwrap();
        assert!(numbers.is_empty());
        std::thread::scope(|threads| {
            threads.spawn(|| waker.wake());
            watch.wait(&mut numbers, LONG).unwrap();
        });
        assert_eq!(numbers, [7]);
        waker.clear();
        watch.wait(&mut numbers, Duration::ZERO).unwrap();
        assert_eq!(numbers, [7]);
    }

    #[test]
    fn the_end_of_a_process_is_noticed() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let end = pidfd(child.id()).unwrap();
        let watch = Watch::new().unwrap();
        watch.add(&end, 1, false).unwrap();
        let mut numbers = Vec::new();
        watch.wait(&mut numbers, Duration::ZERO).unwrap();
        assert!(numbers.is_empty());
        child.kill().unwrap();
        watch.wait(&mut numbers, LONG).unwrap();
        assert_eq!(numbers, [1]);
        child.wait().unwrap();
        pidfd(0).unwrap_err();
    }
}
