//! How a test reports that it did not run.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;

/// Prints `SKIPPED: test: reason` for the calling test, in one line.
///
/// Cargo hides what a passing test prints. So the line is also appended to the file that the
/// environment variable `SKIPPED_TESTS` names, if it is set. `.ci/run` prints that file.
pub(crate) fn skipped(reason: impl Display) {
    let thread = std::thread::current();
    let line = format!("SKIPPED: {}: {reason}\n", thread.name().unwrap_or("a test"));
    eprint!("{line}");
    if let Some(file) = std::env::var_os("SKIPPED_TESTS") {
        let opened = OpenOptions::new().append(true).create(true).open(&file);
        let mut opened = opened.unwrap_or_else(|error| {
            panic!("SKIPPED_TESTS names {}, which cannot be opened: {error}", file.display())
        });
        // One write a line: lines of tests that run at the same time do not mix.
        opened.write_all(line.as_bytes()).unwrap();
    }
}

/// True if the calling test, which takes minutes, is left out: it says so, and how to run it. The
/// environment variable `TESTS=all` runs such tests too.
#[allow(dead_code, reason = "most programs have no such test")]
pub(crate) fn takes_minutes() -> bool {
    let left_out = std::env::var_os("TESTS").is_none_or(|which| which != "all");
    if left_out {
        skipped("it takes minutes; TESTS=all runs it, and so does .ci/run --all");
    }
    left_out
}
