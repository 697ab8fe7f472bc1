//! The six programs of `examples/programs`, started as in their text. Each checks its own results.

use std::path::PathBuf;
use std::process::Command;

/// A program that the same build has made: `cargo test --workspace` builds all examples, and the command.
fn built(path: &str) -> PathBuf {
    // target/debug/deps/programs-0123 -> target/debug/PATH
    let here = std::env::current_exe().expect("this test is a file");
    here.ancestors().nth(2).expect("it lies in deps").join(path)
}

/// What the ranks of a program print, in any order. Fails if it ends with another code.
#[track_caller]
fn lines(name: &str, ranks: usize, code: i32) -> Vec<String> {
    let mut command = Command::new(built("maypole"));
    command.args(["run", "-n", &ranks.to_string(), "--failure-grace", "50"]);
    let program = built("examples").join(name);
    let output = command.arg(program).output().expect("the command is built");
    let [said, complained] =
        [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    let ended = output.status.code();
    assert_eq!(ended, Some(code), "{name} as {ranks} ranks:\n{said}{complained}");
    said.lines().map(str::to_owned).collect()
}

#[track_caller]
fn says(name: &str, ranks: usize, expected: &str) {
    let lines = lines(name, ranks, 0);
    assert!(lines.len() == ranks && lines.iter().all(|line| line.contains(expected)), "{lines:#?}");
}

#[test]
fn programs_run_as_any_number_of_ranks() {
    for ranks in [4, 3] {
        says("bucketed_gradients", ranks, ": 400000 gradients in 3 buckets");
    }
    says("token_exchange", 4, " tokens to the ranks, and its expert computed ");
    says("token_exchange", 1, " tokens to the ranks, and its expert computed 20");
    says("argmin", 4, ": the nearest points are [");
    says("mesh", 4, " of 2 x 2, and y is [");
    says("mesh", 6, " of 2 x 3, and y is [");
    says("overlap", 2, " % hidden");
}

#[test]
fn the_ranks_that_are_left_name_the_dead_one_and_go_on() {
    let lines = lines("failure", 4, 7);
    for rank in [0, 1, 3] {
        let name = format!("rank {rank}");
        let has =
            |parts: &[&str]| lines.iter().any(|it| parts.iter().all(|part| it.contains(part)));
        assert!(has(&[&name, "goes on without rank 2: ", "rank 2"]), "{lines:#?}");
        assert!(has(&[&name, "of 3 at the end"]), "{lines:#?}");
    }
    assert_eq!(lines.len(), 6, "{lines:#?}");
}
