//! Exercises: each blank fails, each solution passes, and mistakes are named.

use super::{blocks::repository, text};
use std::fs;
use std::path::PathBuf;

fn folder(name: &str) -> PathBuf {
    repository().join("examples/book").join(name)
}

fn names() -> Vec<String> {
    let listed = fs::read_dir(folder("exercises")).unwrap();
    let mut names: Vec<String> =
        listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The output of `learn` about the files of a folder, and its exit code.
fn learn(dir: &std::path::Path, name: &str) -> (String, Option<i32>) {
    let line = format!("learn {name} --dir {}", dir.display());
    let output = super::maypole(&line).current_dir(repository()).output().unwrap();
    (text(&output.stdout) + &text(&output.stderr), output.status.code())
}

/// With the solutions of all others, each exercise is the one that is not done.
#[test]
fn each_blank_fails_itself_and_each_solution_passes() {
    let names = names();
    assert!(names.len() >= 15, "{names:?}");
    for name in &names {
        let mixed = tempfile::tempdir().unwrap();
        for other in &names {
            let from = if other == name { "exercises" } else { "solutions" };
            fs::copy(folder(from).join(other), mixed.path().join(other)).unwrap();
        }
        let (said, code) = learn(mixed.path(), "");
        let stem = name.trim_end_matches(".toml");
        assert!(said.contains(&format!("{stem}: not done yet")), "{name}: {said}");
        assert_eq!(said.matches(": not done yet").count(), 1, "{said}");
        let before = names.iter().position(|other| other == name).unwrap();
        assert_eq!((said.matches(": done").count(), code), (before, Some(1)), "{said}");
        let (said, code) = learn(&folder("solutions"), stem);
        assert_eq!(code, Some(0), "{name}: {said}");
    }
    let (said, code) = learn(&folder("solutions"), "");
    assert!(code == Some(1) && said.contains("data_parallel: not done yet"), "{said}");
}

/// Runs `learn` on functions in Rust. `cargo` is a script that prints the output of the tests.
fn learn_rust(name: &str, blanks: &std::path::Path, cargo: &str) -> (String, Option<i32>) {
    let script = blanks.join("cargo");
    fs::write(&script, format!("#!/bin/sh\necho \"$@\" >> {}/calls\n{cargo}\n", blanks.display()))
        .unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&script, executable).unwrap();
    let dir = folder("solutions");
    let line = format!("learn {name} --dir {} --blanks {}", dir.display(), blanks.display());
    let output = super::maypole(&line).env("CARGO", script).output().unwrap();
    (text(&output.stdout) + &text(&output.stderr), output.status.code())
}

/// The functions that a learner writes in Rust follow the schedules. That each blank fails its own test
/// and each solution passes is proved where they are: in `examples/lab/tests/exercises`.
#[test]
fn functions_in_rust_are_next_and_are_tested_together() {
    let lab = repository().join("examples/lab/tests/exercises");
    let mixed = tempfile::tempdir().unwrap();
    let copy = |from: &str, name: &str| {
        let name = format!("{name}.rs");
        fs::copy(lab.join(from).join(&name), mixed.path().join(&name)).unwrap();
    };
    let names = ["data_parallel", "zero", "tensor", "sequence", "pipeline", "experts", "context"];
    let names: Vec<&str> = names.into_iter().chain(["averaging", "unequal"]).collect();
    let listed = fs::read_dir(lab.join("blanks")).unwrap().count();
    assert_eq!(listed, names.len() + 1, "learn knows every blank, and mod.rs is none");
    // With nothing filled in nothing is built, and the first one is shown with its task.
    names.iter().for_each(|name| copy("blanks", name));
    let (said, code) = learn_rust("", mixed.path(), "exit 9");
    assert!(said.contains("17_grid: done\ndata_parallel: not done yet, in "), "{said}");
    assert!(said.contains("Afterwards `gradients` must be") && said.contains("pub fn sum_grad"));
    assert!(code == Some(1) && !mixed.path().join("calls").exists());
    // What is filled in is tested in one call, and the first that fails is shown.
    ["data_parallel", "zero", "tensor"].iter().for_each(|name| copy("solutions", name));
    let failed = "cat <<'EOF'\n\nrunning 3 tests\n\nfailures:\n\n---- zero stdout ----\n\nthread 'zero' \
        panicked at chapters.rs:1:2:\nrank 0: [1.0], not [2.0]\nnote: run with\n\n\nfailures:\n    zero\n\n\
        test result: FAILED. 2 passed; 1 failed\nEOF\nexit 101";
    let (said, code) = learn_rust("", mixed.path(), failed);
    assert!(said.contains("data_parallel: done\nzero: not done yet"), "{said}");
    assert!(said.contains("rank 0: [1.0], not [2.0]") && !said.contains("note: run"), "{said}");
    assert_eq!((code, said.matches(": not done yet").count()), (Some(1), 1), "{said}");
    let calls = fs::read_to_string(mixed.path().join("calls")).unwrap();
    let asked = "--test exercises -- --ignored --exact data_parallel zero tensor\n";
    assert!(calls.ends_with(asked) && calls.lines().count() == 1, "{calls}");
    // One by name; and one that does not compile.
    let passed = "echo 'test result: ok. 1 passed'";
    let (said, code) = learn_rust("ten", mixed.path(), passed);
    assert!(said.starts_with("tensor: done\n") && code == Some(0), "{said}");
    let (said, code) =
        learn_rust("ten", mixed.path(), "echo 'error[E0308]: mismatched' >&2; exit 101");
    assert!(said.contains("it does not compile.\n\nerror[E0308]") && code == Some(1), "{said}");
    // All are done.
    names.iter().for_each(|name| copy("solutions", name));
    let (said, code) = learn_rust("", mixed.path(), passed);
    assert!(said.ends_with("unequal: done\n\nAll are done.\n") && code == Some(0), "{said}");
}

/// A solution has the task and the limits of its exercise.
#[test]
fn solutions_answer_the_same_questions() {
    for name in names() {
        let [blank, solved] = ["exercises", "solutions"].map(|from| {
            let text = fs::read_to_string(folder(from).join(&name)).unwrap();
            let end = text.find("ranks = [").or_else(|| text.find("microseconds")).unwrap();
            text[..end].to_owned()
        });
        assert_eq!(blank, solved, "{name}");
    }
}
