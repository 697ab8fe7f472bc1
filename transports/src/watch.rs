//! Sleeping until one of many descriptors has something: epoll, a bell to wake the sleeper, and
//! the ends of processes.

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Descriptors that one call of [`Watch::wait`] reports.
const AT_ONCE: usize = 64;

/// A set of descriptors, each under a number of the caller's choosing.
///
/// A descriptor must be [removed](Self::remove) before it is closed: a forked child may keep the
/// file open, and then the set would go on reporting it.
#[derive(Debug)]
pub struct Watch {
    epoll: OwnedFd,
}

impl Watch {
    /// An empty set.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Reports `descriptor` as `number` while it can be read (or has ended), or written if
    /// `writable` says so.
    ///
    /// # Errors
    /// If the descriptor is in the set already, or the kernel has no room.
    pub fn add(&self, descriptor: impl AsFd, number: u64, writable: bool) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, descriptor, epoll::EventData::new_u64(number), flags(writable))?)
    }

    /// Changes whether `descriptor` is reported while it can be written.
    ///
    /// # Errors
    /// If the descriptor is not in the set.
    pub fn change(&self, descriptor: impl AsFd, number: u64, writable: bool) -> io::Result<()> {
        Ok(epoll::modify(
            &self.epoll,
            descriptor,
            epoll::EventData::new_u64(number),
            flags(writable),
        )?)
    }

    /// Reports `descriptor` no more. One that is not in the set is left alone.
    pub fn remove(&self, descriptor: impl AsFd) {
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// Sleeps until something is to be reported, but no longer than `timeout`, and appends the
    /// numbers to `into`. A signal may end the sleep early.
    ///
    /// # Errors
    /// None but lack of memory.
    pub fn wait(&self, into: &mut Vec<u64>, timeout: Duration) -> io::Result<()> {
        // A day is as good as for ever, and every kernel takes it.
        let timeout = timeout.min(Duration::from_secs(86_400));
        let timeout =
            Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        let mut buffer = Vec::with_capacity(AT_ONCE);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut buffer), Some(&timeout))
        {
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

/// Wakes a sleeper from another thread.
#[derive(Debug)]
pub struct Waker(OwnedFd);

impl Waker {
    /// A bell that has not been rung.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes the bell readable until it is silenced.
    pub fn wake(&self) {
        // Fails only if it has been rung 2^64 times, and then it is readable already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable again.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A descriptor that becomes readable when the process `pid` ends.
///
/// # Errors
/// If there is no such process, or the kernel does not offer this.
pub fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_bell_wakes_until_it_is_silenced() {
        let (watch, bell) = (Watch::new().unwrap(), Waker::new().unwrap());
        watch.add(&bell, 7, false).unwrap();
        let mut numbers = Vec::new();
        watch.wait(&mut numbers, Duration::ZERO).unwrap();
        assert!(numbers.is_empty());
        std::thread::scope(|threads| {
            threads.spawn(|| bell.wake());
            watch.wait(&mut numbers, LONG).unwrap();
        });
        assert_eq!(numbers, [7]);
        bell.clear();
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
