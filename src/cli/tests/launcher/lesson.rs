//! The lesson on two processes, started as in its text.

use std::path::PathBuf;
use std::process::Command;

/// The lesson, which the same build has made: `cargo test --workspace` builds all lessons.
fn lesson() -> PathBuf {
    // target/debug/deps/launcher-0123 -> target/debug/examples/NAME
    let here = std::env::current_exe().expect("this test is a file");
    let built = here.ancestors().nth(2).expect("it lies in deps").join("examples");
    built.join("06_two_processes")
}

fn says(command: &mut Command, expected: &[&str]) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}{complained}", output.status);
    for text in expected {
        assert!(said.contains(text), "{command:?} does not say {text:?}:\n{said}");
    }
}

#[test]
fn the_lesson_on_two_processes_runs_alone_and_over_each_link() {
    says(&mut Command::new(lesson()), &["I am rank 0 of 1"]);
    for transport in ["shm", "tcp"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_maypole"));
        command.args(["run", "-n", "2"]).arg(lesson()).env("MAYPOLE_TRANSPORT", transport);
        says(&mut command, &["I am rank 0 of 2", "I am rank 1 of 2", "average 1.5"]);
    }
}
