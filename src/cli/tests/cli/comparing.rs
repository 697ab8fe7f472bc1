//! `perf --compare` and `perf --alternate`: what changed between two runs.

use super::{maypole, objects, printed, refused, run, text};
use serde_json::Value;
use std::path::Path;

fn measure(path: &Path) -> Vec<Value> {
    let line = "perf all-reduce --threads -n 2 --transport shm --sizes 8,64K --budget 5";
    printed(&format!("{line} --samples --json {}", path.display()));
    objects(&std::fs::read_to_string(path).unwrap())
}

/// Writes `objects`, with the times of those of `bytes` bytes multiplied by `factor`. Each gets
/// samples that are spread by 5 % around its median, as on a quiet machine.
fn slowed(objects: &[Value], bytes: u64, factor: f64, path: &Path) {
    let slower = |object: &Value| {
        let mut object = object.clone();
        let factor = if object["bytes"] == bytes { factor } else { 1.0 };
        let us = object["time_us"]["p50"].as_f64().unwrap() * factor;
        let samples = (0..50).map(|nth| us * (0.975 + f64::from(nth * 29 % 50) / 1000.0));
        object["samples_us"] = samples.collect();
        object["time_us"]["p50"] = us.into();
        object["noise"]["disturbed"] = false.into();
        format!("{object}\n")
    };
    std::fs::write(path, objects.iter().map(slower).collect::<String>()).unwrap();
}

#[test]
fn a_run_compared_with_itself_has_not_changed_and_a_slowdown_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let [old, new] = ["old.json", "new.json"].map(|name| folder.path().join(name));
    let rows = measure(&old);
    let compare = |options: &str| {
        run(&format!("perf --compare {} --to {} {options}", old.display(), new.display()))
    };
    slowed(&rows, 8, 1.0, &old);
    slowed(&rows, 8, 1.0, &new);
    let same = compare("--fail-below 0.99");
    let said = text(&same.stdout);
    assert_eq!(same.status.code(), Some(0), "{said}{}", text(&same.stderr));
    assert!(said.contains("no row changed by 5 % or more beyond noise; 4 were compared"), "{said}");

    slowed(&rows, 64 << 10, 1.15, &new);
    let slower = compare("--fail-below 0.95");
    let said = text(&slower.stdout);
    assert_eq!(said.matches("  0.870 ").count(), 2, "out of place and in place: {said}");
    assert!(said.contains("2 of 4 rows") && said.contains("all-reduce of 65536 bytes"), "{said}");
    assert!(!said.contains("all-reduce of 8 bytes"), "{said}");
    assert_eq!(slower.status.code(), Some(3), "{said}");
    assert_eq!(compare("--fail-below 0.8").status.code(), Some(0));
}

#[test]
fn a_run_is_compared_with_an_earlier_one_while_it_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let old = folder.path().join("old.json");
    let rows = measure(&old);
    // Against an earlier run that was a hundred times as fast, every row of 8 bytes is slower.
    slowed(&rows, 8, 0.01, &old);
    let output = run(&format!(
        "perf all-reduce -n 2 --threads --transport shm --sizes 8,64K --budget 5 --compare {} \
         --fail-below 0.5",
        old.display()
    ));
    let (said, error) = (text(&output.stdout), text(&output.stderr));
    assert!(said.contains("all-reduce of 8 bytes"), "{said}{error}");
    // Rows that other programs disturbed, as other tests may, are reported and not counted.
    let counted =
        said.lines().filter(|it| it.contains("of 8 bytes") && !it.ends_with("(disturbed)"));
    let failed = counted.count() > 0;
    assert_eq!(output.status.code(), Some(if failed { 3 } else { 0 }), "{said}{error}");
    assert_eq!(error.contains("--fail-below"), failed, "{error}");
}

#[test]
fn results_that_cannot_be_compared_are_refused_with_the_remedy() {
    crate::skip::takes_turns!(2);
    let folder = tempfile::tempdir().unwrap();
    let old = folder.path().join("old.json");
    let rows = measure(&old);
    let named = old.display();
    let other = run(&format!(
        "perf broadcast -n 2 --threads --transport shm --sizes 8 --budget 2 --compare {named}"
    ));
    let error = text(&other.stderr);
    assert_eq!(other.status.code(), Some(1), "{error}");
    assert!(
        error.contains("no row of the other run") && error.contains("perf all-reduce"),
        "{error}"
    );

    let without = |mut object: Value| {
        object["samples_us"] = Value::Null;
        format!("{object}\n")
    };
    std::fs::write(&old, rows.into_iter().map(without).collect::<String>()).unwrap();
    for (line, says) in [
        (format!("perf --compare {named}"), "--samples"),
        ("perf --alternate x --json y".to_owned(), "cannot be used with"),
        ("perf --alternate-env X".to_owned(), "NAME=VALUE"),
        ("perf --alternate /nonexistent -n 2 --sizes 8".to_owned(), "cannot start /nonexistent"),
    ] {
        refused(&line, says);
    }
}

/// A program that is started in turn, and that has a slow rank if a variable is set.
#[test]
fn programs_and_settings_are_compared_in_turn() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("other");
    let script = format!(
        "#!/bin/sh\nexec {} \"$@\" ${{PLANTED:+--slow-rank 1}}\n",
        env!("CARGO_BIN_EXE_maypole")
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let line = format!(
        "perf latency --transport shm --sizes 8 --budget 5 --rounds 4 --alternate {} \
         --fail-below 0.9",
        program.display()
    );
    let compare = |options: &str| maypole(&format!("{line} {options}")).output().unwrap();
    let output = compare("--alternate-env PLANTED=1");
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{said}{}", text(&output.stderr));
    assert!(said.contains("1 of 1 rows changed") && said.contains("with PLANTED=1"), "{said}");
    assert!(said.contains("latency of 8 bytes over shm"), "{said}");
    // On a busy machine equal programs may differ, too, but never so much.
    let alike = text(&compare("").stdout);
    let speed = alike.lines().find(|line| line.ends_with("pairs [[0,1]]"));
    let speed = speed.map(|line| line.split_whitespace().next().unwrap().parse::<f64>().unwrap());
    assert!(speed.is_none_or(|speed| speed > 0.2), "{alike}");
}
