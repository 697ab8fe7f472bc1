//! `maypole run` and `maypole key`, with real processes. Every wait here is for an event, and
//! bounded.

#![cfg(feature = "cli")]

#[path = "common/skip.rs"]
mod skip;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// The limit of every wait: more than anything here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Seconds, far more than `LIMIT`: a process that sleeps so long ends only if it is killed.
const FOREVER: &str = "1000";

fn maypole(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_maypole"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// `maypole run` of a shell script.
fn run(options: &str, script: &str) -> Command {
    let mut command = maypole(&["run"]);
    command.args(options.split_whitespace()).args(["--", "sh", "-c", script]);
    command
}

/// A launcher whose output is read while it runs. Dropping it kills it.
struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    fn start(mut command: Command) -> Running {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        let error = BufReader::new(child.stderr.take().unwrap());
        let again = sender.clone();
        thread::spawn(move || {
            out.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        thread::spawn(move || {
            error.lines().map_while(Result::ok).try_for_each(|line| again.send(line))
        });
        Running { child, lines }
    }

    /// Waits for a line of either stream that contains `text`.
    #[track_caller]
    fn wait_for(&self, text: &str) -> String {
        let start = Instant::now();
        loop {
            let line = self.lines.recv_timeout(LIMIT.saturating_sub(start.elapsed()));
            let line = line.unwrap_or_else(|error| panic!("no line with {text:?}: {error}"));
            if line.contains(text) {
                return line;
            }
        }
    }

    fn signal(&self, name: &str) {
        kill(name, &self.child.id().to_string());
    }

    /// The exit code, and all lines that were not waited for.
    fn end(mut self) -> (i32, Vec<String>) {
        let code = wait(&mut self.child);
        (code, self.lines.iter().collect())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn kill(signal: &str, pid: &str) {
    assert!(Command::new("kill").args(["-s", signal, pid]).status().unwrap().success());
}

/// Polls until `holds` is true; `what` says what is waited for.
#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "still not: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[track_caller]
fn wait(child: &mut Child) -> i32 {
    let mut status = None;
    eventually("the launcher ended", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap().code().expect("the launcher was killed itself")
}

/// Runs to the end. Returns the exit code, and the lines of both streams, sorted.
#[track_caller]
fn complete(command: Command) -> (i32, Vec<String>) {
    let (code, mut lines) = Running::start(command).end();
    lines.sort();
    (code, lines)
}

/// Runs to the end. Returns the exit code, standard output and standard error.
fn output(mut command: Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn is_gone(pid: &str) -> bool {
    // A zombie has ended, too. In a container there may be no process that reaps it.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "))
}

#[test]
fn lines_are_tagged_and_stay_whole() {
    let script = "i=0; while [ $i -lt 200 ]; do printf 'line '; printf '%s of ' $i; echo $RANK; \
                  i=$((i+1)); done";
    let (code, lines) = complete(run("-n 3", script));
    let expected =
        (0..3).flat_map(|rank| (0..200).map(move |i| format!("[rank {rank}] line {i} of {rank}")));
    assert_eq!((code, lines.len()), (0, 600));
    assert_eq!(lines.into_iter().collect::<BTreeSet<_>>(), expected.collect());
}

#[test]
fn an_unfinished_line_is_not_lost_and_streams_stay_apart() {
    let (code, out, error) = output(run("-n 2", "printf out$RANK; printf error$RANK >&2"));
    let sorted = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(code, 0);
    assert_eq!(sorted(&out), ["[rank 0] out0", "[rank 1] out1"].map(str::to_owned).into());
    assert_eq!(sorted(&error), ["[rank 0] error0", "[rank 1] error1"].map(str::to_owned).into());
}

#[test]
fn tags_come_with_a_second_rank_or_on_request() {
    let check = |options: &str, expected: &[&str]| {
        let (code, lines) = complete(run(options, "echo $RANK"));
        assert_eq!(
            (code, lines),
            (0, expected.iter().map(|line| (*line).to_owned()).collect()),
            "{options}"
        );
    };
    check("-n 1", &["0"]);
    check("-n 1 --tag-output", &["[rank 0] 0"]);
    check("-n 2", &["[rank 0] 0", "[rank 1] 1"]);
    check("-n 2 --no-tag-output", &["0", "1"]);
    check("-n 2 --no-prefix", &["0", "1"]);
    check("-n 2 --plain-root", &["0", "[rank 1] 1"]);
}

#[test]
fn rank_0_reads_what_is_piped_in() {
    let mut command = run("-n 2", "cat; echo end");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines = lines.lines().collect::<BTreeSet<_>>();
    assert_eq!(lines, ["[rank 0] hello", "[rank 0] end", "[rank 1] end"].into());
}

#[test]
fn the_environment_is_as_documented() {
    let script = "echo $MAYPOLE_RANK $MAYPOLE_LOCAL_RANK $RANK $LOCAL_RANK; \
                  echo $MAYPOLE_WORLD $MAYPOLE_LOCAL_WORLD $WORLD_SIZE $LOCAL_WORLD_SIZE \
                  $MAYPOLE_ADDRESS $MASTER_ADDR; \
                  echo $MAYPOLE_PORT; echo $MASTER_PORT; echo $MAYPOLE_JOB";
    let (code, lines) = complete(run("-n 2", script));
    assert_eq!((code, lines.len()), (0, 10));
    let of = |rank: usize| {
        let tag = format!("[rank {rank}] ");
        lines
            .iter()
            .filter_map(|line| Some(line.strip_prefix(&tag)?.to_owned()))
            .collect::<BTreeSet<_>>()
    };
    let zero = of(0);
    let one = of(1);
    assert!(zero.contains("0 0 0 0") && one.contains("1 1 1 1"), "{lines:?}");
    assert!(zero.contains("2 2 2 2 127.0.0.1 127.0.0.1"), "{lines:?}");
    // World, address, both ports (which differ) and the job are the same for both.
    assert_eq!(zero.intersection(&one).count(), 4, "{lines:?}");
}

/// Runs `job` with a port that was free a moment ago. If another program takes the port in that
/// moment, the code is 2, and `job` runs again with another port.
fn on_a_free_port<T>(mut job: impl FnMut(u16) -> (i32, T)) -> (u16, i32, T) {
    let mut result = None;
    eventually("a port stays free", || {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (code, said) = job(port);
        result = Some((port, code, said));
        code != 2
    });
    result.unwrap()
}

#[test]
fn a_port_can_be_named() {
    let named = |port: u16| output(run(&format!("-n 1 --port {port}"), "echo $MAYPOLE_PORT"));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let (code, _, error) = named(port);
    assert!(code == 2 && error.contains(&format!("--port {port}")), "{code} {error}");
    let (port, code, said) = on_a_free_port(|port| {
        let (code, out, _) = named(port);
        (code, out)
    });
    assert_eq!((code, said), (0, format!("{port}\n")));
}

#[test]
fn the_key_is_behind_the_descriptor_and_not_in_the_environment() {
    let script = "cat /proc/self/fd/$MAYPOLE_JOB_KEY_FD; cat /proc/self/fd/$MAYPOLE_JOB_KEY_FD; \
                  echo ${MAYPOLE_JOB_KEY-unset} ${MAYPOLE_JOB_KEY_FILE-unset}; \
                  env | sed 's/^/env /'";
    let mut command = run("-n 2", script);
    command.env("MAYPOLE_JOB_KEY", "from outside").env("MAYPOLE_JOB_KEY_FILE", "from outside");
    let (code, lines) = complete(command);
    let is_key =
        |text: &&str| text.len() == 64 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let shown = lines.iter().filter_map(|line| line.strip_prefix("[rank 0] ")).find(is_key);
    let key = shown.expect("the descriptor holds 64 hexadecimal digits");
    assert_eq!(code, 0);
    // Twice by each of two ranks, and nowhere else.
    assert_eq!(lines.iter().filter(|line| line.contains(key)).count(), 4);
    assert!(lines.contains(&"[rank 1] unset unset".to_owned()));
    assert!(!lines.iter().any(|line| line.contains("from outside")));
}

/// Runs as a rank, when one of the tests below starts this file's program again.
#[test]
fn as_a_rank() {
    let Ok(role) = std::env::var("TEST_ROLE") else { return };
    let mut launch = maypole::world::launch::from_env().unwrap();
    let mut said = format!("said {:?} {} of {} at", launch.launcher, launch.rank, launch.world);
    if role == "exchange" {
        let mine = format!("10.0.0.1:{}", launch.ports[0]);
        let pmi = launch.pmi.as_mut().expect("hydra offers PMI-1");
        said +=
            &format!(" {}", pmi.exchange("maypole", (launch.rank == 0).then_some(&mine)).unwrap());
    } else {
        said += &format!(" {} {:?}", launch.address.unwrap(), launch.ports);
        let again = maypole::world::launch::from_env().unwrap();
        let same = launch.key.as_ref().map(|key| again.key.unwrap().bytes() == key.bytes());
        said += &format!(" key {same:?}");
    }
    // In one write: not every launcher keeps lines whole.
    std::io::stderr().write_all((said + "\n").as_bytes()).unwrap();
}

/// This file's program, as the rank above.
fn as_ranks(mut launcher: Command, role: &str) -> (i32, Vec<String>) {
    launcher.env("TEST_ROLE", role).arg(std::env::current_exe().unwrap());
    let (code, lines) = complete({
        launcher.args(["--exact", "as_a_rank", "--nocapture", "--test-threads=1"]);
        launcher
    });
    let said =
        lines.iter().filter_map(|line| line.split_once("said ").map(|(_, said)| said.to_owned()));
    (code, said.collect())
}

#[test]
fn a_rank_reads_its_launch_and_its_key() {
    let (port, code, said) = on_a_free_port(|port| {
        as_ranks(maypole(&["run", "-n", "2", "--port", &port.to_string(), "--"]), "read")
    });
    let expected = |rank| format!("Maypole {rank} of 2 at 127.0.0.1 [{port}] key Some(true)");
    assert_eq!((code, said), (0, vec![expected(0), expected(1)]));
}

#[test]
fn ranks_of_hydra_exchange_an_address_if_it_is_installed() {
    let mut launcher = Command::new("mpiexec.hydra");
    if launcher.arg("--version").output().is_err() {
        skip::skipped("mpiexec.hydra is not installed");
        return;
    }
    let mut launcher = Command::new("mpiexec.hydra");
    launcher.args(["-n", "3"]);
    let (code, said) = as_ranks(launcher, "exchange");
    assert_eq!((code, said.len()), (0, 3), "{said:?}");
    let (_, address) = said[0].split_once(" at ").unwrap();
    assert!(address.starts_with("10.0.0.1:2") || address.starts_with("10.0.0.1:3"), "{address}");
    let expected = (0..3).map(|rank| format!("Mpich {rank} of 3 at {address}"));
    assert_eq!(said, expected.collect::<Vec<_>>());
}

#[test]
fn ranks_of_open_mpi_meet_at_loopback_if_it_is_installed() {
    let mut launcher = Command::new("mpirun.openmpi");
    if launcher.arg("--version").output().is_err() {
        skip::skipped("mpirun.openmpi is not installed");
        return;
    }
    let mut launcher = Command::new("mpirun.openmpi");
    launcher.args(["--allow-run-as-root", "--oversubscribe", "-n", "2"]);
    let (code, said) = as_ranks(launcher, "read");
    assert_eq!((code, said.len()), (0, 2), "{said:?}");
    for (rank, said) in said.iter().enumerate() {
        assert!(said.starts_with(&format!("OpenMpi {rank} of 2 at 127.0.0.1 ")), "{said}");
    }
}

#[test]
fn the_code_of_the_rank_that_failed_first_is_returned_and_the_rest_is_stopped() {
    let script = format!("[ $RANK = 1 ] && exit 3; exec sleep {FOREVER}");
    let (code, lines) = complete(run("-n 3", &script));
    assert_eq!(code, 3);
    assert!(
        lines.contains(&"maypole: rank 1 failed first: it exited with code 3".to_owned()),
        "{lines:?}"
    );
    assert!(
        !lines.iter().any(|line| line.contains("rank 0") || line.contains("rank 2")),
        "{lines:?}"
    );
}

#[test]
fn a_rank_that_a_signal_killed_is_named_with_it() {
    let script = format!("[ $RANK = 0 ] && kill -SEGV $$; exec sleep {FOREVER}");
    let (code, lines) = complete(run("-n 2", &script));
    assert_eq!(code, 128 + 11);
    assert!(
        lines.contains(&"maypole: rank 0 failed first: it was killed by SIGSEGV".to_owned()),
        "{lines:?}"
    );
}

/// Makes a named pipe, by which one process waits for a line from another.
fn fifo(folder: &Path) -> String {
    let fifo = folder.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    fifo.to_str().unwrap().to_owned()
}

/// A script in which rank 0 ignores SIGTERM and SIGINT. The other ranks wait until it does, then
/// run `then`.
fn deaf(folder: &Path, then: &str) -> String {
    let fifo = fifo(folder);
    format!(
        "if [ $RANK = 0 ]; then trap '' TERM INT; echo deaf; echo > {fifo}; \
         exec sleep {FOREVER}; fi; read line < {fifo}; {then}"
    )
}

#[test]
fn a_rank_that_ignores_signals_is_killed_after_the_grace_period() {
    let folder = tempfile::tempdir().unwrap();
    let (code, lines) = complete(run("-n 2 --grace 0.2", &deaf(folder.path(), "exit 7")));
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

/// Whether this process, and so all that it starts, was started to ignore a signal.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(set.trim(), 16).unwrap() >> (signal - 1) & 1 == 1
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
        if is_ignored(number) {
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
    let job = Running::start(run("-n 1 --tag-output --grace 100000", &deaf_alone(folder.path())));
    job.wait_for("deaf");
    job.signal("TERM");
    job.wait_for("SIGTERM passed on to rank 0");
    job.signal("TERM");
    job.wait_for("rank 0 killed");
    assert_eq!(job.end().0, 128 + 15);
}

/// [`deaf`] for one rank. A second process reads the pipe, because no other rank does.
fn deaf_alone(folder: &Path) -> String {
    let script = deaf(folder, "exit 0");
    format!("cat {} > /dev/null & {script}", folder.join("fifo").display())
}

#[test]
fn what_a_rank_leaves_running_is_stopped() {
    let (code, lines) = complete(run("-n 2", &format!("sleep {FOREVER} & echo left $!")));
    assert_eq!((code, lines.len()), (0, 2), "{lines:?}");
    for line in lines {
        let pid = line.split("left ").nth(1).unwrap();
        assert!(is_gone(pid), "{line}");
    }
}

#[test]
fn what_a_rank_leaves_in_another_session_is_stopped() {
    // The second process leaves its rank's session from within another session. Each announces
    // itself in a pipe of its own: a reader may find the end of the other's line.
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [first, second] = folders.each_ref().map(|folder| fifo(folder.path()));
    let inner = |fifo: &str| format!("echo pid $$; echo > {fifo}; exec sleep {FOREVER}");
    let leave = format!(
        "setsid sh -c '{}' & read line < {first}; \
         setsid sh -c 'setsid sh -c \"{}\" & wait' & read line < {second}",
        inner(&first),
        inner(&second).replace('$', "\\$")
    );
    let (code, lines) = complete(run("-n 1 --tag-output", &leave));
    assert_eq!(code, 0, "{lines:?}");
    let pids: Vec<&str> =
        lines.iter().filter_map(|line| Some(line.split_once("pid ")?.1)).collect();
    assert_eq!(pids.len(), 2, "{lines:?}");
    assert!(pids.iter().all(|pid| is_gone(pid)), "{lines:?}");
}

#[test]
fn a_process_in_another_session_that_ignores_signals_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = fifo(folder.path());
    let deaf =
        format!("trap '' TERM; echo pid $$; echo > {fifo}; while :; do sleep {FOREVER}; done");
    let script = format!("setsid sh -c \"{}\" & read line < {fifo}", deaf.replace('$', "\\$"));
    let (code, lines) = complete(run("-n 1 --tag-output --grace 0.2", &script));
    let pid = lines.iter().find_map(|line| Some(line.split_once("pid ")?.1)).expect("it spoke");
    assert_eq!(code, 0, "{lines:?}");
    assert!(is_gone(pid));
}

/// The children of a process, with their states.
fn children(of: u32) -> Vec<(String, char)> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = entries.filter_map(|entry| {
        let pid = entry.file_name().into_string().ok()?;
        pid.parse::<u32>().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?.chars().next()?;
        (fields.next()? == of.to_string()).then_some((pid, state))
    });
    stats.collect()
}

#[test]
fn processes_that_ranks_leave_behind_are_collected_while_the_job_runs() {
    let script = "i=0; while [ $i -lt 50 ]; do (setsid true &); i=$((i+1)); done; echo all; \
                  read line";
    let mut command = run("-n 1 --tag-output", script);
    command.stdin(Stdio::piped());
    let mut job = Running::start(command);
    job.wait_for("all");
    eventually("no ended process is kept", || {
        children(job.child.id()).iter().all(|(_, state)| *state != 'Z')
    });
    drop(job.child.stdin.take());
    job.end();
}

#[test]
fn processes_from_before_the_job_are_no_part_of_it() {
    let mut command = Command::new("sh");
    let script = format!("sleep {FOREVER} & echo pid $!; exec \"$0\" run -n 1 -- true");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_maypole")]).stdin(Stdio::null());
    command.stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pid = line.trim().strip_prefix("pid ").unwrap();
    assert_eq!(wait(&mut child), 0);
    assert!(!is_gone(pid));
    kill("KILL", pid);
}

#[test]
fn output_that_a_stranger_keeps_open_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = fifo(folder.path());
    let job = Running::start(run("-n 1 --tag-output", &format!("echo pid $$; read line < {fifo}")));
    let pid = job.wait_for("pid ").split("pid ").nth(1).unwrap().to_owned();
    let script = format!("exec 3>/proc/{pid}/fd/1; echo > {fifo}; exec sleep {FOREVER}");
    let mut stranger = Command::new("sh").args(["-c", &script]).spawn().unwrap();
    job.wait_for("keeps the output open");
    assert_eq!(job.end().0, 0);
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

/// More ranks than start within the time that a test takes to answer a line.
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
fn more_ranks_than_processes_are_refused_with_the_arithmetic() {
    for line in ["run -n 999999999 -- true", "perf -n 999999999 barrier"] {
        let arguments: Vec<&str> = line.split(' ').collect();
        let (code, out, error) = output(maypole(&arguments));
        assert_eq!((code, out.as_str()), (2, ""), "{line}: {error}");
        for part in ["-n 999999999 needs 999999999 processes", "are in use", "ranks can start"] {
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}

#[test]
fn the_limit_of_a_user_is_told_before_the_first_rank_starts() {
    let start = |ranks: &str| {
        let mut command = Command::new("setpriv");
        let script = format!("ulimit -u 30 && exec \"$0\" run -n {ranks} -- echo started");
        command.args(["--reuid", "65534", "--clear-groups", "bash", "-c", &script]);
        command.arg(env!("CARGO_BIN_EXE_maypole")).stdin(Stdio::null());
        command
    };
    match start("3").output() {
        Ok(able) if able.status.success() => {}
        Ok(unable) => return skip::skipped(String::from_utf8_lossy(&unable.stderr)),
        Err(error) => return skip::skipped(format!("setpriv: {error}")),
    }
    let (code, out, error) = output(start("50"));
    assert_eq!((code, out.as_str()), (2, ""), "{error}");
    assert!(error.contains("`ulimit -u` allows 30 processes and threads"), "{error}");
}

/// `maypole` under limits that `ulimit` sets.
fn under(limits: &str, line: &str) -> Command {
    let mut command = Command::new("sh");
    let script = format!("{limits} && exec \"$0\" {line}");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_maypole")]).stdin(Stdio::null());
    command
}

#[test]
fn more_ranks_than_descriptors_are_refused_with_the_arithmetic() {
    let (code, _, error) = output(under("ulimit -n 200", "run -n 100 -- true"));
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("-n 100 needs 364 descriptors"), "{error}");
    assert!(error.contains("the hard limit is 200"), "{error}");
}

#[test]
fn the_launcher_raises_its_own_limit_of_descriptors_alone() {
    let (code, lines) = complete(under("ulimit -Sn 100", "run -n 20 -- sh -c 'ulimit -Sn'"));
    assert_eq!((code, lines.len()), (0, 20), "{lines:?}");
    assert!(lines.iter().all(|line| line.ends_with("] 100")), "{lines:?}");
}

#[test]
fn a_limit_of_file_sizes_is_an_error_and_kills_nothing() {
    let (code, _, error) = output(under("ulimit -f 0", "run -n 1 -- true"));
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("File too large") && error.contains("ulimit -f"), "{error}");
}

#[test]
fn ranks_do_not_outlive_a_killed_launcher() {
    let job = Running::start(run("-n 2", &format!("echo pid $$; exec sleep {FOREVER}")));
    let pids = [(); 2].map(|()| job.wait_for("pid ").split("pid ").nth(1).unwrap().to_owned());
    job.signal("KILL");
    for pid in pids {
        eventually("the rank is gone", || is_gone(&pid));
    }
}

#[test]
fn a_launcher_whose_reader_left_does_not_hang() {
    let mut child = run("-n 2", "while echo line; do :; done")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_ne!(wait(&mut child), 0);
}

#[test]
fn a_program_that_cannot_be_started_is_named() {
    let (code, _, error) = output(maypole(&["run", "-n", "2", "--", "/no/such/program"]));
    assert!(
        code == 127 && error.contains("`/no/such/program`") && error.contains("No such file"),
        "{code} {error}"
    );
    assert_eq!(error.matches("No such file").count(), 1, "the cause is told once: {error}");
    let (code, _, error) = output(maypole(&["run", "-n", "2", "--", "/etc/passwd"]));
    assert!(code == 126 && error.contains("Permission denied"), "{code} {error}");
    let (code, _, _) = output(maypole(&["run", "-n", "0", "--", "true"]));
    assert_eq!(code, 2);
}

#[test]
fn an_unknown_option_is_refused_and_not_executed() {
    for (arguments, nearest) in [
        (&["run", "-n", "4", "--foo", "--", "true"][..], None),
        (&["run", "--foo", "true"], None),
        (&["run", "-n", "2", "--tag-outptu", "true"], Some("--tag-output")),
        (&["run", "--rank", "2", "true"], Some("--ranks")),
        (&["run", "-n", "2", "-x", "true"], None),
    ] {
        let (code, _, error) = output(maypole(arguments));
        assert_eq!(code, 2, "{arguments:?}: {error}");
        assert!(error.contains("unexpected argument"), "{arguments:?}: {error}");
        if let Some(nearest) = nearest {
            assert!(error.contains(nearest), "{arguments:?}: {error}");
        }
    }
}

#[test]
fn options_of_the_program_are_passed_on() {
    for arguments in [
        &["run", "-n", "1", "echo", "--foo", "-n", "x"][..],
        &["run", "-n", "1", "--", "echo", "--foo", "-n", "x"],
    ] {
        let (code, out, error) = output(maypole(arguments));
        assert_eq!((code, out.as_str()), (0, "--foo -n x\n"), "{arguments:?}: {error}");
    }
}

#[test]
fn a_new_key_is_private_and_replaces_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let new = || output(maypole(&["key", "new", path.to_str().unwrap()]));
    assert_eq!(new(), (0, String::new(), String::new()));
    let key = std::fs::read_to_string(&path).unwrap();
    assert!(key.len() == 65 && key.ends_with('\n'));
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let (code, _, error) = new();
    assert!(code == 2 && error.contains("File exists"), "{code} {error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), key);
}

#[test]
fn crowded_ranks_keep_to_one_core_each() {
    let cores = thread::available_parallelism().unwrap().get();
    let seen = |options: &str| {
        let output = run(options, "nproc").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| line.parse().unwrap()).collect::<Vec<usize>>()
    };
    let crowded = cores + 1;
    assert_eq!(seen(&format!("-n {crowded} --no-tag-output")), vec![1; crowded]);
    assert_eq!(seen("-n 1 --bind core"), [1]);
    let all = Command::new("nproc").output().unwrap();
    let all: usize = String::from_utf8(all.stdout).unwrap().trim().parse().unwrap();
    assert_eq!(seen(&format!("-n {crowded} --no-tag-output --bind none")), vec![all; crowded]);
}
