//! Text that streams, by the command line.

use crate::files::{cut, play};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const MODEL: &str = "run --width 16 --context 16 --layers 2 --rows 4 --sample 0 --deterministic";

fn train(folder: &Path, words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_train"));
    command.args(MODEL.split_whitespace().chain(words.split_whitespace())).current_dir(folder);
    command.env("MAYPOLE_TIMEOUT", "60").env("RUST_BACKTRACE", "0").output().unwrap()
}

/// What a run prints.
fn printed(folder: &Path, words: &str) -> String {
    let output = train(folder, words);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn losses(folder: &Path, name: &str) -> Vec<f64> {
    let text = fs::read_to_string(folder.join(name)).unwrap();
    let loss = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["loss"].as_f64().unwrap()
    };
    text.lines().map(loss).collect()
}

fn validation(printed: &str) -> &str {
    printed.lines().find(|line| line.starts_with("validation loss")).unwrap()
}

#[test]
fn a_folder_trains_as_its_text_and_is_tokenised_once() {
    crate::skip::takes_turns!(4);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    cut(folder, &play(), &[100, 50_000, 100_000]);
    fs::write(folder.join("whole.txt"), play()).unwrap();
    let whole = printed(folder, "--steps 4 --mesh dp=2 --data whole.txt --losses whole");
    let cache = "--steps 4 --data data --data-cache cache";
    let first = printed(folder, &format!("{cache} --mesh dp=2 --losses first"));
    assert!(first.starts_with("tokenised 4 files, 0.2 MiB: "), "{first}");
    let again = printed(folder, &format!("{cache} --mesh dp=2 --processes --losses again"));
    assert!(again.starts_with("found the tokens of 4 files, "), "{again}");
    let expected = losses(folder, "whole");
    assert_eq!(expected.len(), 4);
    assert_eq!(losses(folder, "first"), expected);
    assert_eq!(losses(folder, "again"), expected);
    assert_eq!([validation(&first), validation(&again)], [validation(&whole); 2]);
    // A file streams, if a cache is named.
    let file = printed(folder, "--steps 4 --mesh dp=2 --data whole.txt --data-cache other");
    assert!(file.starts_with("tokenised 1 file, "), "{file}");
    assert_eq!(validation(&file), validation(&whole));
    let words = "--steps 2 --data data --data-cache cache --bpe 300";
    assert!(printed(folder, words).starts_with("tokenised 4 files, "));
    assert!(printed(folder, words).starts_with("found the tokens of 4 files, "));
}

#[test]
fn a_run_goes_on_to_the_token_on_another_mesh() {
    crate::skip::takes_turns!(4);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    cut(folder, &play(), &[100, 50_000, 100_000]);
    let common = "--shape constant --data data --data-cache cache";
    let run = |words: &str| printed(folder, &format!("{common} {words}"));
    run("--steps 8 --losses all");
    run("--steps 4 --save saved --losses parts --mesh dp=2 --sharding zero1");
    let on = run("--steps 8 --save saved --losses parts --mesh pp=2,tp=2");
    assert!(on.contains("from saved") && !on.contains("changed since then"), "{on}");
    let [all, parts] = ["all", "parts"].map(|name| losses(folder, name));
    assert_eq!(parts.len(), 8);
    // Another row would be another loss in the second digit.
    let same = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-4 * a.abs();
    assert!(all.iter().zip(&parts).all(same), "{all:?} {parts:?}");
}

#[test]
fn what_cannot_stream_is_refused_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let data = cut(folder, &play(), &[100, 200, 300]);
    fs::create_dir(folder.join("empty")).unwrap();
    fs::create_dir(folder.join("short")).unwrap();
    fs::write(folder.join("short/a"), "short ".repeat(20)).unwrap();
    let refused = |words: &str, part: &str| {
        let output = train(folder, words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && error.contains(part), "{words}: {error}");
        assert_eq!(error.lines().count(), 1, "{words}: {error}");
    };
    refused("--data-cache cache", "--data is missing");
    refused("--data empty --data-cache cache", "empty: no file in it has any text");
    refused("--data short --data-cache cache", "rows of 16 do not fit in its last tenth");
    refused("--data data --data-cache data/cache", "the cache is inside the text's folder");
    refused("--data data --data-cache cache --against one", "--data data streams from disk");
    fs::write(folder.join("file"), "").unwrap();
    refused("--data data --data-cache file", "give a folder as --data-cache");
    refused("--data data --data-cache /proc/nowhere", "/proc/nowhere: ");
    // The parent has found the tokens, which change before its ranks compare them: here, before
    // the parent does.
    fs::write(data.join("z"), [b'x', 0xc3]).unwrap();
    let processes = "--mesh dp=2 --processes --data data --data-cache cache";
    refused(processes, "z: byte 1 is not UTF-8: convert the file");
    let output = Command::new(env!("CARGO_BIN_EXE_train"))
        .args(["search", "--data", "data"])
        .current_dir(folder)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("a search reads its text into memory"), "{error}");
}

/// Kills a run while it writes tokens: there is no index, and the next run begins again.
#[test]
fn tokens_are_whole_or_absent_after_a_kill() {
    crate::skip::takes_turns!(4);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("data")).unwrap();
    fs::write(folder.join("data/a"), play().repeat(60)).unwrap();
    // Byte pairs take long enough to be killed in between.
    let words = "--steps 1 --data data --data-cache cache --bpe 262";
    let mut command = Command::new(env!("CARGO_BIN_EXE_train"));
    command.args(MODEL.split_whitespace().chain(words.split_whitespace())).current_dir(folder);
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let files = || {
        let entries = fs::read_dir(folder.join("cache")).into_iter().flatten();
        let name = |it: std::io::Result<fs::DirEntry>| it.unwrap().file_name().into_string();
        entries.map(|it| name(it).unwrap()).collect::<Vec<_>>()
    };
    while !files().iter().any(|name| name.contains(".partial-")) {
        assert!(run.try_wait().unwrap().is_none(), "the run ended before it was killed");
        std::thread::yield_now();
    }
    run.kill().unwrap();
    run.wait().unwrap();
    let left = files();
    assert!(left.len() == 1 && left[0].contains(".partial-"), "{left:?}");
    assert!(printed(folder, words).starts_with("tokenised 1 file, "));
    assert!(printed(folder, words).starts_with("found the tokens of 1 file, "));
}

#[test]
fn learnt_tokens_are_the_same_in_memory_and_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("whole.txt"), play()).unwrap();
    let words = "--steps 3 --bpe 300 --data whole.txt";
    let memory = printed(folder, &format!("{words} --losses memory"));
    let disk = printed(folder, &format!("{words} --data-cache cache --losses disk"));
    assert_eq!(losses(folder, "memory"), losses(folder, "disk"));
    assert_eq!(validation(&memory), validation(&disk));
}
