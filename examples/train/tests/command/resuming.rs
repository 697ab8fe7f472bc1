//! The output of a run about existing checkpoints: the one that it resumes from, skipped ones, changed
//! settings, and damage; and the checkpoints that stay on the disk.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const SMALL: &str = "run --width 16 --layers 1 --context 8 --sample 0 --save saved";

/// Runs `train` with the words of a small model and these.
fn train(folder: &Path, words: &str) -> Output {
    let words = SMALL.split(' ').chain(words.split_whitespace());
    plain(folder, &words.collect::<Vec<_>>())
}

fn plain(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_train"));
    command.args(words).current_dir(folder).env("MAYPOLE_TIMEOUT", "60").env("RUST_BACKTRACE", "0");
    command.output().unwrap()
}

fn trained(folder: &Path, words: &str) -> String {
    let output = train(folder, words);
    assert!(output.status.success(), "{words}: {}", said(&output));
    said(&output)
}

/// The error of a run that fails.
fn failed(folder: &Path, words: &str) -> String {
    let output = train(folder, words);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{words}: {error}");
    error
}

fn said(output: &Output) -> String {
    String::from_utf8([&output.stdout[..], &output.stderr].concat()).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder.join("saved")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn an_incomplete_checkpoint_is_reported_and_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    trained(folder, "--steps 4 --save-every 2 --shape constant");
    // As if the run had been killed while it wrote step 4, or its manifest had been lost.
    fs::rename(folder.join("saved/step-00000004"), folder.join("saved/step-00000004.partial"))
        .unwrap();
    fs::remove_file(folder.join("saved/step-00000004.partial/manifest.json")).unwrap();
    let text = trained(folder, "--steps 3 --shape constant");
    let line = "step 4 is incomplete (saved/step-00000004.partial was never finished), \
                going on from step 2\n";
    assert!(text.contains(line), "{text}");
    fs::remove_file(folder.join("saved/step-00000003/manifest.json")).unwrap();
    fs::remove_dir_all(folder.join("saved/step-00000004.partial")).unwrap();
    let text = trained(folder, "--steps 4 --shape constant");
    let line = "step 3 is incomplete (saved/step-00000003 has no manifest.json), \
                going on from step 2\n";
    assert!(text.contains(line), "{text}");
    fs::remove_file(folder.join("saved/step-00000002/manifest.json")).unwrap();
    fs::remove_file(folder.join("saved/step-00000004/manifest.json")).unwrap();
    let text = trained(folder, "--steps 4 --shape constant");
    assert!(text.contains("has no manifest.json), beginning with step 1\n"), "{text}");
}

#[test]
fn changed_settings_are_printed_and_another_model_is_refused() {
    crate::skip::takes_turns!(4);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("rings"), "a ring of ranks, and a ring of rings. ".repeat(50)).unwrap();
    fs::write(folder.join("trees"), "two trees, three trees, no tree more. ".repeat(50)).unwrap();
    let first = trained(folder, "--data rings --steps 2");
    assert!(!first.contains("changed since then") && !first.contains("from saved"), "{first}");
    let same = trained(folder, "--data rings --steps 2");
    assert!(same.contains("from saved/step-00000002\n"), "{same}");
    assert!(!same.contains("changed since then"), "{same}");

    let words = "--data trees --steps 3 --rate 0.5 --rows 8 --clip 0 --seed 9 --shape linear \
                 --precision bf16 --warm-up 1";
    let text = trained(folder, words);
    let changes: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("changed since then: ")).collect();
    let expected = [
        "--rate was 0.003 and is 0.5",
        "--shape was cosine and is linear",
        "--steps was 2 and is 3: the rate of every step changes with it",
        "--warm-up was 0 and is 1: the rate of every step changes with it",
        "--clip was 1 and is without limit",
        "--rows was 16 and is 8: this run draws other rows of the text",
        "--seed was 1 and is 9: this run draws other rows of the text",
        "--precision was f32 and is bf16",
    ];
    assert_eq!(changes[..expected.len()], expected, "{text}");
    let [data] = changes[expected.len()..] else { panic!("{text}") };
    assert!(data.starts_with("--data was text ") && data.ends_with("another text"), "{data}");

    for (words, part) in [
        (
            "--data trees --steps 4 --experts 2",
            "and this run 1 blocks of width 16 with 4 heads and 2",
        ),
        ("--data trees --steps 4 --optimizer sgd", "and this run plain SGD"),
        ("--data trees --steps 4 --heads 2", "and this run 1 blocks of width 16 with 2 heads"),
        ("--data trees --steps 2", "was saved after 3 steps, and --steps 2 is fewer"),
    ] {
        let error = failed(folder, words);
        assert!(error.contains(part) && error.contains("saved/step-00000003"), "{error}");
    }
    fs::remove_dir_all(folder.join("saved")).unwrap();
    trained(folder, "--data rings --steps 2 --bpe 260");
    let error = failed(folder, "--data trees --steps 4 --bpe 260");
    assert!(error.contains("tokens of the vocabulary "), "{error}");
}

#[test]
fn a_damaged_file_is_named_once_with_any_ranks() {
    crate::skip::takes_turns!(4);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mesh = "--mesh dp=2 --sharding zero1 --shape constant";
    trained(folder, &format!("{mesh} --steps 2"));
    let part = folder.join("saved/step-00000002/rank-001.safetensors");
    let mut bytes = fs::read(&part).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(&part, bytes).unwrap();
    for words in [mesh.to_owned(), format!("{mesh} --processes"), "--shape constant".to_owned()] {
        let error = failed(folder, &format!("{words} --steps 4"));
        let what = "saved/step-00000002/rank-001.safetensors, the part of rank 1: \
                    it was changed after it was written";
        assert_eq!(error.matches(what).count(), 1, "{error}");
        assert!(
            error.contains("or remove saved/step-00000002 to go on from an earlier"),
            "{error}"
        );
        let stopped = error.matches("train: stopped, because rank 0 failed").count();
        assert_eq!(stopped, usize::from(words.contains("processes")), "{error}");
    }
    let output = plain(folder, &["export", "saved", "model.safetensors"]);
    let error = said(&output);
    assert!(
        !output.status.success() && error.contains("rank-001.safetensors, the part"),
        "{error}"
    );
    assert!(!folder.join("model.safetensors").exists(), "no partial file stays");
    // The remedy in the error works.
    fs::remove_dir_all(folder.join("saved/step-00000002")).unwrap();
    trained(folder, &format!("{mesh} --steps 4"));
}

#[test]
fn the_last_checkpoints_are_kept_and_nothing_else_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let constant = "--shape constant --save-every 2";
    trained(folder, &format!("{constant} --steps 6"));
    assert_eq!(names(folder), ["step-00000002", "step-00000004", "step-00000006"]);
    // Files of interrupted runs, before and after, and files of other programs.
    for name in
        ["step-00000003.partial", "step-00000005", "step-00000099.partial", "step-7", "kept"]
    {
        fs::create_dir(folder.join("saved").join(name)).unwrap();
    }
    fs::write(folder.join("saved/step-00000001"), "a file of the user's").unwrap();
    let text = trained(folder, &format!("{constant} --steps 10 --keep 2 --mesh dp=2"));
    assert!(text.contains("step 99 is incomplete (saved/step-00000099.partial was"), "{text}");
    let left = ["kept", "step-00000008", "step-00000010", "step-00000099.partial", "step-7"];
    let mut expected: Vec<&str> = left.to_vec();
    expected.push("step-00000001");
    expected.sort_unstable();
    assert_eq!(names(folder), expected);
    let text = trained(folder, &format!("{constant} --steps 11 --keep 1"));
    assert!(text.contains("from saved/step-00000010"), "{text}");
    for gone in ["step-00000008", "step-00000010"] {
        assert!(!folder.join("saved").join(gone).exists(), "{gone} is one too many");
    }
    assert!(failed(folder, "--keep 0").contains("--keep needs a positive number"));
    let words = "run --width 16 --keep 2 --steps 1".split(' ').collect::<Vec<_>>();
    let error = said(&plain(folder, &words));
    assert!(error.contains("--keep needs --save, the folder for checkpoints"), "{error}");
}

#[test]
fn a_checkpoint_that_cannot_be_read_is_an_error_and_no_new_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    trained(folder, "--steps 1");
    // A manifest that is a folder cannot be read by any user, root included.
    let manifest = folder.join("saved/step-00000001/manifest.json");
    fs::remove_file(&manifest).unwrap();
    fs::create_dir(&manifest).unwrap();
    let error = failed(folder, "--steps 2");
    assert!(error.contains("saved/step-00000001/manifest.json: Is a directory"), "{error}");
}

/// Runs a script with a private file system of 400 KiB in the folder `small`. Returns `None` where
/// this user may not mount one.
fn on_a_small_disk(folder: &Path, script: &str) -> Option<Output> {
    let mount = "mkdir -p small && mount -t tmpfs -o size=400k none small";
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
        command.current_dir(folder).env("TRAIN", env!("CARGO_BIN_EXE_train"));
        command.env("MAYPOLE_TIMEOUT", "60").output()
    };
    if !unshare(mount).is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: a full disk needs user namespaces and unshare (util-linux)");
        return None;
    }
    Some(unshare(&format!("{mount} && {script}")).unwrap())
}

#[test]
fn a_full_disk_is_the_cause_on_all_ranks_and_nothing_partial_stays() {
    crate::skip::takes_turns!(4);
    for processes in ["", "--processes"] {
        let folder = tempfile::tempdir().unwrap();
        let script = format!(
            "$TRAIN run --width 32 --layers 1 --context 8 --rows 4 --sample 0 --mesh dp=2 \
             --sharding zero1 --steps 6 --save-every 2 --save small {processes}; \
             echo status $?; ls small"
        );
        // A checkpoint has 340 KiB: one fits, and half of the next.
        let Some(output) = on_a_small_disk(folder.path(), &script) else { return };
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let cause = "No space left on device";
        assert!(out.ends_with("status 1\nstep-00000002\n"), "{out}{error}");
        assert_eq!(error.matches(cause).count(), 1, "{error}");
        // Processes print in any order: a rank that stopped because of another may print first.
        let is_told =
            |line: &str| line.is_empty() || line.starts_with("train: stopped, because rank");
        let first = error.lines().find(|line| !is_told(line)).unwrap();
        assert!(first.starts_with("train: small/step-00000004.partial/rank-00"), "{error}");
        let remedy = "; free some space there, or keep fewer checkpoints with --keep";
        assert!(first.ends_with(remedy), "{error}");
    }
}
