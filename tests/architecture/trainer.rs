//! How much of the trainer has to be read for an axis or a step.

use super::{root, without_tests};
use std::fs;

/// The files that a reader opens to learn each axis, in this order.
const AXES: &[(&str, &[&str])] = &[
    ("data_parallel", &["replicated"]),
    ("data_parallel", &["shards", "zero", "fsdp"]),
    ("tensor_parallel", &["region", "column", "row", "vocab", "sequence"]),
    ("pipeline_parallel", &["plan", "execute"]),
    ("expert_parallel", &["router", "dispatch", "layer"]),
    ("context_parallel", &["zigzag", "ring"]),
    ("context_parallel", &["zigzag", "ulysses"]),
];

/// The lines of `code` that are neither empty nor a comment.
fn lines_of_code(code: &str) -> usize {
    let lines = without_tests(code);
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    lines.lines().filter(is_code).count()
}

#[test]
fn an_axis_of_the_trainer_is_read_in_an_evening_and_its_step_without_turning_a_page() {
    for (axis, files) in AXES {
        let path = |name: &&str| root().join(format!("examples/trainer/src/{axis}/{name}.rs"));
        let lines =
            files.iter().map(|name| lines_of_code(&fs::read_to_string(path(name)).unwrap()));
        let lines: usize = lines.sum();
        assert!(lines <= 420, "{axis}, {files:?}: {lines} lines of code of at most 420");
    }
    let file = root().join("examples/trainer/src/train/trainer.rs");
    let code = fs::read_to_string(file).unwrap();
    let (_, step) = code.split_once("pub fn step(").expect("the trainer has a step");
    let (_, body) = step.split_once("{\n").unwrap();
    let (body, _) = body.split_once("\n    }\n").unwrap();
    let lines = lines_of_code(body);
    assert!(lines <= 15, "the step has {lines} lines of at most 15: an axis is one of its parts");
}
