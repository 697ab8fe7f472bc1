//! Ranks that are processes: `train run --processes` prints the losses of one process.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(crate) fn model() -> [&'static str; 7] {
    [
        "--width=32",
        "--context=32",
        "--layers=4",
        "--rows=8",
        "--steps=3",
        "--sample=0",
        "--deterministic",
    ]
}

pub(crate) fn losses(args: &[&str]) -> Vec<String> {
    let mut train = Command::new(env!("CARGO_BIN_EXE_train"));
    losses_of(&train.arg("run").args(model()).args(args).output().unwrap())
}

/// The losses of the three steps that a run has printed.
pub(crate) fn losses_of(output: &Output) -> Vec<String> {
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{out}{err}");
    let lines = out.lines().chain(err.lines()).filter(|line| line.starts_with("step "));
    let loss = |line: &str| line.split_whitespace().nth(3).unwrap().to_owned();
    let losses: Vec<String> = lines.map(loss).collect();
    assert_eq!(losses.len(), 3, "{out}{err}");
    losses
}

#[test]
fn meshes_of_processes_train_as_one_process() {
    crate::skip::takes_turns!(4);
    let dense = losses(&[]);
    assert_eq!(
        losses(&["--processes", "--mesh=dp=2,pp=2,tp=2", "--micros=2", "--sequence"]),
        dense
    );
    assert_eq!(
        losses(&["--processes", "--mesh=cp=2,pp=2", "--micros=2", "--pipeline=interleaved:2"]),
        dense
    );
    let experts = losses(&["--experts=4"]);
    assert_eq!(
        losses(&["--processes", "--mesh=ep=2,cp=2", "--experts=4", "--exchange=ulysses"]),
        experts
    );
    assert_ne!(experts, dense);
}

/// The numbers of the processes whose parent is `parent`, with those that have ended and were not
/// waited for.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let numbers = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter(|number| state(*number).is_some_and(|(of, _)| of == parent)).collect()
}

/// The parent of a process and its state.
fn state(number: u32) -> Option<(u32, char)> {
    let text = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // The name, in parentheses, may have any character in it.
    let mut fields = text.rsplit(')').next()?.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((fields.next()?.parse().ok()?, state))
}

fn runs(number: u32) -> bool {
    state(number).is_some_and(|(_, state)| !"ZX".contains(state))
}

/// Waits until `done` returns true. Fails after a minute.
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what} takes too long");
        sleep(Duration::from_millis(5));
    }
}

/// Sends a signal to a process.
pub(crate) fn signal(name: &str, number: u32) {
    Command::new("kill").args([&format!("-{name}"), &number.to_string()]).status().unwrap();
}

/// Processes that are killed if the test fails.
struct Started(Vec<u32>);

impl Drop for Started {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0
                .iter()
                .filter(|number| runs(**number))
                .for_each(|number| signal("KILL", *number));
        }
    }
}

#[test]
fn ranks_end_with_the_process_that_started_them_whatever_ends_it() {
    for end in ["KILL", "TERM"] {
        let folder = tempfile::tempdir().unwrap();
        let losses = folder.path().join("losses.jsonl");
        let mut train = Command::new(env!("CARGO_BIN_EXE_train"));
        train.args([
            "run",
            "--processes",
            "--mesh=dp=2",
            "--width=16",
            "--layers=1",
            "--steps=100000000",
        ]);
        let mut parent = train
            .arg("--losses")
            .arg(&losses)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut started = Started(vec![parent.id()]);
        wait_until("the first step", || fs::metadata(&losses).is_ok_and(|file| file.len() > 0));
        let ranks = children(parent.id());
        started.0.extend(&ranks);
        assert!(ranks.len() == 2 && ranks.iter().all(|rank| runs(*rank)), "{ranks:?}");
        signal(end, parent.id());
        assert!(!parent.wait().unwrap().success());
        wait_until("the end of the ranks", || !ranks.iter().any(|rank| runs(*rank)));
    }
}
