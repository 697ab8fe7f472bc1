//! Standard output: the one writer of everything that `train` prints.
//!
//! A reader such as `head` closes the pipe early. Then the program exits immediately and prints no
//! error, with the status that shells report for a program that `SIGPIPE` ended. Any other failure,
//! such as a full disk, is an error.

pub(crate) mod files;

use maypole_corpus::DataError;
use maypole_trainer::train::checkpoint::CheckpointError;
use std::fmt::Display;
use std::fs::read_link;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Standard output cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrintError {
    /// No program reads it any more.
    #[error("{0}: its reader has closed it")]
    Closed(PathBuf),
    /// The file or stream of this name cannot be written.
    #[error("cannot write {0}: {1}")]
    Failed(PathBuf, io::Error),
}

/// The status of a program that `SIGPIPE` ended, as shells report it.
const ENDED_BY_PIPE: u8 = 128 + 13;

pub(crate) fn line(text: impl Display) -> Result<(), PrintError> {
    print(format!("{text}\n").as_bytes())
}

/// Prints bytes as they are.
pub(crate) fn print(bytes: &[u8]) -> Result<(), PrintError> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|why| match why.kind() {
        ErrorKind::BrokenPipe => PrintError::Closed(name()),
        _ => PrintError::Failed(name(), why),
    })
}

/// The path of standard output, where the system gives one.
fn name() -> PathBuf {
    let file = read_link("/proc/self/fd/1").ok().filter(|path| path.is_absolute());
    file.unwrap_or_else(|| "standard output".into())
}

/// Prints `error` on standard error and returns the exit status of the program. A failure to print
/// it is ignored. Prints nothing if the reader of standard output has closed it.
pub(crate) fn failure(error: &anyhow::Error) -> ExitCode {
    if is_closed(error) {
        return ExitCode::from(ENDED_BY_PIPE);
    }
    let sentence = match (error.downcast_ref(), error.downcast_ref()) {
        // The failed rank prints the cause, so that the cause appears once.
        (Some(CheckpointError::Rank { rank, .. }), _) | (_, Some(DataError::Rank { rank, .. })) => {
            format!("stopped, because rank {rank} failed")
        }
        _ => format!("{error:#}"),
    };
    // In one write: other ranks may write there at the same time.
    let _ = io::stderr().write_all(format!("train: {sentence}\n").as_bytes());
    ExitCode::FAILURE
}

/// True if the error is that the reader of standard output has closed it.
pub(crate) fn is_closed(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(PrintError::Closed(_)))
}
