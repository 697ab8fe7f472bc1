//! `maypole run --replace` and `train run --on-failure shrink`: ranks are killed, the others continue,
//! replacements join, and losses are those of worlds of these sizes, to the bit.

use crate::processes::{arguments, children, expected, kill, losses, wait_until, worlds};
use maypole_trainer::tensor::random::random;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// Many, so that a process comes long before the last one.
const STEPS: usize = 1200;

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

/// Kills one of three ranks again and again, each time after a process has come for the one before.
fn right(sharding: &str, way: &str, kills: usize, seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let words = format!("--mesh dp=3 --on-failure shrink --sharding {sharding}");
    let mut command = launch(folder, &format!("-n 3 --replace {kills}"), STEPS, &words);
    let mut run = command.env("MAYPOLE_TRANSPORT", way).spawn().unwrap();
    for nth in 0..kills {
        let step = losses(folder).len() + 1 + random(seed, nth as u64) as usize % 40;
        kill_one(folder, &mut run, (3, step), random(seed + 100, nth as u64));
        wait_until("a process in its place", &mut run, |_| {
            printed(folder).matches("again: ranks").count() == nth + 1
        });
    }
    let ended = run.wait().unwrap();
    let text = printed(folder);
    let errors = fs::read_to_string(folder.join("errors")).unwrap();
    assert!(ended.success(), "seed {seed}: {text}{errors}");
    let worlds = worlds(&text);
    assert_eq!(worlds.last().map(|it| it.0), Some(3), "seed {seed}: {text}");
    let found = losses(folder);
    let steps: Vec<u64> = found.iter().map(|it| it.0).collect();
    assert_eq!(steps, (1..=STEPS as u64).collect::<Vec<_>>(), "seed {seed}: {text}");
    assert!(found == expected(sharding, (3, STEPS), &worlds), "seed {seed}: {worlds:?}");
}

#[test]
fn a_process_in_the_place_of_a_killed_rank_changes_no_loss() {
    right("zero1", "shm", 2, 1);
}

#[test]
fn nor_do_processes_that_share_no_memory() {
    right("zero2", "tcp", 1, 2);
    right("replicated", "tcp", 1, 3);
}

/// About ten minutes.
#[test]
#[ignore = "takes minutes: fifty kills of real processes, and fifty that come in their place"]
fn fifty_processes_in_the_place_of_killed_ranks_change_no_loss() {
    for seed in 0..10 {
        let way = ["shm", "tcp"][seed as usize % 2];
        right(["zero1", "zero2", "replicated"][seed as usize % 3], way, 5, 10 + seed);
    }
}
