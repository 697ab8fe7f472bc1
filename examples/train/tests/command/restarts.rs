//! `maypole run --restarts`: a run whose ranks are killed at random steps ends with the losses of a
//! run that was not disturbed, to the bit.

use crate::processes::{children, signal, wait_until};
use maypole_trainer::tensor::random::random;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const STEPS: usize = 240;

/// The launcher, which is built into the same folder.
fn launcher() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_train")).with_file_name("maypole");
    assert!(path.exists(), "{} is missing: cargo build -p maypole-cli", path.display());
    path
}

/// Starts a training of two ranks, which saves to `folder` and writes its losses there.
fn start(folder: &Path, restarts: usize) -> Child {
    let mut command = Command::new(launcher());
    command.args(["run", "-n", "2", "--grace", "1", "--restarts", &restarts.to_string(), "--"]);
    command.arg(env!("CARGO_BIN_EXE_train")).args([
        "run",
        "--mesh=dp=2",
        "--sharding=zero1",
        "--width=32",
        "--context=32",
        "--layers=2",
        "--rows=4",
        "--sample=0",
        "--deterministic",
        "--save-every=9",
        "--keep=2",
    ]);
    command.arg(format!("--steps={STEPS}"));
    command.arg("--save").arg(folder.join("saved"));
    command.arg("--losses").arg(folder.join("losses.jsonl"));
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn losses(folder: &Path) -> String {
    fs::read_to_string(folder.join("losses.jsonl")).unwrap_or_default()
}

/// Kills a rank `kills` times, each at a step that `seed` draws, and compares the losses.
fn kill_at_random_steps(kills: usize, seed: u64) {
    let undisturbed = tempfile::tempdir().unwrap();
    assert!(start(undisturbed.path(), 0).wait().unwrap().success());
    let expected = losses(undisturbed.path());
    assert_eq!(expected.lines().count(), STEPS);
    let disturbed = tempfile::tempdir().unwrap();
    let mut launcher = start(disturbed.path(), kills);
    for nth in 0..kills {
        let draw = random(seed, nth as u64);
        // Later kills are at later steps, so that the run reaches all of them.
        let from = STEPS * nth / (kills + 1);
        let step = from + 1 + draw as usize % (STEPS / (kills + 1)).max(1);
        let mut before = Vec::new();
        wait_until("the step of a kill", || {
            before = children(launcher.id());
            let ended = launcher.try_wait().unwrap();
            assert!(ended.is_none(), "kill {nth}: the launcher has ended: {ended:?}");
            before.len() == 2 && losses(disturbed.path()).lines().count() >= step
        });
        signal("KILL", before[(draw >> 32) as usize % 2]);
        wait_until("the end of the killed ranks", || {
            let now = children(launcher.id());
            before.iter().all(|rank| !now.contains(rank))
        });
    }
    assert!(launcher.wait().unwrap().success(), "after {kills} kills");
    assert!(losses(disturbed.path()) == expected, "losses differ after {kills} kills");
}

#[test]
fn a_run_that_is_killed_and_started_again_has_the_losses_of_an_undisturbed_run() {
    crate::skip::takes_turns!(4);
    kill_at_random_steps(3, 1);
}

/// About two minutes.
#[test]
#[ignore = "takes minutes: the same with 50 kills"]
fn fifty_kills_change_no_loss() {
    kill_at_random_steps(50, 2);
}
