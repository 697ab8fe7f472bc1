//! A signal as an event that a thread waits for. Nothing else happens when the signal comes: its
//! handler writes one byte to a socket.

use signal_hook::SigId;
use signal_hook::consts::{
    FORBIDDEN, SIGALRM, SIGHUP, SIGQUIT, SIGURG, SIGUSR1, SIGUSR2, SIGVTALRM, SIGWINCH,
};
use signal_hook::low_level::{pipe, unregister};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// The signals that programs use for their own purposes, by name.
const NAMES: [(&str, i32); 8] = [
    ("USR1", SIGUSR1),
    ("USR2", SIGUSR2),
    ("HUP", SIGHUP),
    ("QUIT", SIGQUIT),
    ("ALRM", SIGALRM),
    ("VTALRM", SIGVTALRM),
    ("WINCH", SIGWINCH),
    ("URG", SIGURG),
];

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
    let named = NAMES.iter().find(|(known, _)| *known == short).map(|(_, number)| *number);
    let number = named.or_else(|| short.parse().ok())?;
    ((1..=64).contains(&number) && !FORBIDDEN.contains(&number)).then_some(number)
}

/// Receives one signal until it is dropped. The signal then has no effect.
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
        let (arrived, handler) = UnixStream::pair()?;
        arrived.set_nonblocking(true)?;
        Ok(Self { arrived, handler: pipe::register(signal, handler)? })
    }

    /// Takes all signals that have come. Returns true if there were any. Does not wait.
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
    use crate::poll::{Interest, poll};
    use std::time::Duration;

    #[test]
    fn a_signal_is_an_event() {
        let events = SignalEvents::new(SIGUSR2).unwrap();
        assert!(!events.take());
        signal_hook::low_level::raise(SIGUSR2).unwrap();
        poll(&[(events.as_fd(), Interest::Read)], Duration::from_secs(60)).unwrap();
        assert!(events.take());
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
