//! `maypole learn`: exercises that check themselves.

mod blanks;
mod exercise;

use crate::output;
use anyhow::{Context, Result, ensure};
use exercise::{Exercise, ExerciseProgress};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The exit code while an exercise is open or wrong.
const NOT_YET: u8 = 1;
/// The folder of the schedules in the repository.
const SCHEDULES: &str = "examples/book/exercises";

/// Do exercises that check themselves.
///
/// Each is a file with a blank to fill or a mistake to find. The first ones are schedules: what is
/// filled in is proved, drawn and counted; where it is wrong, the checker says
/// at which rank, step and chunk. The others are functions in Rust, one for each axis of the trainer:
/// cargo compiles what is filled in, and a test trains with it. Without a NAME, the first exercise
/// that is not done is next.
#[derive(clap::Args)]
pub(crate) struct LearnArgs {
    /// The exercise to check, by the beginning of its name, such as 03, 03_swap or tensor.
    name: Option<String>,

    /// The folder of the schedules.
    #[arg(long, value_name = "DIR", default_value = SCHEDULES)]
    dir: PathBuf,

    /// The folder of the functions in Rust, for tests of this command.
    #[arg(long, hide = true, default_value = "examples/lab/tests/exercises/blanks")]
    blanks: PathBuf,
}

pub(crate) fn main(args: LearnArgs) -> Result<ExitCode> {
    Ok(if args.show()? { ExitCode::SUCCESS } else { ExitCode::from(NOT_YET) })
}

impl LearnArgs {
    /// The requested files of schedules, in the order of their names.
    fn schedules(&self) -> Result<Vec<PathBuf>> {
        let dir = self.dir.display();
        let listed = std::fs::read_dir(&self.dir).with_context(|| {
            format!("cannot read the folder --dir {dir}; run this at the top of the repository")
        })?;
        let mut files = listed
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<std::io::Result<Vec<PathBuf>>>()?;
        let wanted = |path: &PathBuf| {
            let is_schedule = path.extension().is_some_and(|kind| kind == "toml");
            is_schedule && stem(path).starts_with(self.begins())
        };
        files.retain(wanted);
        files.sort();
        Ok(files)
    }

    fn begins(&self) -> &str {
        self.name.as_deref().unwrap_or("")
    }

    /// The requested functions; none with schedules elsewhere, if there are none here.
    fn blanks(&self) -> Vec<PathBuf> {
        let is_elsewhere = self.dir != Path::new(SCHEDULES) && !self.blanks.is_dir();
        if is_elsewhere { Vec::new() } else { blanks::files(&self.blanks, self.begins()) }
    }

    /// Shows the solved exercises, and the first unsolved one. True if all are done.
    fn show(&self) -> Result<bool> {
        let (schedules, blanks) = (self.schedules()?, self.blanks());
        let name = self.begins();
        let asked = schedules.len() + blanks.len();
        ensure!(
            asked > 0,
            "{} has no exercise whose name begins with {name:?}",
            self.dir.display()
        );
        for path in &schedules {
            if !show(path, &Exercise::read(path)?, asked == 1)? {
                return Ok(false);
            }
        }
        for (path, exercise) in blanks.iter().zip(blanks::read(&blanks)?) {
            if !show(path, &exercise, asked == 1)? {
                return Ok(false);
            }
        }
        if self.name.is_none() {
            output::print_line("\nAll are done.")?;
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
        ExerciseProgress::Done(said) if is_alone => {
            output::print_line(format_args!("{name}: done\n\n{said}"))?
        }
        ExerciseProgress::Done(_) => output::print_line(format_args!("{name}: done"))?,
        ExerciseProgress::Open => {
            let what = match path.extension().is_some_and(|kind| kind == "rs") {
                true => {
                    "Write its body in the place of todo!(...). Checking it builds a test program."
                }
                false => "Put steps, each in quotes, or a number in the place of \"???\".",
            };
            output::print_line(format_args!("{head}\n{what}"))?;
        }
        ExerciseProgress::Wrong(picture, why) => {
            output::print_line(format_args!("{head}\n{picture}\nNot right yet: {why}"))?;
        }
    }
    Ok(matches!(exercise.progress, ExerciseProgress::Done(_)))
}
