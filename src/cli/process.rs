//! Processes that the launcher has started: signals to them and their groups, and their ends.

use std::io;
use std::path::PathBuf;
use std::process::Child;

use anyhow::Context;
pub(crate) use maypole_transports::process::{in_own_group, with_descriptor_limit};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, kill_process_group,
    set_child_subreaper, test_kill_process_group, waitid,
};
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd;

/// The file of this program.
pub(crate) fn this_file() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("cannot find the file of this program")
}

/// Makes this process the parent of every orphaned process among its descendants, instead of the
/// machine's first process. So no descendant can leave by starting a session of its own: it becomes
/// a child of this process when its parent ends.
///
/// # Errors
///
/// Errors of the kernel, for instance in a sandbox that forbids the call.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Sends a signal to one child of this process. The kernel does not reuse the number of a child
/// until this process has [collected](collect) it, so the signal cannot reach another process. A
/// child that has ended is no error.
///
/// # Errors
///
/// `InvalidInput` for a number that is no signal, and `EPERM` for a child that has changed its user.
pub(crate) fn signal_child(child: u32, signal: i32) -> io::Result<()> {
    unless_gone(kill_process(pid(child)?, named(signal)?))
}

/// Collects a child that has ended, and returns whether it has: its number may be reused then. Does
/// not wait. For an adopted child, which no `Child` stands for.
pub(crate) fn collect(child: u32) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    let collected = pid(child).map(|child| waitid(WaitId::Pid(child), options));
    matches!(collected, Ok(Ok(Some(_))))
}

/// Sends a signal to the whole group that `leader` was started to lead ([`in_own_group`]). An
/// empty group is no error.
///
/// The call may follow the exit of the leader. Until the leader has been waited for, no other group
/// can get its number. Later the signal reaches the remaining processes of the group, but if none
/// remains, the number may belong to another group.
///
/// # Errors
///
/// `InvalidInput` for a number that is no signal, and `EPERM` where every process of the group
/// belongs to another user.
pub(crate) fn signal_group(leader: &Child, signal: i32) -> io::Result<()> {
    unless_gone(kill_process_group(pid(leader.id())?, named(signal)?))
}

/// Returns true if no process is left of the group that `leader` was started to lead. A leader
/// that exited counts until it is waited for.
pub(crate) fn group_is_empty(leader: &Child) -> bool {
    pid(leader.id()).is_ok_and(|group| test_kill_process_group(group) == Err(Errno::SRCH))
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ProcessEnd {
    /// It exited with this code.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
}

/// Blocks until the child with this process number has ended. `Child::wait` must still collect it.
///
/// So one thread can wait for a child while another thread signals the child's group: the kernel
/// does not reuse the number until `Child::wait` has collected the child.
///
/// # Errors
///
/// `ECHILD` where it is no child of this process or was collected already.
pub(crate) fn await_end(child: u32) -> io::Result<ProcessEnd> {
    let child = pid(child)?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let ended = retry_on_intr(|| waitid(WaitId::Pid(child), options))?;
    let status = ended.expect("a wait that may last ends with a status");
    let killed = status.terminating_signal().map(ProcessEnd::Killed);
    Ok(killed.unwrap_or(ProcessEnd::Exited(status.exit_status().unwrap_or_default())))
}

fn unless_gone(signalled: rustix::io::Result<()>) -> io::Result<()> {
    match signalled {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn named(signal: i32) -> io::Result<Signal> {
    Signal::from_named_raw(signal).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{signal} is not a signal"))
    })
}

fn pid(number: u32) -> io::Result<Pid> {
    i32::try_from(number)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Returns true if `output` is a pipe or a socket whose reader has closed its end, so that a write
/// would fail. Does not wait. False for a file.
pub(crate) fn reader_has_left(output: impl AsFd) -> bool {
    let mut interest = [PollFd::from_borrowed_fd(output.as_fd(), PollFlags::empty())];
    let polled = poll(&mut interest, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    // The kernel always reports these two.
    polled.is_ok() && interest[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    #[test]
    fn a_group_is_signalled_awaited_and_then_empty() {
        let mut child =
            in_own_group(Command::new("sh").args(["-c", "sleep 1000 & wait"])).spawn().unwrap();
        assert!(!group_is_empty(&child));
        signal_group(&child, 9).unwrap();
        assert_eq!(await_end(child.id()).unwrap(), ProcessEnd::Killed(9));
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert!(await_end(child.id()).is_err());
    }

    #[test]
    fn no_signal_is_an_error() {
        let mut child = in_own_group(&mut Command::new("true")).spawn().unwrap();
        assert_eq!(signal_group(&child, 12345).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(await_end(child.id()).unwrap(), ProcessEnd::Exited(0));
        child.wait().unwrap();
    }
}
