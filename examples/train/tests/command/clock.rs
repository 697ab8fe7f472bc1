//! On every line about the time of a run, the shares sum to 100 % and none is negative, also with work
//! between the steps. If ranks share cores, each line states it.

use std::path::Path;
use std::process::Command;
use std::thread::available_parallelism;

/// Everything that `train` prints with these words, in `folder`.
fn train(folder: &Path, words: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_train"));
    command.args(words.split_whitespace()).current_dir(folder).env("MAYPOLE_TIMEOUT", "60");
    let output = command.output().unwrap();
    let text = String::from_utf8([&output.stdout[..], &output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{text}");
    text
}

/// The lines about time.
fn lines(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.contains(" %")).collect()
}

fn shares(line: &str) -> Vec<(String, i64)> {
    let rest = &line[line.find("compute ").unwrap_or_else(|| panic!("{line}"))..];
    let parts = rest.split("  ").filter_map(|part| part.strip_suffix(" %"));
    let share = |part: &str| {
        let (name, share) = part.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        (name.to_owned(), share.parse().unwrap_or_else(|_| panic!("{line}")))
    };
    parts.map(share).collect()
}

fn share(line: &str, name: &str) -> Option<i64> {
    shares(line).into_iter().find(|(known, _)| known == name).map(|(_, share)| share)
}

/// Fails unless each line sums to 100 and states whether `ranks` ranks share cores.
fn sums(text: &str, ranks: usize) {
    let shared = available_parallelism().unwrap().get() < ranks;
    for line in lines(text) {
        let shares = shares(line);
        assert!(shares.len() >= 2 && shares.iter().all(|(_, share)| *share >= 0), "{line}");
        assert_eq!(shares.iter().map(|(_, share)| share).sum::<i64>(), 100, "{line}");
        assert_eq!(line.contains("time-shared"), shared, "{line}");
    }
}

const SMALL: &str = "run --width 32 --layers 2 --context 16 --rows 8 --sample 0";

#[test]
fn a_run_that_saves_after_every_step_says_how_much_of_its_time_that_takes() {
    let folder = tempfile::tempdir().unwrap();
    let words = format!("{SMALL} --mesh dp=2 --steps 8 --save saved --save-every 1 --keep 2");
    let text = train(folder.path(), &words);
    sums(&text, 2);
    let steps: Vec<&str> = text.lines().filter(|line| line.starts_with("step ")).collect();
    assert_eq!(steps.len(), 8, "{text}");
    assert_eq!(share(steps[0], "saving"), None, "nothing was saved before: {text}");
    for line in steps[1..].iter().copied() {
        // Two files are flushed to the disk, and a small step takes less than that.
        assert!(share(line, "saving").unwrap() > 0, "{text}");
    }
    let ranks: Vec<&str> = text.lines().filter(|line| line.starts_with("rank ")).collect();
    assert_eq!(ranks.len(), 3, "two ranks, and rank 0 with the validation: {text}");
    assert!(ranks.iter().all(|line| share(line, "saving").unwrap() > 0), "{text}");
    assert!(ranks[2].starts_with("rank 0 in all, ") && share(ranks[2], "validation") > Some(0));
    assert_eq!(share(ranks[0], "validation"), None, "{text}");
}

#[test]
fn shares_of_pipelines_of_tensor_groups_and_of_moving_experts_sum_to_100() {
    crate::skip::takes_turns!(4);
    let folder = tempfile::tempdir().unwrap();
    let meshes = [
        ("--mesh pp=2,tp=2 --micros 4", 4),
        ("--mesh pp=2,tp=2 --micros 4 --pipeline interleaved:1 --sequence", 4),
        ("--mesh dp=2,pp=2 --sharding zero2 --micros 2", 4),
        ("--mesh ep=2 --experts 4 --rebalance 2", 2),
        ("", 1),
    ];
    for (nth, (mesh, ranks)) in meshes.into_iter().enumerate() {
        let words = format!("{SMALL} {mesh} --steps 6 --save saved-{nth} --save-every 2");
        let text = train(folder.path(), &words);
        sums(&text, ranks);
        assert_eq!(lines(&text).len(), 6 + ranks + 1, "{text}");
        let last = lines(&text)[6];
        let idle = share(last, "bubble").or_else(|| share(last, "waiting for other stages"));
        assert_eq!(idle.is_some(), mesh.contains("pp"), "{text}");
        assert_eq!(share(last, "moving experts").is_some(), mesh.contains("rebalance"), "{text}");
    }
}
