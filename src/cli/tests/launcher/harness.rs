//! A launcher that runs during a test, and bounded waits.
#![allow(dead_code, reason = "not every test program uses all of it")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// The limit of every wait: more than anything here takes on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Seconds, far more than `LIMIT`: a process that sleeps so long ends only if it is killed.
pub(crate) const FOREVER: &str = "1000";

pub(crate) fn maypole(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_maypole"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// `maypole run` of a shell script.
pub(crate) fn run(options: &str, script: &str) -> Command {
    let mut command = maypole(&["run"]);
    command.args(options.split_whitespace()).args(["--", "sh", "-c", script]);
    command
}

/// A launcher whose output is read while it runs. Dropping it kills it.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) lines: Receiver<String>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Running {
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
    pub(crate) fn wait_for(&self, text: &str) -> String {
        let start = Instant::now();
        loop {
            let line = self.lines.recv_timeout(LIMIT.saturating_sub(start.elapsed()));
            let line = line.unwrap_or_else(|error| panic!("no line with {text:?}: {error}"));
            if line.contains(text) {
                return line;
            }
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        kill(name, &self.child.id().to_string());
    }

    /// The exit code, and all lines that were not waited for.
    pub(crate) fn end(mut self) -> (i32, Vec<String>) {
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

pub(crate) fn kill(signal: &str, pid: &str) {
    assert!(Command::new("kill").args(["-s", signal, pid]).status().unwrap().success());
}

/// Polls until `holds` is true; `what` names the condition.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "waited {LIMIT:?} for: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[track_caller]
pub(crate) fn wait(child: &mut Child) -> i32 {
    let mut status = None;
    eventually("the launcher ended", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap().code().expect("the launcher was killed itself")
}

/// Runs to the end. Returns the exit code, and the lines of both streams, sorted.
#[track_caller]
pub(crate) fn complete(command: Command) -> (i32, Vec<String>) {
    let (code, mut lines) = Running::start(command).end();
    lines.sort();
    (code, lines)
}

/// Runs to the end. Returns the exit code, standard output and standard error.
pub(crate) fn output(mut command: Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

pub(crate) fn is_gone(pid: &str) -> bool {
    // A zombie has ended, too. In a container there may be no process that reaps it.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "))
}

/// Makes a named pipe, by which one process waits for a line from another.
pub(crate) fn fifo(folder: &Path) -> String {
    let fifo = folder.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    fifo.to_str().unwrap().to_owned()
}
