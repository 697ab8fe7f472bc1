//! Jobs that are started again after a failure.

use crate::harness::{Running, complete, run};
use std::collections::BTreeSet;
use std::path::Path;

/// The lines of the launcher about restarts of all ranks.
fn again(lines: &[String]) -> Vec<&str> {
    let said = lines.iter().filter_map(|line| line.strip_prefix("maypole: starting all ranks "));
    said.collect()
}

/// A script in which rank 1 counts the starts of the job as `starts`, and does `then`. Rank 0 waits
/// until it is stopped, or until rank 1 makes the file `done`.
fn counting(folder: &Path, then: &str) -> String {
    let folder = folder.display();
    format!(
        "cd {folder}
         if [ $RANK = 0 ]; then while [ ! -e done ]; do sleep 0.01; done; exit 0; fi
         echo >> starts
         starts=$(wc -l < starts)
         {then}"
    )
}

#[test]
fn a_job_is_started_again_until_no_rank_fails() {
    let folder = tempfile::tempdir().unwrap();
    let script = counting(folder.path(), "[ $starts -lt 3 ] && exit 3; touch done");
    let (code, lines) = complete(run("-n 2 --restarts 5", &script));
    assert_eq!(code, 0, "{lines:?}");
    assert_eq!(again(&lines), ["again, restart 1 of 5", "again, restart 2 of 5"]);
}

#[test]
fn restarts_come_to_an_end_and_the_last_failure_counts() {
    let folder = tempfile::tempdir().unwrap();
    let script = counting(folder.path(), "exit $((10 + starts))");
    let (code, lines) = complete(run("-n 2 --restarts 2", &script));
    assert_eq!(code, 13, "{lines:?}");
    assert_eq!(again(&lines), ["again, restart 1 of 2", "again, restart 2 of 2"]);
}

#[test]
fn without_the_option_nothing_is_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let (code, lines) = complete(run("-n 2", &counting(folder.path(), "exit 5")));
    assert_eq!((code, again(&lines).len()), (5, 0), "{lines:?}");
}

#[test]
fn each_start_has_a_name_of_its_own() {
    let (code, lines) = complete(run("-n 2 --restarts 1", "echo $MAYPOLE_JOB; exit 1"));
    assert_eq!(code, 1);
    // A rank may be stopped before it prints its name, but not the one that fails first.
    let names: BTreeSet<&str> = lines.iter().filter_map(|line| line.split("run-").nth(1)).collect();
    assert_eq!(names.len(), 2, "{lines:?}");
}

#[test]
fn a_job_that_a_signal_has_ended_is_not_started_again() {
    let running = Running::start(run("-n 2 --restarts 9", "echo here; exec sleep 1000"));
    running.wait_for("here");
    running.signal("TERM");
    let (code, lines) = running.end();
    assert_eq!((code, again(&lines).len()), (128 + 15, 0), "{lines:?}");
}
