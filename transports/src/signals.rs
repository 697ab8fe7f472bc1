//! A signal as an event that a thread waits for. The handler only writes one byte to a socket.

use crate::fork::OwnerProcess;
use rustix::net::{SendFlags, send};
use signal_hook::SigId;
use signal_hook::consts::FORBIDDEN;
use signal_hook::low_level::{register, signal_name, unregister};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// Returns the number of the signal that `name` means: `USR1`, `SIGUSR1` or `10`. `None` if it means
/// none, or one that no program may handle.
///
/// ```
/// use maypole_transports::signals::number;
/// assert_eq!(number("SIGUSR1"), number("usr1"));
/// assert_eq!(number("KILL"), None);
/// ```
pub fn number(name: &str) -> Option<i32> {
    let upper = name.trim().to_ascii_uppercase();
    let short = upper.strip_prefix("SIG").unwrap_or(&upper);
    let is_named =
        |signal: &i32| signal_name(*signal).and_then(|it| it.strip_prefix("SIG")) == Some(short);
    let named = (1..=64).find(is_named);
    let number = named.or_else(|| short.parse().ok())?;
    ((1..=64).contains(&number) && !FORBIDDEN.contains(&number)).then_some(number)
}

/// Receives one signal until it is dropped. The signal then has no effect. In a forked child, which
/// inherits the handler, it has none either.
#[derive(Debug)]
pub struct SignalEvents {
    arrived: UnixStream,
    handler: SigId,
}

impl SignalEvents {
    /// Installs a handler for `signal`.
    ///
    /// # Errors
    /// If the signal cannot be handled, or the process has no descriptor left.
    pub fn new(signal: i32) -> io::Result<Self> {
        if FORBIDDEN.contains(&signal) {
            return Err(io::Error::other(format!("signal {signal} cannot be handled")));
        }
        let (arrived, told) = UnixStream::pair()?;
        arrived.set_nonblocking(true)?;
        let owner = OwnerProcess::current();
        let tell = move || {
            // A child that was forked has inherited the handler, and the socket of its parent. A
            // full socket is readable already.
            if owner.is_current() {
                let _ = send(&told, b"!", SendFlags::DONTWAIT);
            }
        };
        // SAFETY: the handler makes a load, a comparison and one system call, whose wrapper neither
        // allocates nor locks nor panics.
        let handler = unsafe { register(signal, tell) }?;
        Ok(Self { arrived, handler })
    }

    /// Takes all received signals. Returns true if there were any. Does not wait.
    pub fn take(&self) -> bool {
        let mut bytes = [0; 64];
        let mut came = false;
        while matches!((&self.arrived).read(&mut bytes), Ok(read) if read > 0) {
            came = true;
        }
        came
    }
}

/// The descriptor that can be read once a signal has come.
impl AsFd for SignalEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.arrived.as_fd()
    }
}

impl Drop for SignalEvents {
    fn drop(&mut self) {
        unregister(self.handler);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::{interest, poll};
    use signal_hook::consts::{SIGUSR1, SIGUSR2};
    use std::time::Duration;

    #[test]
    fn a_signal_is_an_event() {
        let events = SignalEvents::new(SIGUSR2).unwrap();
        assert!(!events.take());
        signal_hook::low_level::raise(SIGUSR2).unwrap();
        let mut interests = [interest(events.as_fd(), true, false).unwrap()];
        poll(&mut interests, Duration::from_secs(60)).unwrap();
        assert!(events.take());
        assert!(!events.take());
    }

    #[test]
    fn a_signal_to_a_forked_child_is_no_event_of_its_parent() {
        let events = SignalEvents::new(SIGUSR1).unwrap();
        let in_child = || {
            signal_hook::low_level::raise(SIGUSR1).unwrap();
            let own = SignalEvents::new(SIGUSR1).unwrap();
            signal_hook::low_level::raise(SIGUSR1).unwrap();
            own.take().to_string()
        };
        // SAFETY: the child has one thread, and takes no lock that another test could hold, except
        // those of the allocator and of the register of signals, which tests hold for microseconds.
        let said = unsafe { crate::fork::forked::in_forked_child(in_child) }.unwrap();
        assert_eq!(said, "true");
        assert!(!events.take());
    }

    #[test]
    fn names_mean_signals() {
        for name in ["USR1", "SIGUSR1", "sigusr1", " 10 "] {
            assert_eq!(number(name), Some(SIGUSR1), "{name}");
        }
        for name in ["", "SIG", "KILL", "9", "STOP", "SEGV", "11", "0", "65", "-1", "USR3"] {
            assert_eq!(number(name), None, "{name}");
        }
        SignalEvents::new(9).unwrap_err();
    }
}
