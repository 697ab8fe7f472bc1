//! The file that ranks write their traces to, each when it has something to say.

use crate::schedule::trace::{HEAD, TAIL};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long somebody else may hold the file.
const PATIENCE: Duration = Duration::from_secs(2);
const NAP: Duration = Duration::from_millis(1);

/// A file that is a whole trace whenever nobody is writing to it: whoever has something to add puts
/// it before the end, while it holds a lock. So what was written is there also if ranks die, and
/// one file serves all ranks of a host.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    /// What the clock of this host showed when the trace began.
    origin: u64,
    process: usize,
    process_name: String,
    complained: AtomicBool,
}

impl TraceFile {
    /// Makes an empty trace of `path`, whatever was there.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(path: &Path) -> io::Result<()> {
        File::create(path)?.write_all(format!("{HEAD}{TAIL}").as_bytes())
    }

    /// For the file at `path`, which somebody makes before anything is added. Times are counted
    /// from `origin` nanoseconds on, and lanes belong to a process of this number and name.
    pub fn new(path: PathBuf, origin: u64, process: usize, process_name: String) -> Self {
        Self { path, origin, process, process_name, complained: AtomicBool::new(false) }
    }

    pub(super) fn origin(&self) -> u64 {
        self.origin
    }

    pub(super) fn process(&self) -> usize {
        self.process
    }

    pub(super) fn process_name(&self) -> &str {
        &self.process_name
    }

    /// Adds events. If they do not fit, the file stays as it was.
    ///
    /// # Errors
    /// What the system says; or that the file is not, or not any more, a trace.
    pub fn append(&self, events: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().read(true).write(true).open(&self.path)?;
        lock(&file)?;
        let end = ending(&mut file)?;
        let comma = if end == HEAD.len() as u64 { "" } else { ",\n" };
        let written = file.write_all(format!("{comma}{events}{TAIL}").as_bytes());
        if written.is_err() {
            // What was there before fits.
            file.set_len(end)?;
            file.seek(SeekFrom::Start(end))?;
            file.write_all(TAIL.as_bytes())?;
        }
        written
    }

    /// Says on standard error what is wrong with the file, once.
    pub fn complain(&self, what: &str) {
        if !self.complained.swap(true, Ordering::Relaxed) {
            eprintln!("maypole: {}: {what}", self.path.display());
        }
    }
}

/// Dropping the file lets go of it.
fn lock(file: &File) -> io::Result<()> {
    let since = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if since.elapsed() > PATIENCE => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "another process does not let go of it",
                ));
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(NAP),
        }
    }
}

/// Where the end of the trace begins, and seeks there.
fn ending(file: &mut File) -> io::Result<u64> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "it is no trace, or is damaged");
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
        std::fs::write(&path, "something of yesterday").unwrap();
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
    fn threads_do_not_tear_it() {
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
    fn what_is_no_trace_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        let file = TraceFile::new(path.clone(), 0, 0, "host".to_owned());
        assert_eq!(file.append("{}").unwrap_err().kind(), io::ErrorKind::NotFound);
        let text =
            "a long text that is somebody's diary and must not be written to, whatever it takes";
        std::fs::write(&path, text).unwrap();
        assert!(file.append("{}").unwrap_err().to_string().contains("no trace"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
}
