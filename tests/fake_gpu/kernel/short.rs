//! Short calls, emulated: their results are right in every order of events, calls that do not match are
//! noticed, and mistakes planted in the text of the kernel are caught.

use super::emulator::compile_program;
use crate::skip;
use std::process::Command;

/// A compiled program that makes short calls.
struct ShortCalls(tempfile::TempDir);

/// How a run ended: the exit codes of `emulated/short.cpp`.
const RIGHT: i32 = 0;
const WRONG: i32 = 1;
const DEADLOCK: i32 = 3;
const GAVE_UP: i32 = 4;

impl ShortCalls {
    /// The program with `edit` applied to the files of the kernel. `None` if there is no compiler.
    fn edited(edit: impl Fn(String) -> String) -> Option<Self> {
        // Few threads, and flags that repeat soon.
        let small = |text: String| edit(text).replace("SHORT_THREADS = 512", "SHORT_THREADS = 4");
        let options = ["-DFLAG_LOG=5", "emulated/fibers.cpp", "emulated/exact.cpp"];
        compile_program("emulated/short.cpp", &options, small).map(Self)
    }

    fn run(&self, seed: u64, ranks: u64, calls: u64, other: i64) -> i32 {
        let numbers = [seed.to_string(), ranks.to_string(), calls.to_string(), other.to_string()];
        let output = Command::new(self.0.path().join("emulator")).args(numbers).output().unwrap();
        output.status.code().expect("it ends by itself")
    }
}

fn program() -> Option<ShortCalls> {
    let made = ShortCalls::edited(|text| text);
    if made.is_none() {
        skip::skipped("there is no C++ compiler: 'c++' cannot be started");
    }
    made
}

#[test]
fn short_calls_are_right_in_every_order_of_events_emulated() {
    let Some(program) = program() else { return };
    for ranks in 1..=5 {
        for seed in 0..6 {
            assert_eq!(program.run(seed, ranks, 60, -1), RIGHT, "{ranks} ranks, seed {seed}");
        }
    }
}

/// A flag is as old as a period, more than once.
#[test]
fn lines_are_wiped_before_their_flags_repeat_emulated() {
    let Some(program) = program() else { return };
    for seed in 0..4 {
        assert_eq!(program.run(seed, 2, 400, -1), RIGHT, "seed {seed}");
    }
}

#[test]
fn short_calls_that_do_not_match_are_noticed_emulated() {
    let Some(program) = program() else { return };
    for ranks in 2..=4 {
        for seed in 0..8 {
            let other = seed as i64 % 5;
            assert_eq!(program.run(seed, ranks, 8, other), GAVE_UP, "{ranks} ranks, seed {seed}");
        }
    }
}

/// Each of these must be seen by some seed.
#[test]
fn mistakes_in_short_calls_are_caught_emulated() {
    let mistakes = [
        ("all calls use one half", "(self.calls & 1) * self.launch.ranks", "self.launch.ranks * 0"),
        ("half of a line is looked at", "first == flag && second == flag", "first == flag"),
        ("old flags stay", "if (!begins_half(self.calls, 2)) return;", "return;"),
        (
            "a rank begins with its own",
            "next = mine;",
            "next = mine; if (peer == 0) next.bits = 0;",
        ),
        ("a block counts no call", "self.calls + 1;", "self.calls;"),
    ];
    for (name, before, after) in mistakes {
        let found = std::cell::Cell::new(0);
        let edited = ShortCalls::edited(|text| {
            found.set(found.get() + text.matches(before).count());
            text.replace(before, after)
        });
        let Some(program) = edited else { return };
        assert_eq!(found.get(), 1, "{name}: the text to change is in the kernel once");
        let ends = (0..40).map(|seed| program.run(seed, 2 + seed % 3, 150, -1));
        let caught = ends.filter(|end| [WRONG, DEADLOCK, GAVE_UP].contains(end)).count();
        assert!(caught > 0, "{name} is caught by no seed");
    }
    let unmarked = ("u32 bits = mark >> (MARK_LOG - LINE_MARK_LOG);", "u32 bits = mark * 0;");
    let Some(program) = ShortCalls::edited(|text| text.replace(unmarked.0, unmarked.1)) else {
        return;
    };
    let passed = (0..20).any(|seed| program.run(seed, 2, 8, 3) == RIGHT);
    assert!(passed, "calls that do not match pass if lines do not tell one from another");
}
