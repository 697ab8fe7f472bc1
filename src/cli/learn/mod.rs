//! `maypole learn`: exercises that check themselves.

mod exercise;
mod real;

use crate::output;
use anyhow::{Context, Result, ensure};
use exercise::{Exercise, Progress};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// The exit code while an exercise is open or wrong.
const NOT_YET: u8 = 1;
/// How often a file is looked at that is watched.
const LOOK: Duration = Duration::from_millis(300);
/// The exercises of the trainer, which are Rust: a name of a test each, and what it is about.
const TRAINER: [(&str, &str); 8] = [
    ("data_parallel", "the sum of gradients"),
    ("zero", "an optimizer in parts"),
    ("tensor", "two matrices, cut so that one sum is enough"),
    ("pipeline", "one forward, one backward"),
    ("context", "a softmax whose keys arrive in blocks"),
    ("experts", "tokens to their experts, and back"),
    ("averaging", "an average of weights"),
    ("unequal", "the weight of a token where ranks have unequal rows"),
];

/// Do exercises that check themselves.
///
/// Each is a file with a blank to fill or a mistake to find. What is filled in is proved, drawn,
/// counted and run between threads; where it is wrong, the checker says at which rank, step and
/// chunk. Without a NAME, the first exercise that is not done is next.
#[derive(clap::Args)]
pub(crate) struct LearnArgs {
    /// The exercise to check, by the beginning of its name, such as 03 or 03_swap.
    name: Option<String>,

    /// The folder of the exercises.
    #[arg(long, value_name = "DIR", default_value = "examples/book/exercises")]
    dir: PathBuf,

    /// Check again whenever a file changes, until all are done or Ctrl-C is pressed.
    #[arg(short, long)]
    watch: bool,
}

pub(crate) fn main(args: LearnArgs) -> Result<ExitCode> {
    loop {
        let changed = args.changed()?;
        if args.show()? {
            return Ok(ExitCode::SUCCESS);
        }
        if !args.watch {
            return Ok(ExitCode::from(NOT_YET));
        }
        while args.changed()? == changed {
            std::thread::sleep(LOOK);
        }
        output::print_line("\n----")?;
    }
}

impl LearnArgs {
    /// The files that are asked for, in the order of their names.
    fn files(&self) -> Result<Vec<PathBuf>> {
        let dir = self.dir.display();
        let listed = std::fs::read_dir(&self.dir).with_context(|| {
            format!("cannot read the folder --dir {dir}; run this at the top of the repository")
        })?;
        let mut files = listed
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<std::io::Result<Vec<PathBuf>>>()?;
        let wanted = |path: &PathBuf| {
            let begins = |name: &String| stem(path).starts_with(name.as_str());
            path.extension().is_some_and(|kind| kind == "toml")
                && self.name.as_ref().is_none_or(begins)
        };
        files.retain(wanted);
        files.sort();
        let name = self.name.as_deref().unwrap_or("");
        ensure!(!files.is_empty(), "{dir} has no exercise whose name begins with {name:?}");
        Ok(files)
    }

    /// When the files were last changed.
    fn changed(&self) -> Result<Vec<SystemTime>> {
        let time = |path: &PathBuf| Ok(std::fs::metadata(path)?.modified()?);
        self.files()?.iter().map(time).collect()
    }

    /// Shows what is done, and the first exercise that is not. True if all are done.
    fn show(&self) -> Result<bool> {
        let files = self.files()?;
        for path in &files {
            let exercise = Exercise::read(path)?;
            if !show(path, &exercise, files.len() == 1)? {
                return Ok(false);
            }
        }
        if self.name.is_none() {
            output::print(afterwards())?;
        }
        Ok(true)
    }
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Shows an exercise: a line if it is done, unless it is the only one. True if it is done.
fn show(path: &Path, exercise: &Exercise, is_alone: bool) -> Result<bool> {
    let (name, task) = (stem(path), exercise.task.trim());
    let head = format!("{name}: not done yet, in {}\n\n{task}\n", path.display());
    match &exercise.progress {
        Progress::Done(said) if is_alone => {
            output::print_line(format_args!("{name}: done\n\n{said}"))?
        }
        Progress::Done(_) => output::print_line(format_args!("{name}: done"))?,
        Progress::Open => {
            let what = "Put steps, each in quotes, or a number in the place of \"???\".";
            output::print_line(format_args!("{head}\n{what}"))?;
        }
        Progress::Wrong(picture, why) => {
            output::print_line(format_args!("{head}\n{picture}\nNot right yet: {why}"))?;
        }
    }
    Ok(matches!(exercise.progress, Progress::Done(_)))
}

/// What comes after the last exercise.
fn afterwards() -> String {
    let mut text = "\nAll are done. The exercises of the trainer are functions in Rust, in \
                    examples/lab/tests/exercises/blanks:\n"
        .to_owned();
    for (name, about) in TRAINER {
        text += &format!(
            "  cargo test -p maypole-lab --test exercises -- --ignored {name}   # {about}\n"
        );
    }
    text
}
