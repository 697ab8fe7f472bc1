//! What every subcommand does where its output cannot be written: a closed pipe ends it without a
//! word, and a full disk is an error that names the file.

use std::fs::File;
use std::process::{Command, Output, Stdio};

/// Every subcommand that prints, in each of its forms.
const PRINTING: &[&str] = &[
    "--help",
    "--version",
    "perf --help",
    "perf --schema",
    "completions bash",
    "draw broadcast",
    "draw broadcast --svg -",
    "draw broadcast --html -",
    "draw broadcast --save -",
    "draw broadcast --values",
    "verify broadcast",
    "learn --dir ../../examples/book/solutions --blanks ../../examples/lab/tests/exercises/blanks",
    "simulate all-reduce",
    "simulate all-reduce --json",
    "simulate all-reduce --timeline",
    "simulate all-reduce --cluster dgx-h100",
    "simulate all-reduce --cluster dgx-h100 --json",
    "explain all-reduce",
    "topo --cluster dgx-h100",
    "topo --cluster dgx-h100 --json",
    "topo --cluster dgx-h100 --svg -",
    "doctor",
    "doctor --json",
    "perf all-reduce --threads -n 2 --sizes 8 --transport shm",
    "perf all-reduce --threads -n 2 --sizes 8,4K --transport shm --json -",
    "perf latency --threads -n 2 --sizes 8 --transport shm --csv -",
    "perf latency --threads -n 3 --sizes 8 --transport shm --pairs all",
    "perf all-reduce -n 2 --sizes 8,4K,16K",
    "perf all-reduce -n 2 --sizes 8,4K,16K --transport tcp --json -",
    "tune --dry-run --samples 1",
    "run -n 1 --tag-output -- echo text",
    "run -n 2 -- echo text",
    "run -n 2 -- sh -c 'while echo text; do :; done'",
];

/// Runs a line of a shell, in which `maypole` stands for this program.
fn run(line: &str, out: impl Into<Stdio>) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec \"$0\" {line}"), env!("CARGO_BIN_EXE_maypole")]);
    command.stdin(Stdio::null()).stdout(out).stderr(Stdio::piped());
    command.env("MAYPOLE_TUNE", "off");
    command.spawn().unwrap().wait_with_output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A pipe that no process reads.
fn closed_pipe() -> Stdio {
    let (_, writer) = std::io::pipe().unwrap();
    writer.into()
}

#[test]
fn a_closed_pipe_ends_every_subcommand_without_a_word() {
    for line in PRINTING {
        let output = run(line, closed_pipe());
        assert_eq!(said(&output), "", "{line}");
        assert_eq!(output.status.code(), Some(141), "{line}");
    }
}

#[test]
fn a_full_disk_is_an_error_of_every_subcommand_that_names_the_output() {
    for line in PRINTING {
        let output = run(line, File::options().write(true).open("/dev/full").unwrap());
        let said = said(&output);
        let count = said.matches("cannot write standard output: No space left").count();
        assert_eq!(count, 1, "{line}: {said}");
        assert!(!said.contains("panicked"), "{line}: {said}");
        assert!(matches!(output.status.code(), Some(1 | 2)), "{line}: {}", output.status);
    }
}

#[test]
fn ranks_that_write_directly_to_a_closed_pipe_are_not_blamed() {
    for line in ["run -n 2 --no-tag-output -- yes", "run -n 2 --plain-root -- yes"] {
        let output = run(line, closed_pipe());
        assert_eq!((said(&output).as_str(), output.status.code()), ("", Some(141)), "{line}");
    }
    // If the output is read, a rank that a signal killed is named.
    let output = run("run -n 1 -- sh -c 'kill -PIPE $$'", Stdio::piped());
    assert!(said(&output).contains("rank 0 failed first: it was killed by SIGPIPE"));
}

#[test]
fn a_reader_that_leaves_after_a_line_is_no_error() {
    for line in [
        "draw all-reduce -n 64",
        "explain all-reduce",
        "perf all-reduce -n 2 --transport shm --sizes 8,4K,256K,1M,4M",
        "run -n 2 -- sh -c 'while echo text; do :; done'",
    ] {
        let mut command = Command::new("bash");
        let script = format!("\"$0\" {line} | head -1; echo ${{PIPESTATUS[0]}}");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_maypole")]).stdin(Stdio::null());
        let output = command.output().unwrap();
        let out = String::from_utf8(output.stdout.clone()).unwrap();
        assert_eq!(said(&output), "", "{line}");
        // A program whose whole output fits in the pipe may have ended before its reader.
        let code = out.lines().last().unwrap();
        assert!(matches!(code, "141" | "0"), "{line}: {code}");
    }
}
