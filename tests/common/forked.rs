//! Runs a function in a forked child. Unit tests of `transports` mount this file, too.

/// Forks this process and returns what `work` returns in the child, as a sentence. For tests alone.
///
/// The sentence reports a child that panics or ends otherwise. An alarm kills a child that does not
/// end within a minute.
///
/// # Errors
/// If the system makes no pipe or no process.
///
/// # Safety
/// The child has one thread. It may run `work` only if no other thread of this process holds a lock
/// that `work` needs, and if `work` uses nothing of the parent that does not bear a fork.
pub unsafe fn in_forked_child(work: impl FnOnce() -> String) -> std::io::Result<String> {
    use rustix::io::retry_on_intr;
    use rustix::process::{Pid, WaitOptions, waitpid};
    use std::fs::File;
    use std::io::{Read, Write};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // SAFETY: by the caller's contract the child may run `work`; nothing else runs in it.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()),
        0 => {
            drop(reader);
            // SAFETY: a child has no alarm of its own.
            unsafe { libc::alarm(60) };
            let said = catch_unwind(AssertUnwindSafe(work));
            let said = said.unwrap_or_else(|_| "it panicked".to_owned());
            // Without a reader, the parent has failed already.
            let _ = File::from(writer).write_all(said.as_bytes());
            // SAFETY: ends the child immediately, without the exit handlers of the parent.
            unsafe { libc::_exit(0) }
        }
        child => {
            drop(writer);
            let mut said = Vec::new();
            File::from(reader).read_to_end(&mut said)?;
            let ended = retry_on_intr(|| waitpid(Pid::from_raw(child), WaitOptions::empty()))?;
            let killed = ended.and_then(|(_, status)| status.terminating_signal());
            Ok(match killed {
                Some(signal) => format!("signal {signal} killed it"),
                None => String::from_utf8_lossy(&said).into_owned(),
            })
        }
    }
}
