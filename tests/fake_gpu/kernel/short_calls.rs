//! Short calls, emulated: their results are right in every order of events, calls that do not match are
//! noticed, and mistakes planted in the text of the kernel are caught.

use super::emulator::{compile_program, fibers};
use super::mutants::Mistake;
use crate::fake_gpu::or_skipped;
use std::process::Command;

/// A compiled program that makes short calls.
struct Calls(tempfile::TempDir);

/// How a run ended: the exit codes of `emulated/short_calls.cpp`.
const RIGHT: i32 = 0;
const GAVE_UP: i32 = 4;

impl Calls {
    /// The program with `edit` applied to the files of the kernel. `None` if there is no compiler.
    fn edited(edit: impl Fn(String) -> String) -> Option<Self> {
        // Few threads, and flags that repeat soon.
        let small = |text: String| edit(text).replace("SHORT_THREADS = 512", "SHORT_THREADS = 6");
        let options = ["-DFLAG_LOG=5", fibers()?];
        compile_program("emulated/short_calls.cpp", &options, small).map(Self)
    }

    /// Makes `calls` calls. Rank 1 makes call `other` in another way, unless it is -1.
    fn run(&self, seed: u64, ranks: u64, calls: u64, other: i64) -> i32 {
        let numbers = [seed.to_string(), ranks.to_string(), calls.to_string(), other.to_string()];
        let mut program = Command::new(self.0.path().join("emulator"));
        let output = program.args(numbers).output().unwrap();
        output.status.code().expect("it ends by itself")
    }
}

#[test]
fn short_calls_are_right_in_every_order_of_events_emulated() {
    let Some(program) = or_skipped(Calls::edited(|text| text)) else { return };
    for (ranks, seed) in (1..=5).flat_map(|ranks| (0..6).map(move |seed| (ranks, seed))) {
        assert_eq!(program.run(seed, ranks, 60, -1), RIGHT, "{ranks} ranks, seed {seed}");
    }
    // A flag is as old as a period, more than once.
    for seed in 0..4 {
        assert_eq!(program.run(seed, 2, 400, -1), RIGHT, "seed {seed}");
    }
}

#[test]
fn short_calls_that_do_not_match_are_noticed_emulated() {
    let Some(program) = or_skipped(Calls::edited(|text| text)) else { return };
    for (ranks, seed) in (2..=4).flat_map(|ranks| (0..8).map(move |seed| (ranks, seed))) {
        let end = program.run(seed, ranks, 8, seed as i64 % 5);
        assert_eq!(end, GAVE_UP, "{ranks} ranks, seed {seed}");
    }
}

/// Each of these must be seen by some seed.
#[test]
fn mistakes_in_short_calls_are_caught_emulated() {
    for mistake in Mistake::found_by(&["short"], false) {
        let Some(program) = mistake.planted(|plant| Calls::edited(plant)) else { return };
        // Flags are old after many calls.
        let calls = if mistake.name == "old flags stay" { 800 } else { 150 };
        let mut ends = (0..40).map(|seed| program.run(seed, 2 + seed % 3, calls, -1));
        assert!(ends.any(|end| end != RIGHT), "{} is caught by no seed", mistake.name);
    }
}
