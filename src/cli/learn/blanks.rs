//! The exercises of the trainer: functions of Rust whose bodies are missing, one a file.
//!
//! Cargo compiles them into a test program, `exercises` of the package `maypole-lab`, and each has a
//! test there. All files that are filled in are compiled and tested together, so that a look at all
//! exercises builds once.

use super::exercise::{Exercise, ExerciseProgress};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What stands where the learner has to write.
const BLANK: &str = "todo!(";

/// The names of the exercises in their order, each the name of a file and of its test.
const NAMES: [&str; 9] = [
    "data_parallel",
    "zero",
    "tensor",
    "sequence",
    "pipeline",
    "experts",
    "context",
    "averaging",
    "unequal",
];

/// The files of the exercises whose names begin with `name`.
pub(super) fn files(folder: &Path, name: &str) -> Vec<PathBuf> {
    let wanted = NAMES.into_iter().filter(|known| known.starts_with(name));
    wanted.map(|known| folder.join(known).with_extension("rs")).collect()
}

/// Reads the files, and tests those that are filled in, each by the test of its name.
///
/// # Errors
/// If a file cannot be read, or cargo cannot be started.
pub(super) fn read(files: &[PathBuf]) -> Result<Vec<Exercise>> {
    let text = |path: &PathBuf| {
        let text = crate::input::text("", path, crate::input::TEXT);
        text.context("run this at the top of the repository")
    };
    let texts = files.iter().map(text).collect::<Result<Vec<String>>>()?;
    let names = files.iter().map(|path| super::stem(path));
    let filled = names.zip(&texts).filter(|(_, text)| !text.contains(BLANK));
    let filled: Vec<String> = filled.map(|(name, _)| name).collect();
    let tested = if filled.is_empty() { None } else { Some(Tested::run(&filled)?) };
    let exercise = |(path, text): (&PathBuf, &String)| {
        let tested = tested.as_ref().filter(|_| !text.contains(BLANK));
        let progress =
            tested.map_or(ExerciseProgress::Open, |tested| tested.progress(&super::stem(path)));
        Exercise { task: task(text), progress }
    };
    Ok(files.iter().zip(&texts).map(exercise).collect())
}

/// The comments of a file, and the head of its function.
fn task(text: &str) -> String {
    let comments = |mark: &str| {
        let comment = |line: &str| {
            let comment = line.strip_prefix(mark)?;
            Some(comment.strip_prefix(' ').unwrap_or(comment).to_owned())
        };
        text.lines().filter_map(comment).collect::<Vec<String>>().join("\n")
    };
    let mut head = Vec::new();
    for line in text.lines().skip_while(|line| !line.starts_with("pub fn")) {
        head.push(line);
        if line.ends_with('{') {
            break;
        }
    }
    [comments("//!"), comments("///"), head.join("\n")].join("\n\n")
}

/// The output of the tests.
struct Tested {
    printed: String,
    complaints: String,
}

impl Tested {
    fn run(names: &[String]) -> Result<Self> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["test", "-q", "-p", "maypole-lab", "--test", "exercises"])
            .args(["--", "--ignored", "--exact"])
            .args(names)
            // A failed assertion is the lesson, and where in the test it stands is not.
            .env("RUST_BACKTRACE", "0")
            .output()
            .context("cannot start cargo, which compiles and tests exercises in Rust")?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (printed, complaints) = (text(&output.stdout), text(&output.stderr));
        ensure!(
            output.status.success() || !printed.is_empty() || !complaints.is_empty(),
            "cargo test ended with {} and said nothing",
            output.status
        );
        Ok(Self { printed, complaints })
    }

    /// The result of the test `name`.
    fn progress(&self, name: &str) -> ExerciseProgress {
        if !self.printed.contains("test result: ") {
            let why = format!("it does not compile.\n\n{}", self.complaints.trim());
            return ExerciseProgress::Wrong(String::new(), why);
        }
        let head = format!("---- {name} stdout ----");
        let Some((_, rest)) = self.printed.split_once(&head) else {
            return ExerciseProgress::Done("its test passes".to_owned());
        };
        let ends = ["\n---- ", "\nfailures:"].into_iter().filter_map(|end| rest.find(end));
        let said = &rest[..ends.min().unwrap_or(rest.len())];
        let is_noise = |line: &&str| line.starts_with("note: ") || line.trim().is_empty();
        let lines: Vec<&str> = said.lines().filter(|line| !is_noise(line)).collect();
        ExerciseProgress::Wrong(String::new(), lines.join("\n"))
    }
}
