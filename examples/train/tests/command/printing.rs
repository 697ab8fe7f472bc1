//! Output that cannot be written: if a reader closes the pipe, `train` ends without a message; if a
//! file is full, the error names the file.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

const TRAIN: &str = env!("CARGO_BIN_EXE_train");

const RUN: &str = "run --width 16 --layers 1 --context 8 --rows 4 --sample 0 --steps 4000";

/// Every command that prints; runs print twenty lines, one every 200 steps.
fn commands() -> Vec<String> {
    let runs =
        [RUN.to_owned(), format!("{RUN} --mesh dp=2"), format!("{RUN} --mesh dp=2 --processes")];
    let others = [
        "plan --ranks 8 --micros 64",
        "combine",
        "bench --width 16 --context 8 --layers 1 --rows 1 --steps 1",
        "tour --only ZeRO-2",
        "run --fault list",
        "--help",
        "run --help",
        "--version",
    ];
    runs.into_iter().chain(others.map(str::to_owned)).collect()
}

fn command(words: &str) -> Command {
    let mut command = Command::new(TRAIN);
    command.args(words.split(' ')).env("MAYPOLE_TIMEOUT", "60").env("RUST_BACKTRACE", "1");
    command
}

#[test]
fn a_closed_pipe_ends_every_command_without_a_message() {
    crate::skip::takes_turns!(4);
    for words in commands() {
        let mut child =
            command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // The pipe is closed after the first line; later lines have no reader.
        let mut line = String::new();
        BufReader::with_capacity(1, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "{words} prints a line");
        let output = child.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(error, "", "{words}");
        let code = output.status.code();
        // A short output may have been written whole before the pipe was closed.
        assert!(code == Some(141) || code == Some(0), "{words}: {code:?}");
        assert!(code == Some(141) || !words.contains("4000"), "{words}: it had more to say");
    }
}

#[test]
fn a_pipe_without_a_reader_is_found_at_the_first_line() {
    for words in commands() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command(&words).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{words}");
        assert_eq!(output.status.code(), Some(141), "{words}");
    }
}

#[test]
fn a_full_file_is_named() {
    for words in commands() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command(&words).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        let sentence = "train: cannot write /dev/full: No space left on device";
        assert!(error.starts_with(sentence), "{words}: {error}");
        assert_eq!(error.matches("No space left").count(), 1, "{words}: {error}");
        assert_eq!(output.status.code(), Some(1), "{words}");
    }
}

#[test]
fn an_error_that_cannot_be_printed_is_no_panic() {
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
    for words in ["run --data nowhere", "plan --ranks 0"] {
        let status =
            command(words).stdout(File::create("/dev/null").unwrap()).stderr(full()).status();
        assert_eq!(status.unwrap().code(), Some(1), "{words}");
    }
}
