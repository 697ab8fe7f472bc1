//! What a rank was doing when it failed, as a file, and as a message to the launcher.

use super::server::{self, StatusMessage};
use crate::control::Control;
use crate::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The variable that names the directory for reports.
const REPORT: &str = "MAYPOLE_REPORT";

/// Sends the launcher, and writes to the directory of `MAYPOLE_REPORT`, the status of the rank of
/// `control` at its first failure, `error`. Does nothing without both.
pub(crate) fn report_failure(control: &dyn Control, error: &Error) {
    let directory = std::env::var_os(REPORT).filter(|directory| !directory.is_empty());
    if directory.is_none() && !server::has_launcher() {
        return;
    }
    let mut status = control.status();
    if status.failure.is_none() {
        status.failure = Some(error.to_string());
        let members = control.activity();
        let in_world = |rank: usize| members.members().get(rank).copied();
        status.culprit = error.culprit().and_then(in_world);
    }
    let report = StatusMessage {
        error: Some(error.to_string()),
        culprit: error.culprit(),
        timed_out: matches!(error, Error::TimedOut { .. }),
        status,
    };
    server::send(&report);
    let Some(directory) = directory.map(PathBuf::from) else { return };
    let path = directory.join(format!("rank-{}.json", report.status.rank));
    if let Err(problem) = write(&directory, &path, &report) {
        let path = path.display();
        // Nothing can be reported if standard error is closed, too.
        let _ = writeln!(io::stderr(), "maypole: {REPORT}: cannot write {path}: {problem}");
    }
}

/// Writes the report whole or not at all. A report of an earlier failure is replaced.
fn write(directory: &Path, path: &Path, report: &StatusMessage) -> io::Result<()> {
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
