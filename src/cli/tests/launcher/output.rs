//! Lines of ranks: tags, whole lines, standard input, and readers that leave.

use crate::harness::{FOREVER, Running, complete, fifo, output, run, wait};
use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

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
