//! The status of a rank after an error of its settings, and in a forked child.

use crate::spawn::{World, await_file, say};
use maypole::Communicator;
use std::process::Command;

/// The variable that names a file. A rank continues once the file exists.
const GO: &str = "TEST_GO";

pub(crate) fn rank_process(role: &str) {
    match role {
        "again" => join_again(),
        "fork" => fork(),
        other => panic!("there is no role {other}"),
    }
}

/// Joins once with a signal that does not exist, and then with one that does.
fn join_again() {
    let error = Communicator::from_env().unwrap_err();
    assert!(error.to_string().contains("NOSUCH"), "{error}");
    // SAFETY: this process has one thread that reads or sets variables.
    unsafe { std::env::set_var("MAYPOLE_STATUS_SIGNAL", "USR1") };
    let comm = Communicator::from_env().unwrap();
    say("ready", 0);
    await_file(GO);
    comm.close().unwrap();
}

/// A child of a rank is a rank of its own, and reports its own status.
fn fork() {
    let parent = Communicator::from_env().unwrap();
    let in_child = || {
        let comm = Communicator::from_env().unwrap();
        say("child", std::process::id());
        await_file(GO);
        comm.close().map_or_else(|error| error.to_string(), |()| "ended".to_owned())
    };
    // SAFETY: the status thread of this process holds no lock: it waits for a signal.
    let said = unsafe { maypole_tests::forked::in_forked_child(in_child) };
    say("ended", said.unwrap());
    say("parent", std::process::id());
    parent.close().unwrap();
}

/// An error in between leaves nothing half done.
#[test]
fn a_status_is_told_after_a_name_that_was_no_signal() {
    let directory = tempfile::tempdir().unwrap();
    let go = directory.path().join("go");
    let world = World::new("again", 1).set(GO, go.display());
    let mut running = world.set("MAYPOLE_STATUS_SIGNAL", "NOSUCH").start();
    running.wait_for("ready", &[0]);
    running.signal(0, "USR1");
    running.wait_for_line(0, "maypole: rank 0 of 1 (process ");
    std::fs::write(&go, "").unwrap();
    assert_eq!(running.end()[0].code, Some(0));
}

#[test]
fn a_forked_child_tells_its_own_status_and_not_that_of_its_parent() {
    let directory = tempfile::tempdir().unwrap();
    let go = directory.path().join("go");
    let world = World::new("fork", 1).set(GO, go.display());
    let mut running = world.set("MAYPOLE_STATUS_SIGNAL", "USR1").start();
    running.wait_for("child", &[0]);
    let child = running.said(0, "child");
    let signalled = Command::new("kill").args(["-s", "USR1", &child]).status().unwrap();
    assert!(signalled.success());
    running.wait_for_line(0, &format!("maypole: rank 0 of 1 (process {child})"));
    std::fs::write(&go, "").unwrap();
    let ended = running.end().remove(0);
    assert_eq!((ended.code, ended.said("ended")), (Some(0), vec!["ended"]), "{ended:#?}");
    let parent = format!("(process {})", ended.said("parent")[0]);
    assert!(!ended.lines.iter().any(|line| line.contains(&parent)), "{ended:#?}");
}
