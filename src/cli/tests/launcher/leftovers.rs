//! Processes that ranks leave running, and ranks whose launcher was killed.

use crate::harness::{FOREVER, Running, complete, eventually, fifo, is_gone, kill, run, wait};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

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
    // The second process leaves its rank's session from within another session. Each writes its
    // line to a pipe of its own: in a shared pipe, a reader could get the line of the other
    // process.
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
    let ignores_signals =
        format!("trap '' TERM; echo pid $$; echo > {fifo}; while :; do sleep {FOREVER}; done");
    let script =
        format!("setsid sh -c \"{}\" & read line < {fifo}", ignores_signals.replace('$', "\\$"));
    let (code, lines) = complete(run("-n 1 --tag-output --grace 0.2", &script));
    let pid =
        lines.iter().find_map(|line| Some(line.split_once("pid ")?.1)).expect("it printed a pid");
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
fn ranks_do_not_outlive_a_killed_launcher() {
    let job = Running::start(run("-n 2", &format!("echo pid $$; exec sleep {FOREVER}")));
    let pids = [(); 2].map(|()| job.wait_for("pid ").split("pid ").nth(1).unwrap().to_owned());
    job.signal("KILL");
    for pid in pids {
        eventually("the rank is gone", || is_gone(&pid));
    }
}
