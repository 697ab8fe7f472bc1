//! The commands that measure, draw and predict, as a user runs them.

#[path = "../../../../tests/common/blocks.rs"]
mod blocks;
mod book;
#[path = "../../../../tests/common/browser.rs"]
mod browser;
mod comparing;
#[cfg(feature = "cuda")]
mod consoles;
mod doctor;
#[cfg(feature = "cuda")]
#[path = "../../../../tests/common/fake_gpu.rs"]
mod fake_gpu;
mod forms;
mod from_others;
#[cfg(feature = "cuda")]
mod gpu_prices;
mod learning;
mod limits;
mod measuring;
mod messages;
mod outputs;
#[cfg(feature = "cuda")]
mod perf_cuda;
mod predicting;
mod reports;
mod schema;
#[path = "../../../../tests/common/skip.rs"]
mod skip;
mod stepping;

use serde_json::Value;
use std::process::{Command, Output, Stdio};

/// A `maypole` that no launcher has started.
pub(crate) fn maypole(line: &str) -> Command {
    let mut command = alone(env!("CARGO_BIN_EXE_maypole"));
    command.args(line.split_whitespace());
    command
}

/// A program without input and the variables of a launcher.
pub(crate) fn alone(program: &str) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    for (name, _) in std::env::vars() {
        if ["MAYPOLE_", "OMPI_", "PMI", "SLURM_"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.env_remove("RANK").env_remove("WORLD_SIZE");
    command
}

pub(crate) fn run(line: &str) -> Output {
    maypole(line).output().unwrap_or_else(|error| panic!("{line}: {error}"))
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is text")
}

/// The standard output of a run, which must succeed.
pub(crate) fn printed(line: &str) -> String {
    let output = run(line);
    assert!(output.status.success(), "{line}: {}\n{}", output.status, text(&output.stderr));
    text(&output.stdout)
}

pub(crate) fn objects(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

/// Asserts that the options of a run are refused, and that its error says so. Returns the error.
#[track_caller]
pub(crate) fn refused(line: &str, says: &str) -> String {
    let output = run(line);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{line}: {said}");
    assert!(said.contains(says), "{line}: {said}");
    said
}
