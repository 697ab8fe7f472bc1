//! Schedules of a file are drawn, proved and priced as those of an algorithm are.

use super::{printed, run, text};
use std::fs;

/// A star of two ranks.
const STAR: &str = r#"collective = "all-reduce"
chunks = 1
ranks = [
  ["copy in0 to out0", "recv-reduce out0 from 1", "send out0 to 1"],
  ["send in0 to 0", "recv out0 from 0"],
]
"#;

/// What `line` prints with the star, changed from `from` to `to`, in the place of FILE; and its code.
#[track_caller]
fn star(line: &str, from: &str, to: &str) -> (String, Option<i32>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("star.toml");
    assert!(STAR.contains(from));
    fs::write(&file, STAR.replace(from, to)).unwrap();
    let output = run(&line.replace("FILE", &file.display().to_string()));
    (text(&output.stdout) + &text(&output.stderr), output.status.code())
}

#[test]
fn what_is_saved_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    for (name, call) in [
        ("ring.toml", "all-reduce -a ring -n 4"),
        ("tree.json", "broadcast -a tree -n 7 --root 3"),
        ("bruck.toml", "all-to-all -a bruck -n 5"),
        ("gather.json", "gather -a binomial -n 6 --root 2"),
    ] {
        let file = folder.path().join(name);
        let file = file.display();
        printed(&format!("draw {call} --save {file}"));
        let by = call.split(' ').nth(2).unwrap();
        let renamed = |printed: String| printed.replace(name, by);
        let drawn = printed(&format!("draw --schedule {file}"));
        assert_eq!(renamed(drawn), printed(&format!("draw {call}")));
        let proved = printed(&format!("verify --schedule {file}"));
        assert_eq!(renamed(proved), printed(&format!("verify {call}")));
        let seconds = |line: &str| super::objects(&printed(line))[0]["seconds"].clone();
        assert_eq!(
            seconds(&format!("simulate --schedule {file} --bytes 64K --json")),
            seconds(&format!("simulate {call} --bytes 64K --json"))
        );
        let page = printed(&format!("draw --schedule {file} --html -"));
        assert!(page.contains(&format!("by {name}")), "{name}");
    }
}

#[test]
fn a_flaw_is_named_and_is_an_exit_code() {
    let (said, code) = star("verify --schedule FILE", "\n", "\n");
    assert!(said.contains("star.toml, 2 ranks: proved\nin place: proved\n"), "{said}");
    assert!(said.ends_with("in the order of the ranks, one after another\n"), "{said}");
    assert_eq!(code, Some(0));

    let (said, code) = star("verify --schedule FILE", ", \"send out0 to 1\"", "");
    assert!(said.contains(": flaw\nstuck: rank 1 waits at its step 1 for ever"), "{said}");
    assert!(said.ends_with("rank 1, step 1: recv out0 from 0\n"), "{said}");
    assert_eq!(code, Some(1));

    // What gets stuck is drawn, and not priced.
    let (said, code) = star("draw --schedule FILE", ", \"send out0 to 1\"", "");
    assert!(said.contains("\nstuck"), "{said}");
    assert_eq!(code, Some(0));
    let (said, code) = star("simulate --schedule FILE", ", \"send out0 to 1\"", "");
    assert!(said.contains("finds a flaw: stuck: rank 1"), "{said}");
    assert_eq!(code, Some(2));
}

#[test]
fn errors_of_a_file_say_where() {
    let (said, code) = star("verify --schedule FILE", "\"recv out0", "\"take out0");
    assert!(said.contains("line 5") && said.contains("\"take out0 from 0\" is no step"), "{said}");
    assert_eq!(code, Some(2));
    let (said, _) = star("verify --schedule FILE", "to 1\"]", "to 2\"]");
    assert!(said.contains("rank 0, step 2: there is no rank 2 among 2"), "{said}");
    let (said, _) = star("draw --schedule FILE", "in0 to 0", "in3 to 0");
    assert!(said.contains("rank 1, step 0: there is no in3"), "{said}");
    let (said, _) = star("verify --schedule FILE.no", "\n", "\n");
    assert!(said.contains("cannot read --schedule"), "{said}");
    let (said, _) = star("verify all-reduce --schedule FILE", "\n", "\n");
    assert!(said.contains("cannot be used with"), "{said}");
}

/// The schedules of a file run between processes and threads, and all results are right.
#[test]
fn schedules_of_a_file_are_measured_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    for call in
        ["all-reduce -a ring -n 3", "broadcast -a tree -n 3 --root 1", "gather -n 3 --root 2"]
    {
        let file = folder.path().join("own.toml");
        printed(&format!("draw {call} --save {}", file.display()));
        let line = format!("perf --schedule {} --threads --budget 2 --json -", file.display());
        let all = super::objects(&printed(&format!("{line} --sizes 8,100K")));
        assert!(all.len() >= 4, "{call}");
        for object in all {
            assert_eq!((&object["wrong"], &object["ranks"]), (&0.into(), &3.into()), "{call}");
            assert_eq!(object["algorithm"], "own");
            assert!(object["predicted_us"].as_f64().is_some_and(|us| us > 0.0), "{object}");
            assert!(
                call.starts_with(object["collective"].as_str().unwrap().split('_').next().unwrap())
            );
        }
    }
    let (table, code) =
        star("perf --schedule FILE --sizes 8 --budget 2 --transport shm", "\n", "\n");
    assert_eq!(code, Some(0), "{table}");
    assert!(table.contains("# own: all-reduce by star.toml, 2 ranks"), "{table}");
    assert!(
        table.contains("#  predicted: ") && table.contains("the tuner would choose "),
        "{table}"
    );
}

#[test]
fn what_cannot_be_measured_is_refused_before_ranks_start() {
    let (said, code) = star("perf --schedule FILE", ", \"send out0 to 1\"", "");
    assert!(said.contains("star.toml has a flaw: stuck: rank 1"), "{said}");
    assert_eq!(code, Some(2));
    let (said, _) = star("perf --schedule FILE -n 3", "\n", "\n");
    assert!(said.contains("has the steps of 2 ranks, and there are 3: start 2"), "{said}");
    let (said, _) = star("perf barrier --schedule FILE", "\n", "\n");
    assert!(said.contains("cannot be used with"), "{said}");
    let (said, _) = star("perf --schedule FILE.no", "\n", "\n");
    assert!(said.contains("cannot read --schedule"), "{said}");
}
