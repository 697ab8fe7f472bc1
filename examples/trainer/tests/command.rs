//! `train` as its user meets it: real processes, files, and errors in a sentence.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Runs `train` with these words, bounded.
fn train(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_train"));
    command.args(words).current_dir(folder).env("MAYPOLE_TIMEOUT", "60").env("RUST_BACKTRACE", "0");
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn losses(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| line.starts_with("step "));
    lines.map(|line| line.split("loss ").nth(1).unwrap().split(' ').next().unwrap().to_owned()).collect()
}

const SETTINGS: &str = "\
width = 32
layers = 2
context = 16
rows = 8
rate = 0.002
shape = \"constant\"
warm-up = 0
deterministic = true
sample = 20
";

#[test]
fn threads_processes_and_a_resumed_run_on_another_mesh_print_the_same_losses() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("run.toml"), SETTINGS).unwrap();
    let base = ["run", "--config", "run.toml", "--mesh", "dp=2"];
    let run = |more: &[&str]| {
        let output = train(folder, &[&base[..], more].concat());
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    };
    let threads = run(&["--steps", "6", "--svg", "pictures"]);
    assert_eq!(losses(&threads).len(), 6, "{threads}");
    assert!(threads.contains("mesh dp=2: 2 ranks") && threads.contains("KING."), "{threads}");
    for picture in ["loss.svg", "timeline.svg"] {
        let drawn = fs::read_to_string(folder.join("pictures").join(picture)).unwrap();
        assert!(drawn.starts_with("<svg") && drawn.trim_end().ends_with("</svg>"));
    }
    let processes = run(&["--steps", "6", "--processes", "--sharding", "zero1"]);
    assert_eq!(losses(&processes), losses(&threads));

    let first = run(&["--steps", "3", "--save", "saved", "--sharding", "fsdp"]);
    let second = run(&["--steps", "6", "--save", "saved", "--sharding", "zero2", "--processes"]);
    assert!(second.contains("from saved/step-00000003"), "{second}");
    assert_eq!([losses(&first), losses(&second)].concat(), losses(&threads));
}

#[test]
fn what_cannot_be_is_said_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("bad.toml"), "widht = 3\n").unwrap();
    for (words, part) in [
        (&["--mesh", "dp=3"][..], "3 does not divide 16"),
        (&["--mesh", "xp=2"], "'xp' is no axis"),
        (&["--sharding", "zero9"], "'zero9' is no sharding; there are replicated, zero1, zero2, fsdp"),
        (&["--heads", "5"], "5 heads do not divide a width of 128"),
        (&["--sharding", "local:2", "--precision", "bf16"], "train in f32, or with another sharding"),
        (&["--data", "nowhere"], "cannot read nowhere"),
        (&["--config", "bad.toml"], "widht"),
    ] {
        let output = train(folder.path(), &[&["run"], words].concat());
        let text = said(&output);
        assert!(!output.status.success() && text.contains(part), "{words:?}: {text}");
        assert!(text.lines().count() <= 6, "{words:?}: {text}");
    }
}

#[test]
fn a_rank_that_fails_ends_all() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let start = Instant::now();
    // What is to be a folder is a file: rank 0 cannot write, and the others must not wait for it.
    let words = ["run", "--processes", "--mesh", "dp=2", "--width", "32", "--steps", "2", "--save", "file/below"];
    let output = train(folder.path(), &words);
    assert!(!output.status.success());
    assert!(said(&output).contains("file/below"), "{}", said(&output));
    assert!(start.elapsed() < Duration::from_secs(45));
}
