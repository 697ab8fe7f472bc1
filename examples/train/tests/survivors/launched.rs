//! `maypole run --enable-recovery` and `train run --on-failure shrink`: ranks are killed, the others
//! continue, and losses are those of worlds of these sizes, to the bit.

use crate::processes::{arguments, children, expected, kill, losses, wait_until, worlds};
use maypole_trainer::tensor::random::random;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

const STEPS: usize = 60;

/// The launcher, which is built into the same folder.
pub(crate) fn launcher() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_train")).with_file_name("maypole");
    assert!(path.exists(), "{} is missing: cargo build -p maypole-cli", path.display());
    path
}

/// A training by the launcher, whose output goes to files in `folder`.
pub(crate) fn launch(folder: &Path, options: &str, steps: usize, words: &str) -> Command {
    let mut command = Command::new(launcher());
    command.arg("run").args(options.split_whitespace()).arg("--");
    command.arg(env!("CARGO_BIN_EXE_train")).args(arguments(steps, words)).current_dir(folder);
    command.env("MAYPOLE_TIMEOUT", "60").env("RUST_BACKTRACE", "0");
    command.stdout(File::create(folder.join("printed")).unwrap());
    command.stderr(File::create(folder.join("errors")).unwrap());
    command
}

pub(crate) fn printed(folder: &Path) -> String {
    fs::read_to_string(folder.join("printed")).unwrap()
}

/// The children of the launcher that run. It collects those that have ended at its end.
pub(crate) fn ranks_of(launcher: u32) -> Vec<u32> {
    let runs = |process: &u32| {
        let status = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        status.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.contains('Z'))
    };
    children(launcher).into_iter().filter(runs).collect()
}

/// Kills one of the ranks when `step` steps are done.
pub(crate) fn kill_one(folder: &Path, run: &mut Child, (ranks, step): (usize, usize), draw: u64) {
    wait_until("a step", run, |_| losses(folder).len() >= step);
    let there = ranks_of(run.id());
    assert_eq!(there.len(), ranks, "{}", printed(folder));
    kill(there[draw as usize % ranks]);
}

/// Kills one of three ranks.
fn right(sharding: &str, way: &str, seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let words = format!("--mesh dp=3 --on-failure shrink --sharding {sharding}");
    let mut command = launch(folder, "-n 3 --enable-recovery", STEPS, &words);
    let mut run = command.env("MAYPOLE_TRANSPORT", way).spawn().unwrap();
    let step = 1 + random(seed, 0) as usize % (STEPS / 2);
    kill_one(folder, &mut run, (3, step), random(seed, 1));
    let ended = run.wait().unwrap();
    let text = printed(folder);
    let errors = fs::read_to_string(folder.join("errors")).unwrap();
    assert!(ended.success(), "seed {seed}: {text}{errors}");
    let worlds = worlds(&text);
    assert_eq!(worlds.last().map(|it| it.0), Some(2), "seed {seed}: {text}");
    let found = losses(folder);
    let steps: Vec<u64> = found.iter().map(|it| it.0).collect();
    assert_eq!(steps, (1..=STEPS as u64).collect::<Vec<_>>(), "seed {seed}: {text}");
    assert!(found == expected(sharding, (3, STEPS), &worlds), "seed {seed}: {worlds:?}");
}

#[test]
fn ranks_of_a_launcher_go_on_without_one_that_was_killed() {
    crate::skip::takes_turns!(4);
    right("zero1", "shm", 1);
    right("zero2", "tcp", 2);
}
