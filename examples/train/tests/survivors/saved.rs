//! `train run --on-failure wait`: a rank is killed at a random step, the others save a checkpoint of the
//! last common step, and a run that resumes there has the losses of an undisturbed one, to the bit.

use crate::launched::{kill_one, launch, printed};
use crate::processes::{losses, train};
use maypole_trainer::tensor::random::random;
use std::fs;
use std::path::Path;

const STEPS: usize = 60;

/// The steps after which there are checkpoints.
fn saved(folder: &Path) -> Vec<usize> {
    let names = fs::read_dir(folder.join("saved")).into_iter().flatten();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut steps: Vec<usize> =
        names.filter_map(|name| name.rsplit('-').next().unwrap().parse().ok()).collect();
    steps.sort_unstable();
    steps
}

fn words(sharding: &str) -> String {
    format!("--mesh dp=3 --sharding {sharding} --save saved --save-every 1000 --on-failure wait")
}

fn undisturbed(sharding: &str) -> Vec<(u64, f64)> {
    let folder = tempfile::tempdir().unwrap();
    assert!(train(folder.path(), STEPS, &words(sharding)).output().unwrap().status.success());
    losses(folder.path())
}

#[test]
fn the_last_step_that_all_have_done_is_saved_and_the_run_goes_on_from_it() {
    crate::skip::takes_turns!(4);
    for (seed, sharding) in [(1, "zero1"), (2, "replicated")] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let options = "-n 3 --failure-grace 60";
        let mut run = launch(folder, options, STEPS, &words(sharding)).spawn().unwrap();
        let step = 1 + random(seed, 0) as usize % (STEPS / 2);
        kill_one(folder, &mut run, (3, step), random(seed, 1));
        let ended = run.wait().unwrap();
        let errors = fs::read_to_string(folder.join("errors")).unwrap();
        assert!(!ended.success(), "{errors}");
        let steps = saved(folder);
        let [last] = steps[..] else { panic!("{steps:?}: {}{errors}", printed(folder)) };
        assert!((step..STEPS).contains(&last), "{steps:?}, killed after {step}: {errors}");
        let told = format!("what all ranks have done, to step {last}, is saved in saved");
        assert!(errors.contains(&told), "{errors}");
        // Rank 0 has written the losses of steps that all have done, or died before the last one.
        assert!(losses(folder).len() >= last - 1, "{}", losses(folder).len());
        assert!(launch(folder, "-n 3", STEPS, &words(sharding)).status().unwrap().success());
        assert!(printed(folder).contains(&format!("{last}")), "{}", printed(folder));
        let found = losses(folder);
        let expected = undisturbed(sharding);
        assert!(found == expected[expected.len() - found.len()..], "{sharding}: from step {last}");
        assert!(found.len() >= STEPS - last);
    }
}

/// The launcher starts all ranks again, once the others have saved.
#[test]
fn a_restart_goes_on_from_the_step_of_the_death() {
    crate::skip::takes_turns!(4);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let options = "-n 3 --failure-grace 60 --restarts 1";
    let mut run = launch(folder, options, STEPS, &words("zero2")).spawn().unwrap();
    kill_one(folder, &mut run, (3, 20), 1);
    assert!(run.wait().unwrap().success(), "{}", printed(folder));
    let text = printed(folder);
    let from = text.lines().find_map(|line| line.split_once("from saved/")).unwrap().1;
    let step: usize = from.trim().rsplit('-').next().unwrap().parse().unwrap();
    assert!((20..STEPS).contains(&step), "{text}");
    assert!(losses(folder) == undisturbed("zero2"), "{text}");
}
