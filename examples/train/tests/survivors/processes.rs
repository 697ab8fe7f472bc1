//! `train run --processes --on-failure shrink`: real processes, killed by a signal.

use maypole_trainer::tensor::random::random;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const STEPS: usize = 60;

/// The arguments of a training. The rate is constant, so that runs of fewer steps have the same ones.
pub(crate) fn arguments(steps: usize, words: &str) -> Vec<String> {
    let common = format!(
        "run --width 16 --context 16 --layers 2 --rows 12 --sample 0 --deterministic --steps {steps} \
         --shape constant --losses losses {words}"
    );
    common.split_whitespace().map(str::to_owned).collect()
}

pub(crate) fn train(folder: &Path, steps: usize, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_train"));
    command.args(arguments(steps, words)).current_dir(folder);
    command.env("MAYPOLE_TIMEOUT", "60").env("RUST_BACKTRACE", "0");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Steps and losses of the file.
pub(crate) fn losses(folder: &Path) -> Vec<(u64, f64)> {
    let text = fs::read_to_string(folder.join("losses")).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.map(|line| (line["step"].as_u64().unwrap(), line["loss"].as_f64().unwrap())).collect()
}

/// The children of a process that still run.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

pub(crate) fn kill(process: u32) {
    assert!(Command::new("kill").args(["-KILL", &process.to_string()]).status().unwrap().success());
}

/// Waits for `done`, for a bounded time.
pub(crate) fn wait_until(what: &str, run: &mut Child, mut done: impl FnMut(u32) -> bool) {
    let start = Instant::now();
    while !done(run.id()) {
        assert!(start.elapsed() < Duration::from_secs(60), "{what} takes too long");
        assert!(run.try_wait().unwrap().is_none(), "{what}: the run has ended");
        sleep(Duration::from_millis(1));
    }
}

/// Kills `kills` of four ranks, each at a random step, and returns the output.
fn killed(folder: &Path, sharding: &str, kills: usize, seed: u64) -> Output {
    let words = format!("--mesh dp=4 --processes --on-failure shrink --sharding {sharding}");
    let mut run = train(folder, STEPS, &words).spawn().unwrap();
    let mut step = 0;
    for nth in 0..kills as u64 {
        step += 1 + random(seed, nth) as usize % (STEPS / (kills + 1));
        wait_until("a step", &mut run, |_| losses(folder).len() >= step);
        let there = children(run.id());
        assert_eq!(there.len(), 4 - nth as usize);
        // Any of them, the first too: it prints and writes losses.
        kill(there[random(seed + 100, nth) as usize % there.len()]);
        wait_until("the end of a rank", &mut run, |id| children(id).len() < there.len());
        step = losses(folder).len();
    }
    run.wait_with_output().unwrap()
}

/// The steps from which a run went on, with the ranks that were left.
pub(crate) fn worlds(printed: &str) -> Vec<(usize, u64)> {
    let lines = printed.lines().filter(|line| line.contains("go on from step"));
    let world = |line: &str| {
        let (ranks, step) = line.split_once(": ranks ").unwrap().1.split_once(" go on").unwrap();
        let step = step.rsplit(' ').next().unwrap().parse().unwrap();
        (ranks.split(' ').count(), step)
    };
    lines.map(world).collect()
}

/// The losses of `steps` steps of `ranks` ranks, which are others from these steps on, by checkpoints.
pub(crate) fn expected(
    sharding: &str,
    (ranks, steps): (usize, usize),
    worlds: &[(usize, u64)],
) -> Vec<(u64, f64)> {
    let folder = tempfile::tempdir().unwrap();
    let mut ranks = ranks;
    let mut run = |until: u64, next: usize| {
        if until > 0 {
            let words = format!("--mesh dp={ranks} --sharding {sharding} --save saved");
            let output = train(folder.path(), until as usize, &words).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        ranks = next;
    };
    for (ranks, step) in worlds {
        run(*step, *ranks);
    }
    run(steps as u64, 0);
    losses(folder.path())
}

fn right(sharding: &str, kills: usize, seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let output = killed(folder.path(), sharding, kills, seed);
    let printed = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "seed {seed}: {printed}{error}");
    assert!(printed.contains("validation loss"), "{printed}");
    let worlds = worlds(&printed);
    assert_eq!(worlds.last().map(|it| it.0), Some(4 - kills), "seed {seed}: {printed}");
    let found = losses(folder.path());
    let steps: Vec<u64> = found.iter().map(|it| it.0).collect();
    assert_eq!(steps, (1..=STEPS as u64).collect::<Vec<_>>(), "seed {seed}: {printed}");
    assert_eq!(found, expected(sharding, (4, STEPS), &worlds), "seed {seed}: {worlds:?}");
}

#[test]
fn three_of_four_processes_are_killed_and_the_last_one_ends_the_run() {
    crate::skip::takes_turns!(4);
    right("zero1", 3, 1);
}

#[test]
fn a_killed_process_of_replicas_and_of_zero_two() {
    crate::skip::takes_turns!(4);
    right("replicated", 1, 2);
    right("zero2", 1, 3);
}

/// About two minutes.
#[test]
#[ignore = "takes minutes: fifty kills of real processes"]
fn fifty_kills_of_processes_change_no_loss() {
    for seed in 0..25 {
        right(["zero1", "zero2", "replicated"][seed as usize % 3], 2, 10 + seed);
    }
}

#[test]
fn what_cannot_shrink_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (words, part) in [
        ("--on-failure jump", "'jump' is no reaction to a failure; there are stop, shrink"),
        (
            "--on-failure wait --save s --mesh tp=2",
            "--on-failure wait needs ranks of which each has",
        ),
        ("--on-failure wait --save s --mesh dp=2 --sharding fsdp", "a part dies with a rank"),
        ("--on-failure wait --mesh dp=2", "give its folder by --save"),
        ("--on-failure shrink", "the mesh has one"),
        ("--on-failure shrink --mesh tp=2", "tp divides it: give a --mesh of dp alone"),
        ("--on-failure shrink --mesh dp=2 --sharding fsdp", "give --sharding replicated"),
        ("--on-failure shrink --mesh dp=2 --precision bf16", "leave out --precision"),
        ("--on-failure shrink --mesh dp=2 --rows-by-speed 5:1,2", "leave out --rows-by-speed"),
        ("--on-failure shrink --mesh dp=2 --against one", "leave out one of them"),
    ] {
        let output = train(folder.path(), STEPS, words).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && error.contains(part), "{words}: {error}");
    }
}
