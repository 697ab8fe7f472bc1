//! The rank that all agree failed first is named, with its own code, though others end before it.

use crate::harness::{Running, maypole};
use crate::hosts::{FakeSsh, TWO};
use maypole::{Communicator, ReduceOp};
use std::process::Command;
use std::time::Duration;

/// What rank 2 does while the others wait for it.
const ROLE: &str = "TEST_FAILS_BY";

/// Ends after the communicator, so that the other ranks end long before this process.
struct SlowEnd;

impl Drop for SlowEnd {
    fn drop(&mut self) {
        std::thread::sleep(Duration::from_millis(400));
    }
}

/// Runs as a rank, when a test below starts this file's program again.
#[test]
fn as_a_rank_that_fails() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let _slow = SlowEnd;
    let mut comm = Communicator::from_env().unwrap();
    comm.barrier().unwrap();
    if comm.rank() == 2 {
        match role.as_str() {
            "panic" => panic!("on purpose"),
            "leave" => {
                drop(comm);
                drop(_slow);
                std::process::exit(7);
            }
            "end well" => {
                drop(comm);
                drop(_slow);
                std::process::exit(0);
            }
            "die" => {
                let this = std::process::id().to_string();
                Command::new("kill").args(["-s", "KILL", &this]).status().unwrap();
            }
            _ => std::thread::sleep(Duration::from_secs(1000)),
        }
    }
    if role == "wait" {
        comm.set_timeout(Duration::from_secs(1));
    }
    if comm.all_reduce(&mut [1u64; 4], ReduceOp::Sum).is_err() {
        std::process::exit(1);
    }
}

/// The exit code of a job of four ranks, and the last line of the launcher.
fn job(mut launcher: Command, role: &str) -> (i32, String) {
    launcher.env(ROLE, role).arg(std::env::current_exe().unwrap());
    launcher.args(["--exact", "first::as_a_rank_that_fails", "--nocapture", "--test-threads=1"]);
    let (code, lines) = Running::start(launcher).end();
    let last = lines.iter().rfind(|line| line.contains(" failed first"));
    (code, last.unwrap_or_else(|| panic!("{lines:#?}")).clone())
}

fn check(launcher: impl Fn() -> Command, on: &str, roles: &[&str]) {
    let ends = [
        ("panic", 101, format!("rank 2 failed first: it exited with code 101{on}")),
        ("leave", 7, format!("rank 2 failed first: it exited with code 7{on}")),
        ("end well", 1, "rank 2 failed first: it did not do its part, and".to_owned()),
        ("die", 137, format!("rank 2 failed first: it was killed by SIGKILL{on}")),
        ("wait", 1, "rank 2 failed first: it did not do its part, and".to_owned()),
    ];
    for (role, code, words) in ends.into_iter().filter(|end| roles.contains(&end.0)) {
        let (found, last) = job(launcher(), role);
        assert!(last.contains(&words), "{role}: {last}");
        assert_eq!(found, code, "{role}: {last}");
    }
}

#[test]
fn the_rank_that_all_name_is_named_though_others_end_before_it() {
    let roles = ["panic", "leave", "end well", "die", "wait"];
    check(|| maypole(&["run", "-n", "4", "--"]), "", &roles);
}

#[test]
fn the_rank_that_all_name_is_named_across_hosts() {
    let ssh = FakeSsh::new("exec sh -c \"$*\"");
    let launcher = || ssh.run(&format!("-x {ROLE} --hosts {TWO}"), &[]);
    check(launcher, " on 127.0.0.3", &["leave", "end well", "die"]);
}
