//! A signal as an event that a thread waits for. The handler only writes one byte to a socket.

use crate::fork::OwnerProcess;
use rustix::net::{SendFlags, send};
use signal_hook::consts::FORBIDDEN;
use signal_hook::low_level::{register, signal_name};
use std::io::{self, Read};
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

/// A socket that is readable once `signal` has come to this process. The handler stays as long as the process.
///
/// # Errors
/// If the signal cannot be handled, or the process has no descriptor left.
pub fn socket(signal: i32) -> io::Result<UnixStream> {
    if FORBIDDEN.contains(&signal) {
        return Err(io::Error::other(format!("signal {signal} cannot be handled")));
    }
    let (arrived, handler) = UnixStream::pair()?;
    arrived.set_nonblocking(true)?;
    // Without NOSIGNAL, a byte after the other end was dropped would end the process.
    let flags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
    let owner = OwnerProcess::current();
    // A child that was forked has inherited the handler, and the socket of its parent.
    let tell = move || _ = owner.is_current().then(|| send(&handler, b"!", flags));
    // SAFETY: the handler makes a load, a comparison and one system call, whose wrapper neither
    // allocates nor locks nor panics.
    unsafe { register(signal, tell) }?;
    Ok(arrived)
}

/// Takes signals that came to this [`socket`], up to 64. Returns true if there were any. Does not wait.
pub fn take(mut socket: &UnixStream) -> bool {
    matches!(socket.read(&mut [0; 64]), Ok(read) if read > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock;
    use crate::poll::{interest, poll};
    use signal_hook::consts::{SIGUSR1, SIGUSR2};
    use std::os::fd::AsFd;
    use std::sync::Mutex;
    use std::time::Duration;

    /// A child that was forked while another thread registers a handler would wait forever for its lock.
    static REGISTERS: Mutex<()> = Mutex::new(());

    #[test]
    fn a_signal_is_an_event() {
        let _alone = lock(&REGISTERS);
        let events = socket(SIGUSR2).unwrap();
        assert!(!take(&events));
        signal_hook::low_level::raise(SIGUSR2).unwrap();
        let mut interests = [interest(events.as_fd(), true, false).unwrap()];
        poll(&mut interests, Duration::from_secs(60)).unwrap();
        assert!(take(&events));
        assert!(!take(&events));
    }

    #[test]
    fn a_signal_to_a_forked_child_is_no_event_of_its_parent() {
        let _alone = lock(&REGISTERS);
        let events = socket(SIGUSR1).unwrap();
        let in_child = || {
            signal_hook::low_level::raise(SIGUSR1).unwrap();
            let own = socket(SIGUSR1).unwrap();
            signal_hook::low_level::raise(SIGUSR1).unwrap();
            take(&own).to_string()
        };
        // SAFETY: the child has one thread, and takes no lock that another test could hold, except
        // that of the allocator, which tests hold for microseconds.
        let said = unsafe { crate::fork::forked::in_forked_child(in_child) }.unwrap();
        assert_eq!(said, "true");
        assert!(!take(&events));
    }

    #[test]
    fn names_mean_signals() {
        for name in ["USR1", "SIGUSR1", "sigusr1", " 10 "] {
            assert_eq!(number(name), Some(SIGUSR1), "{name}");
        }
        for name in ["", "SIG", "KILL", "9", "STOP", "SEGV", "11", "0", "65", "-1", "USR3"] {
            assert_eq!(number(name), None, "{name}");
        }
        socket(9).unwrap_err();
    }
}
