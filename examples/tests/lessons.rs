//! Every lesson runs and prints its expected output. `cargo test` builds them first; `cargo
//! test --test lessons` does not, and then `cargo build --examples` must.

#[path = "../../tests/common/blocks.rs"]
mod blocks;

use std::path::PathBuf;
use std::process::Command;

fn example(name: &str) -> PathBuf {
    // target/debug/deps/examples-0123 -> target/debug/examples/NAME
    let here = std::env::current_exe().expect("this test is a file");
    here.ancestors().nth(2).expect("it lies in deps").join("examples").join(name)
}

#[track_caller]
fn says(command: &mut Command, expected: &[&str]) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{said}{complained}", output.status);
    for text in expected {
        assert!(said.contains(text), "{command:?} does not say {text:?}:\n{said}");
    }
}

#[test]
fn hello() {
    says(
        &mut Command::new(example("01_hello")),
        &[
            "rank 3 brought [3.0, 10.0, -1.0] and leaves with [6.0, 40.0, -4.0]",
            "2 elements would go by one-shot",
        ],
    );
}

#[test]
fn read_a_schedule() {
    says(
        &mut Command::new(example("02_read_a_schedule")),
        &["0  post in0 to rank 2", "2 (n-1)/n = 1.5 of the vector"],
    );
}

#[test]
fn draw_a_ring() {
    says(
        &mut Command::new(example("03_draw_a_ring")),
        &["out2 =in2 +=3 ->1", "one-shot all_reduce, 4 ranks"],
    );
}

#[test]
fn break_it() {
    says(
        &mut Command::new(example("04_break_it")),
        &["never takes what rank", "sending a chunk that is about to change:\n    stuck"],
    );
}

#[test]
fn your_own_algorithm() {
    says(
        &mut Command::new(example("05_your_own_algorithm")),
        &[
            "keeps_rank_order: true",
            "rank 2 has 6; rank 2: all_reduce: the schedules do something else: stuck",
        ],
    );
}

#[test]
fn overlap() {
    says(
        &mut Command::new(example("11_overlap")),
        &["rank 1 computed for", "the last layer's average, doubled, is 61"],
    );
}

#[test]
fn trace() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    let mut command = Command::new(example("07_trace"));
    says(command.arg(&file), &["8 calls, ", "1536 messages", "ui.perfetto.dev"]);
    assert!(std::fs::read_to_string(file).unwrap().contains("all_reduce(1048576 x f32, sum)"));
}

#[test]
fn explain() {
    says(
        &mut Command::new(example("08_explain")),
        &[
            "all_reduce of 8 bytes on 2 ranks",
            "ns measured at best",
            "asked for",
            "8 bytes by ring would be",
        ],
    );
}

#[test]
fn variable_counts() {
    says(
        &mut Command::new(example("09_variable_counts")),
        &[
            "rank 0 sent [6, 16, 0] bytes, got [6, 0, 25]: apron bow dance fiddle garland",
            "rank 2 sent [",
        ],
    );
}

#[test]
fn your_own_operation() {
    says(
        &mut Command::new(example("10_your_own_operation")),
        &[
            "gcd: [6, 7]",
            "then: x -> 6 x + 9",
            "algorithm 'ring' does not combine the ranks in their order",
        ],
    );
}

#[test]
fn registered() {
    says(
        &mut Command::new(example("12_registered")),
        &["rank 1: 20 calls ran on registered memory; the next buffer: false"],
    );
}

/// The README and the book show what lessons print. `UPDATE=1` writes it.
#[test]
fn pages_show_what_lessons_print() {
    blocks::compare_consoles("cargo lesson ", |name| {
        let output = Command::new(example(name)).output().expect("the lesson is built");
        String::from_utf8(output.stdout).expect("output is text")
    });
}
