//! The status of ranks: on request, by a signal, in a file when they fail, and on one page of the
//! launcher.

#[path = "launcher/harness.rs"]
mod harness;
#[path = "../../../tests/common/spawn.rs"]
mod spawn;

use harness::Running;
use maypole::{Communicator, Error, Local, RankStatus, ReduceOp};
use serde_json::Value;
use spawn::{LIMIT, World, await_file, role, say};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The variable that names a file. Rank 1 continues once the file exists.
const GO: &str = "TEST_GO";

#[test]
#[ignore = "a rank process of the other tests"]
fn a_rank_of_another_test() {
    let Some(role) = role() else { return };
    let mut comm = Communicator::from_env().unwrap();
    match role.as_str() {
        "fail" => fail(&mut comm),
        "await" => await_rank_1(comm),
        other => panic!("there is no role {other}"),
    }
}

/// Rank 1 makes no call until the others have given up.
fn fail(comm: &mut Communicator) {
    for _ in 0..3 {
        comm.barrier().unwrap();
    }
    if comm.rank() != 1 {
        comm.set_timeout(Duration::from_secs(2));
    } else {
        let start = Instant::now();
        while comm.status().failure.is_none() {
            assert!(start.elapsed() < LIMIT, "this rank never hears of the failure");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let error = comm.all_reduce(&mut [1u64; 4], ReduceOp::Sum).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
}

/// Rank 1 calls on request.
fn await_rank_1(mut comm: Communicator) {
    comm.barrier().unwrap();
    say("ready", comm.rank());
    if comm.rank() == 1 {
        await_file(GO);
    }
    comm.all_reduce(&mut [1u64; 4], ReduceOp::Sum).unwrap();
    comm.close().unwrap();
}

fn world_of(status: &RankStatus) -> &maypole::comm::status::GroupStatus {
    &status.groups[0]
}

#[test]
fn a_rank_tells_whom_it_awaits_in_which_operation() {
    for hosts in [[0, 0, 0], [0, 1, 2]] {
        let mut comms = Local::new(3).hosts(&hosts).timeout(LIMIT).build();
        std::thread::scope(|threads| {
            let mut late = comms.remove(1);
            let mut last = comms.remove(1);
            threads.spawn(move || {
                last.barrier().unwrap();
                last.reduce(&mut [1u8; 100], ReduceOp::Sum, 0).unwrap();
            });
            let barrier = threads.spawn(move || late.barrier().map(|()| late));
            let mut comm = comms.remove(0);
            comm.barrier().unwrap();
            let mut late = barrier.join().unwrap().unwrap();
            let request = comm.start_reduce(vec![1u8; 100], ReduceOp::Sum, 0);
            let start = Instant::now();
            let pending = loop {
                let status = comm.status();
                let pending = world_of(&status).pending.clone();
                match pending.filter(|it| it.sequence == 1 && it.waiting_seconds.is_some()) {
                    Some(pending) => break pending,
                    None => assert!(start.elapsed() < LIMIT, "{status}"),
                }
            };
            assert_eq!(pending.call, "reduce(100 x u8, sum, root 0)");
            assert_eq!((pending.bytes, pending.bytes_done), (100, 0));
            assert!(matches!(pending.awaits, Some(1 | 2)), "{pending}");
            late.reduce(&mut [1u8; 100], ReduceOp::Sum, 0).unwrap();
            request.wait().unwrap();
        });
    }
}

#[test]
fn repeated_calls_are_one_entry_and_the_last_thousand_are_kept() {
    Local::new(2).timeout(LIMIT).run(|mut comm| {
        for _ in 0..10_000 {
            comm.barrier().unwrap();
        }
        let status = comm.status();
        let calls: Vec<_> =
            world_of(&status).recent.iter().map(|it| (it.first, it.count)).collect();
        assert_eq!(calls, [(0, 10_000)]);
        for _ in 0..1500 {
            comm.broadcast(&mut [0u8], 0).unwrap();
            comm.barrier().unwrap();
        }
        let status = comm.status();
        let recent = &world_of(&status).recent;
        assert_eq!((recent.len(), world_of(&status).completed), (1000, 13_000));
        let last = recent.last().unwrap();
        assert_eq!((last.first, last.count, last.call.as_str()), (12_999, 1, "barrier()"));
    });
}

#[test]
fn a_status_tells_of_groups_and_of_ranks_that_have_left() {
    let mut comms = Local::new(2).timeout(LIMIT).build();
    let mut other = comms.pop().unwrap();
    let mut comm = comms.pop().unwrap();
    std::thread::scope(|threads| {
        threads.spawn(move || {
            let mut twin = other.duplicate().unwrap();
            twin.barrier().unwrap();
        });
        let mut twin = comm.duplicate().unwrap();
        twin.barrier().unwrap();
        let start = Instant::now();
        while comm.status().network.left != [1] {
            assert!(start.elapsed() < LIMIT, "{}", comm.status());
        }
        let status = comm.status();
        assert_eq!(status, at_the_time_of(twin.status(), &status));
        let completed: Vec<u64> = status.groups.iter().map(|group| group.completed).collect();
        assert_eq!(completed, [1, 1]);
        assert_eq!(status.groups[1].recent[0].call, "barrier()");
    });
}

/// This status with the times of `other`.
fn at_the_time_of(mut status: RankStatus, other: &RankStatus) -> RankStatus {
    status.unix_seconds = other.unix_seconds;
    for (group, theirs) in status.groups.iter_mut().zip(&other.groups) {
        for (calls, theirs) in group.recent.iter_mut().zip(&theirs.recent) {
            calls.seconds_ago = theirs.seconds_ago;
        }
    }
    status
}

#[test]
fn a_rank_that_fails_writes_what_it_did() {
    let directory = tempfile::tempdir().unwrap();
    let reports = directory.path().join("reports");
    let world = World::new("fail", 3).set("MAYPOLE_REPORT", reports.display());
    world.start().succeed();
    for rank in 0..3 {
        let text = std::fs::read_to_string(reports.join(format!("rank-{rank}.json"))).unwrap();
        let report: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(report["culprit"], 1, "{text}");
        assert!(report["error"].as_str().unwrap().contains("waited 2 s for rank 1"), "{text}");
        let status: RankStatus = serde_json::from_value(report["status"].clone()).unwrap();
        assert_eq!((status.rank, status.world), (rank, 3));
        let calls: Vec<_> =
            world_of(&status).recent.iter().map(|it| (&*it.call, it.count)).collect();
        let made = [("barrier()", 3), ("all_reduce(4 x u64, sum)", 1)];
        assert_eq!(calls, made[..if rank == 1 { 1 } else { 2 }], "rank {rank}");
    }
    assert_eq!(std::fs::read_dir(&reports).unwrap().count(), 3, "nothing else is left there");
}

#[test]
fn a_report_that_cannot_be_written_is_told_and_changes_nothing() {
    let world = World::new("fail", 2).set("MAYPOLE_REPORT", "/dev/null/reports");
    let ranks = world.start().succeed();
    let told = "maypole: MAYPOLE_REPORT: cannot write /dev/null/reports/rank-0.json: ";
    assert!(ranks[0].lines.iter().any(|line| line.starts_with(told)), "{ranks:#?}");
}

#[test]
fn a_signal_prints_the_status() {
    let directory = tempfile::tempdir().unwrap();
    let go = directory.path().join("go");
    let world = World::new("await", 2).set(GO, go.display());
    let mut running = world.set("MAYPOLE_STATUS_SIGNAL", "USR1").start();
    running.wait_for("ready", &[0, 1]);
    running.signal(1, "USR1");
    running.wait_for_line(1, "outside the library after 1 operation, the last of them barrier()");
    // Rank 0 may not have begun to wait when the first signal comes.
    let start = Instant::now();
    while !running.heard_line(0, "in all_reduce(4 x u64, sum) (operation 1), waiting for") {
        assert!(start.elapsed() < LIMIT);
        running.signal(0, "USR1");
        running.listen_for(Duration::from_millis(50));
    }
    std::fs::write(&go, "").unwrap();
    for ended in running.end() {
        assert_eq!(ended.code, Some(0), "{ended:#?}");
    }
}

#[test]
fn a_name_that_is_no_signal_is_refused() {
    let world = World::new("await", 1).set("MAYPOLE_STATUS_SIGNAL", "KILL");
    let ended = world.start().end();
    let refused = "MAYPOLE_STATUS_SIGNAL: 'KILL' is no signal that a program can handle";
    assert!(ended[0].lines.iter().any(|line| line.contains(refused)), "{ended:#?}");
}

/// A job of `maypole run` whose standard error is read line by line.
struct Job {
    running: Running,
    heard: Vec<String>,
}

impl Job {
    /// Starts three ranks that do `role`.
    fn start(role: &str, options: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_maypole"));
        command.args(["run", "-n", "3"]).args(options).arg("--");
        command.arg(std::env::current_exe().unwrap());
        command.args(["a_rank_of_another_test", "--exact", "--ignored", "--nocapture"]);
        command.env("TEST_ROLE", role).env("RUST_BACKTRACE", "0").env("MAYPOLE_TIMEOUT", "120");
        command.envs(variables.iter().copied());
        command.stdin(Stdio::null());
        Self { running: Running::start(command), heard: Vec::new() }
    }

    /// True if a line with `text` in it has come, or comes within a time.
    fn hears(&mut self, text: &str, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        while !self.heard.iter().any(|line| line.contains(text)) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.running.lines.recv_timeout(left) else { return false };
            self.heard.push(line);
        }
        true
    }

    #[track_caller]
    fn await_line(&mut self, text: &str) {
        assert!(self.hears(text, LIMIT), "no line has {text:?}:\n{}", self.heard.join("\n"));
    }

    #[track_caller]
    fn succeed(self) {
        let (code, rest) = self.running.end();
        assert_eq!(code, 0, "{}\n{}", self.heard.join("\n"), rest.join("\n"));
    }
}

#[test]
fn the_launcher_makes_a_page_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let go = directory.path().join("go");
    let variables = [(GO, go.to_str().unwrap()), ("MAYPOLE_STATUS_SIGNAL", "USR1")];
    let mut job = Job::start("await", &[], &variables);
    for rank in 0..3 {
        job.await_line(&format!("@ready {rank}"));
    }
    let start = Instant::now();
    // The other ranks may not have begun to wait when the first page is made.
    let named = "look first at rank 1: operation 1 is not called there yet";
    while !job.hears(named, Duration::from_secs(1)) {
        assert!(start.elapsed() < LIMIT, "{}", job.heard.join("\n"));
        job.running.signal("USR1");
    }
    job.await_line("hang report, on request:");
    std::fs::write(&go, "").unwrap();
    job.succeed();
}

#[test]
fn the_launcher_makes_a_page_when_a_rank_reports_a_deadline() {
    let mut job = Job::start("fail", &[], &[]);
    job.await_line("reports that a deadline has passed");
    job.await_line("waited 2 s for rank 1");
    job.await_line("look first at rank 1: operation 3 is not called there yet");
    job.succeed();
}
