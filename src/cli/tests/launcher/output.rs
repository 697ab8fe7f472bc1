//! Lines of ranks: whole lines, and output that others keep open.

use crate::harness::{FOREVER, Running, complete, fifo, run};
use std::collections::BTreeSet;
use std::process::Command;

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
