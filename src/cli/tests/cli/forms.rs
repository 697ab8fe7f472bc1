//! Buffers outside caches, and blocks of unequal lengths.

use super::{objects, printed, refused, run, text};
use serde_json::{Value, json};

/// The objects of a run over the memory of threads, all of them right.
fn right(line: &str) -> Vec<Value> {
    let all = objects(&printed(&format!("perf {line} --threads --transport shm --json -")));
    assert!(!all.is_empty() && all.iter().all(|object| object["wrong"] == 0), "{line}: {all:?}");
    all
}

/// Calls that are left out give wrong elements.
fn notices(line: &str) {
    let line = format!("perf {line} --threads --transport shm --iters 300 --sabotage 50");
    let output = run(&line);
    assert_eq!(output.status.code(), Some(1), "{line}: {}", text(&output.stdout));
    assert!(text(&output.stderr).contains("elements were wrong"), "{line}");
}

#[test]
fn buffers_lie_outside_caches() {
    let line = "all-reduce gather all-to-all scan -n 2 --off-cache=3M --sizes 8,100K --budget 2";
    let all = right(line);
    assert!(all.iter().all(|object| object["off_cache_bytes"] == 3 << 20), "{all:?}");
    assert_eq!(right("barrier -n 2 --budget 2")[0]["off_cache_bytes"], Value::Null);
    notices("all-reduce broadcast -n 2 --off-cache=1M --sizes 8,32K");
    refused("perf p2p --off-cache", "--off-cache is about collectives");
    let table = printed("perf all-gather -n 2 --threads --off-cache --sizes 8 --budget 1");
    assert!(table.contains("finds caches full of other bytes, "), "{table}");
}

/// Calls copy bytes that a cache holds, or that none does: the first call of a batch, and those after
/// it. Other programs only add time, so the least times are compared, in a few tries.
#[test]
fn memory_is_slower_than_a_cache() {
    for calls in ["--sizes 256K --iters 1", "--sizes 32K --budget 20"] {
        let least = |option: &str| {
            let line = format!("all-gather -n 1 {calls} {option}");
            let time = |_| right(&line)[0]["time_us"]["min"].as_f64().unwrap();
            (0..3).map(time).fold(f64::INFINITY, f64::min)
        };
        let is_slower = |_| least("--off-cache") > 1.3 * least("");
        assert!((0..3).any(is_slower), "{calls}: {} us, {} us", least("--off-cache"), least(""));
    }
}

#[test]
fn registered_buffers_lie_outside_caches_too() {
    let line =
        "perf all-reduce -n 2 --registered --off-cache=2M --sizes 64K,1M --budget 2 --json -";
    for object in objects(&printed(line)) {
        assert_eq!((&object["wrong"], &object["path"]), (&json!(0), &json!("registered")));
    }
}

#[test]
fn blocks_have_as_many_elements_as_the_counts_say() {
    let line = "all -n 3 --counts 2:0:1 --sizes 24,60K --budget 2";
    let all = right(line);
    let names: Vec<_> = all.iter().map(|object| object["collective"].clone()).collect();
    for name in ["gather", "all_gather", "scatter", "reduce_scatter", "all_to_all"] {
        assert_eq!(names.iter().filter(|it| **it == name).count(), 2, "{names:?}");
    }
    assert_eq!(names.len(), 10, "{names:?}");
    assert_eq!(all[0]["counts"], json!([4, 0, 2]));
    assert_eq!((&all[0]["bytes"], &all[0]["count"]), (&json!(24), &json!(2)));
    for rule in ["linear", "1:0:0:0"] {
        right(&format!("gather all-gather all-to-all -n 4 --counts {rule} --sizes 1K --budget 2"));
    }
    let roots = right("gather scatter -n 3 -r all --counts 1:0:2 -d f64 --sizes 1K --budget 2");
    assert_eq!(roots.len(), 6, "{roots:?}");
    notices("all-gather reduce-scatter all-to-all -n 3 --counts linear --sizes 600");
    let table = printed("perf all-gather -n 2 --threads --counts linear --sizes 24 --budget 1");
    assert!(table.contains("# blocks have 1:2 shares"), "{table}");
}

/// Rows that differ in one of these are of different points.
#[test]
fn rows_are_compared_with_rows_of_the_same_form() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("old.json");
    let line = "perf all-gather -n 2 --threads --transport shm --sizes 24 --budget 2 --samples";
    printed(&format!("{line} --json {}", file.display()));
    let with = |option: &str| {
        let output = run(&format!("{line} --json - {option} --compare {}", file.display()));
        (output.status.code(), text(&output.stderr))
    };
    assert_eq!(with("").0, Some(0));
    for option in ["--counts linear", "--off-cache=1M"] {
        let (code, said) = with(option);
        assert!(code == Some(2) || code == Some(1), "{option}: {said}");
        assert!(said.contains("no row of the other run"), "{option}: {said}");
    }
}
