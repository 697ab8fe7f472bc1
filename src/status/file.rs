//! What a rank was doing when it failed, as a file, and as a message to the launcher.

use super::{RankStatus, collect, server};
use crate::control::Control;
use crate::error::Error;
use serde::Serialize;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The variable that names the directory for reports.
const REPORT: &str = "MAYPOLE_REPORT";

/// The content of a report.
#[derive(Debug, Serialize)]
struct FailureReport<'a> {
    /// The sentence of the error.
    error: String,
    /// The rank to look at first, as numbered in the group of the failed call.
    culprit: Option<usize>,
    status: &'a RankStatus,
}

/// Tells the launcher, and writes to the directory that `MAYPOLE_REPORT` names, what the rank of
/// `control` did when its first failure, `error`, came. Does nothing if neither is there.
pub(crate) fn report_failure(control: &dyn Control, error: &Error) {
    let directory = std::env::var_os(REPORT).filter(|directory| !directory.is_empty());
    if directory.is_none() && !server::has_launcher() {
        return;
    }
    let mut status = collect::status(control);
    status.failure.get_or_insert_with(|| error.to_string());
    server::tell_failure(&status, matches!(error, Error::TimedOut { .. }));
    let Some(directory) = directory.map(PathBuf::from) else { return };
    let path = directory.join(format!("rank-{}.json", status.rank));
    let report =
        FailureReport { error: error.to_string(), culprit: error.culprit(), status: &status };
    if let Err(problem) = write(&directory, &path, &report) {
        let path = path.display();
        // Nobody can be told if standard error is closed, too.
        let _ = writeln!(io::stderr(), "maypole: {REPORT}: cannot write {path}: {problem}");
    }
}

/// Writes the report whole or not at all. A report of an earlier failure is replaced.
fn write(directory: &Path, path: &Path, report: &FailureReport<'_>) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let partial = path.with_extension(format!("json.{}", std::process::id()));
    let text = serde_json::to_vec_pretty(report)?;
    let written = fs::write(&partial, text).and_then(|()| fs::rename(&partial, path));
    if written.is_err() {
        // It may not exist.
        let _ = fs::remove_file(&partial);
    }
    written
}
