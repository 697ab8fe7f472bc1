//! Standard output: the one writer of everything that `train` prints.
//!
//! A reader that has seen enough, such as `head`, closes the pipe. Then there is nothing left to do
//! and nothing to say: the program ends at once, with the status that a shell reports of a tool
//! that such a pipe ends. Any other failure, such as a full disk, is an error.

pub(crate) mod files;

use maypole_trainer::train::checkpoint::CheckpointError;
use maypole_trainer::train::stream::DataError;
use std::fmt::Display;
use std::fs::read_link;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Standard output takes nothing more.
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

/// Prints a line.
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

/// The file that standard output is, where the system says so.
fn name() -> PathBuf {
    let file = read_link("/proc/self/fd/1").ok().filter(|path| path.is_absolute());
    file.unwrap_or_else(|| "standard output".into())
}

/// The status of a program that ends with `error`, after it was said on standard error. If that is
/// closed too, no one can be told.
pub(crate) fn failure(error: &anyhow::Error) -> ExitCode {
    if is_closed(error) {
        return ExitCode::from(ENDED_BY_PIPE);
    }
    let sentence = match (error.downcast_ref(), error.downcast_ref()) {
        // That rank says why: a cause is said once.
        (Some(CheckpointError::Rank { rank, .. }), _) | (_, Some(DataError::Rank { rank, .. })) => {
            format!("stopped, because rank {rank} failed")
        }
        _ => format!("{error:#}"),
    };
    // In one piece: other ranks may write there too.
    let _ = io::stderr().write_all(format!("train: {sentence}\n").as_bytes());
    ExitCode::FAILURE
}

/// True if the reader of standard output has seen enough.
pub(crate) fn is_closed(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(PrintError::Closed(_)))
}
