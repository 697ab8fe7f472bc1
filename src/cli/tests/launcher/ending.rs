//! How a job ends: failures of ranks, signals, and the grace period.

use crate::harness::{FOREVER, Running, complete, fifo, run};
use crate::skip;
use std::path::Path;
use std::process::{Command, Stdio};

/// A script in which rank 0 ignores SIGTERM and SIGINT. The other ranks wait until it does, then
/// run `then`. It prints a line once it writes to no pipe any more, whose reader a signal may end.
fn ignores_signals(folder: &Path, then: &str) -> String {
    let fifo = fifo(folder);
    format!(
        "if [ $RANK = 0 ]; then trap '' TERM INT; echo > {fifo}; echo ignores_signals; \
         exec sleep {FOREVER}; fi; read line < {fifo}; {then}"
    )
}

#[test]
fn a_rank_that_ignores_signals_is_killed_after_the_grace_period() {
    let folder = tempfile::tempdir().unwrap();
    let (code, lines) =
        complete(run("-n 2 --grace 0.2", &ignores_signals(folder.path(), "exit 7")));
    assert_eq!(code, 7);
    assert!(
        lines.contains(&"maypole: rank 0 did not end within 200ms and is killed".to_owned()),
        "{lines:?}"
    );
    assert!(
        lines.contains(&"maypole: rank 1 failed first: it exited with code 7".to_owned()),
        "{lines:?}"
    );
}

#[test]
fn a_signal_that_is_ignored_stays_so() {
    // The launcher starts with SIGHUP ignored, as under `nohup`.
    let mut command = Command::new("sh");
    let script = "trap '' HUP; exec \"$0\" run -n 1 --tag-output -- \
                  sh -c 'echo ready; read line; echo end'";
    command.args(["-c", script]);
    command.arg(env!("CARGO_BIN_EXE_maypole")).stdin(Stdio::piped());
    let mut job = Running::start(command);
    job.wait_for("ready");
    job.signal("HUP");
    drop(job.child.stdin.take());
    job.wait_for("end");
    assert_eq!(job.end().0, 0);
}

#[test]
fn a_signal_is_passed_on_to_all_ranks() {
    for (signal, number) in [("TERM", 15), ("INT", 2), ("QUIT", 3), ("HUP", 1)] {
        if skip::ignores(number) {
            skip::skipped(format!(
                "SIG{signal} is ignored here, like for background jobs of a script"
            ));
            continue;
        }
        let script = format!(
            "trap 'echo got {signal}; exit 0' {signal}; echo ready; sleep {FOREVER} & wait"
        );
        let job = Running::start(run("-n 2", &script));
        job.wait_for("ready");
        job.wait_for("ready");
        job.signal(signal);
        let (code, lines) = job.end();
        assert_eq!(code, 128 + number);
        for rank in 0..2 {
            assert!(lines.contains(&format!("[rank {rank}] got {signal}")), "{lines:?}");
        }
        assert!(!lines.iter().any(|line| line.contains("failed first")), "{lines:?}");
    }
}

#[test]
fn a_user_signal_is_passed_on_and_ends_nothing() {
    let job = Running::start(run(
        "-n 1 --tag-output",
        "trap 'echo saved; exit 0' USR1; echo ready; sleep 1000 & wait",
    ));
    job.wait_for("ready");
    job.signal("USR1");
    job.wait_for("saved");
    assert_eq!(job.end().0, 0);
}

#[test]
fn a_second_signal_kills_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let job = Running::start(run(
        "-n 1 --tag-output --grace 100000",
        &ignores_signals_alone(folder.path()),
    ));
    job.wait_for("ignores_signals");
    job.signal("TERM");
    job.wait_for("SIGTERM passed on to rank 0");
    job.signal("TERM");
    job.wait_for("rank 0 killed");
    assert_eq!(job.end().0, 128 + 15);
}

/// [`ignores_signals`] for one rank. A second process reads the pipe, because no other rank does.
fn ignores_signals_alone(folder: &Path) -> String {
    let script = ignores_signals(folder, "exit 0");
    format!("cat {} > /dev/null & {script}", folder.join("fifo").display())
}

/// More ranks than start within the time that a test takes to reply to a line.
const MANY: usize = 1000;

#[test]
fn a_signal_is_served_while_ranks_start() {
    let job = Running::start(run(
        &format!("-n {MANY} --no-tag-output"),
        &format!("[ $RANK = 0 ] && echo ready; exec sleep {FOREVER}"),
    ));
    job.wait_for("ready");
    job.signal("TERM");
    let told = job.wait_for("SIGTERM passed on to rank");
    assert!(told.contains("were not started"), "{told}");
    assert_eq!(job.end().0, 128 + 15);
}

#[test]
fn a_failure_is_served_while_ranks_start() {
    let script = format!("echo started; [ $RANK = 0 ] && exit 3; exec sleep {FOREVER}");
    let (code, lines) = complete(run(&format!("-n {MANY} --no-tag-output"), &script));
    let started = lines.iter().filter(|line| *line == "started").count();
    assert_eq!(code, 3, "{lines:?}");
    assert!(started < MANY, "all {started} ranks were started");
}

#[test]
fn a_job_that_a_signal_has_ended_is_not_started_again() {
    for options in ["--restarts 9", "--enable-recovery"] {
        let running = Running::start(run(&format!("-n 2 {options}"), "echo here; exec sleep 1000"));
        running.wait_for("here");
        running.signal("TERM");
        let (code, lines) = running.end();
        assert_eq!(code, 128 + 15, "{lines:?}");
        assert!(!lines.iter().any(|line| line.contains("starting")), "{lines:?}");
    }
}
