//! How a launcher starts processes: each leads a group, which is signalled as a whole, and each ends
//! when the launcher ends.

use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{
    Resource, Rlimit, Signal, getpid, getppid, getrlimit, set_parent_process_death_signal,
    setrlimit,
};

/// Makes `command` start its process as the leader of its own group. The kernel kills the process
/// when the *thread* that spawned it ends, for any reason. So spawn from a thread that lives as
/// long as the launcher.
///
/// The kernel kills that process alone. A signal to its group reaches the processes that it has
/// started.
///
/// # Examples
///
/// ```
/// use maypole_transports::process;
/// let mut child = process::in_own_group(&mut std::process::Command::new("true")).spawn()?;
/// assert!(child.wait()?.success());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn in_own_group(command: &mut Command) -> &mut Command {
    let launcher = getpid();
    command.process_group(0);
    // SAFETY: between fork and exec, code may do only async-signal-safe things. The closure makes
    // two system calls and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // If the launcher died before the line above, the kernel will send no signal.
            if getppid() == Some(launcher) { Ok(()) } else { Err(Errno::SRCH.into()) }
        })
    }
}

/// Makes `command` start its process with this soft limit of open descriptors, independent of the
/// limit of this process at that time. So a launcher may raise its own limit, and the processes
/// that it starts have the limit that the user gave.
///
/// # Examples
///
/// ```
/// use maypole_transports::process;
/// use std::process::Command;
/// let output = process::with_descriptor_limit(Command::new("sh").args(["-c", "ulimit -n"]), 77)
///     .output()?;
/// assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "77");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn with_descriptor_limit(command: &mut Command, soft: u64) -> &mut Command {
    // SAFETY: between fork and exec, code may do only async-signal-safe things. The closure makes
    // two system calls and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            let limit = getrlimit(Resource::Nofile);
            Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(soft), ..limit })?)
        })
    }
}
