//! How a test reports that it did not run.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;

/// Prints `SKIPPED: test: reason` for the calling test, in one line.
///
/// Cargo hides the output of a passing test. So the line is also appended to the file that the
/// environment variable `SKIPPED_TESTS` names, if it is set. `.ci/run` prints that file.
pub(crate) fn skipped(reason: impl Display) {
    let thread = std::thread::current();
    let line = format!("SKIPPED: {}: {reason}\n", thread.name().unwrap_or("a test"));
    eprint!("{line}");
    if let Some(file) = std::env::var_os("SKIPPED_TESTS") {
        let opened = OpenOptions::new().append(true).create(true).open(&file);
        let mut opened = opened.unwrap_or_else(|error| {
            panic!("SKIPPED_TESTS names {}, which cannot be opened: {error}", file.display())
        });
        // One write a line: lines of tests that run at the same time do not mix.
        opened.write_all(line.as_bytes()).unwrap();
    }
}

/// True if this run leaves out nothing: the environment variable `TESTS` is `all`.
#[allow(dead_code, reason = "most programs leave nothing out")]
pub(crate) fn runs_all() -> bool {
    std::env::var_os("TESTS").is_some_and(|which| which == "all")
}

/// True if the calling test, which takes minutes, is left out: it prints that, and how to run it.
/// The environment variable `TESTS=all` runs such tests too.
#[allow(dead_code, reason = "most programs have no such test")]
pub(crate) fn takes_minutes() -> bool {
    let left_out = !runs_all();
    if left_out {
        skipped("it takes minutes; TESTS=all runs it, and so does .ci/run --all");
    }
    left_out
}

/// The cases of this run: every `nth` of `cases`, and all of them where `TESTS=all`. The number in the
/// environment variable `TEST_TURN`, 0 by default, selects the first case. `.ci/run` takes it from
/// the commit, so that commits one after the other have run every case.
#[allow(dead_code, reason = "most programs have few cases")]
pub(crate) fn every_nth<T>(nth: usize, cases: impl IntoIterator<Item = T>) -> Vec<T> {
    if runs_all() {
        return cases.into_iter().collect();
    }
    let turn = std::env::var("TEST_TURN").map_or(0, |turn| turn.parse().expect("it is a number"));
    let first: usize = turn;
    cases.into_iter().skip(first % nth).step_by(nth).collect()
}

/// True if the calling test, which takes seconds, is left out: of such tests one in `of` runs, others with another
/// number in the environment variable `TEST_TURN`, and none without. All run where `TESTS=all`, and so does one
/// that was asked for by name.
#[allow(dead_code, reason = "most programs have no such test")]
pub(crate) fn waits_for_its_turn(of: u64) -> bool {
    let thread = std::thread::current();
    // Where tests run one after the other, their thread has no name of theirs.
    let name = thread.name().filter(|name| *name != "main");
    let place =
        |name: &str| name.bytes().fold(0, |sum: u64, it| sum.wrapping_mul(31) ^ u64::from(it));
    name.is_some_and(|name| waits_for_turn(place(name), of))
}

/// Ends the calling test if it [waits for its turn](waits_for_its_turn).
#[allow(unused_macros, reason = "most programs have no such test")]
macro_rules! takes_turns {
    ($of:literal) => {
        if crate::skip::waits_for_its_turn($of) {
            return;
        }
    };
}
#[allow(unused_imports, reason = "most programs have no such test")]
pub(crate) use takes_turns;

/// As [`waits_for_its_turn`], for the test at this `place` among `of` that take turns.
#[allow(dead_code, reason = "most programs have no such test")]
pub(crate) fn waits_for_turn(place: u64, of: u64) -> bool {
    let is_wanted = std::env::args().skip(1).any(|argument| !argument.starts_with('-'));
    let turn = std::env::var("TEST_TURN").ok().map(|turn| turn.parse::<u64>().expect("a number"));
    let waits =
        !runs_all() && !is_wanted && turn.is_none_or(|turn| place.wrapping_add(turn) % of > 0);
    if waits {
        skipped("it takes seconds; such tests take turns by commit, and TESTS=all runs all");
    }
    waits
}

/// True if this process, and so all that it starts, was started to ignore a signal.
#[allow(dead_code, reason = "most programs send no signals")]
pub(crate) fn ignores(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(set.trim(), 16).unwrap() >> (signal - 1) & 1 == 1
}
