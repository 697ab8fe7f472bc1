//! The file that all ranks of a host write their traces to.

use crate::schedule::trace::{HEAD, TAIL};
use maypole_transports::turns::{self, poll_until};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const LOCK_RETRY: Duration = Duration::from_millis(1);

/// A file that is a whole trace whenever no rank is writing to it. A rank adds its events before
/// the end of the trace, while it holds a lock. So events that were written stay readable if ranks
/// die, and one file serves all ranks of a host.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    /// The time of this host's clock when the trace began, in nanoseconds.
    pub(super) origin: u64,
    pub(super) process: usize,
    pub(super) process_name: String,
    complained: AtomicBool,
}

impl TraceFile {
    /// Makes an empty trace of the file at `path`, and drops the file's old contents.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn create(path: &Path) -> io::Result<()> {
        File::create(path)?.write_all(format!("{HEAD}{TAIL}").as_bytes())
    }

    /// Makes the handle of the file at `path`, which must be [created](Self::create) before events
    /// are added. Times are counted from `origin` in nanoseconds. Lanes belong to a process of this
    /// number and name.
    pub fn new(path: PathBuf, origin: u64, process: usize, process_name: String) -> Self {
        Self { path, origin, process, process_name, complained: AtomicBool::new(false) }
    }

    /// Adds events. If that fails, the file stays as it was.
    ///
    /// # Errors
    /// Errors of the system; or that the file is not a trace.
    pub fn append(&self, events: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().read(true).write(true).open(&self.path)?;
        lock(&file)?;
        let end = seek_end(&mut file)?;
        let comma = if end == HEAD.len() as u64 { "" } else { ",\n" };
        let written = file.write_all(format!("{comma}{events}{TAIL}").as_bytes());
        if written.is_err() {
            file.set_len(end)?;
            file.seek(SeekFrom::Start(end))?;
            file.write_all(TAIL.as_bytes())?;
        }
        written
    }

    /// Prints the file's error on standard error. Only the first call prints.
    pub fn complain(&self, what: &str) {
        if !self.complained.swap(true, Ordering::Relaxed) {
            // A program whose standard error is closed continues.
            let _ = writeln!(io::stderr(), "maypole: {}: {what}", self.path.display());
        }
    }
}

/// Takes the lock of the file, which is released when the file is dropped.
fn lock(file: &File) -> io::Result<()> {
    let tried = || match file.try_lock() {
        Err(TryLockError::WouldBlock) => None,
        Err(TryLockError::Error(error)) => Some(Err(error)),
        Ok(()) => Some(Ok(())),
    };
    let held = || io::Error::new(io::ErrorKind::TimedOut, "another process holds its lock");
    poll_until(turns::now() + LOCK_TIMEOUT, LOCK_RETRY, tried).unwrap_or_else(|| Err(held()))
}

/// Seeks to the offset of the trace's end, and returns it.
fn seek_end(file: &mut File) -> io::Result<u64> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "it is not a trace, or is damaged");
    let length = file.seek(SeekFrom::End(0))?;
    let end = length
        .checked_sub(TAIL.len() as u64)
        .filter(|end| *end >= HEAD.len() as u64)
        .ok_or_else(damaged)?;
    file.seek(SeekFrom::Start(end))?;
    let mut tail = [0; TAIL.len()];
    file.read_exact(&mut tail)?;
    if tail != *TAIL.as_bytes() {
        return Err(damaged());
    }
    file.seek(SeekFrom::Start(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_whole_after_every_addition() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        std::fs::write(&path, "an older file").unwrap();
        TraceFile::create(&path).unwrap();
        let file = TraceFile::new(path.clone(), 0, 0, "host".to_owned());
        for events in 0..3 {
            let read: serde_json::Value =
                serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            assert_eq!(read["traceEvents"].as_array().unwrap().len(), 2 * events);
            file.append("{\"a\":1},\n{\"b\":2}").unwrap();
        }
    }

    #[test]
    fn threads_add_whole_events() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        TraceFile::create(&path).unwrap();
        let file = TraceFile::new(path.clone(), 0, 0, "host".to_owned());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..20).for_each(|_| file.append("{}").unwrap()));
            }
        });
        let read: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(read["traceEvents"].as_array().unwrap().len(), 80);
    }

    #[test]
    fn a_file_that_is_not_a_trace_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        let file = TraceFile::new(path.clone(), 0, 0, "host".to_owned());
        assert_eq!(file.append("{}").unwrap_err().kind(), io::ErrorKind::NotFound);
        let text =
            "a long text that is not a trace and must stay as it is, whatever the recorder does";
        std::fs::write(&path, text).unwrap();
        assert!(file.append("{}").unwrap_err().to_string().contains("not a trace"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
}
