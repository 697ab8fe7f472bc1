//! The kernel with an OS thread for each thread of the GPU, watched by ThreadSanitizer: the
//! kernel's own counters and barriers order a thread's reads after another one's writes.
//! ThreadSanitizer sees pairs of accesses, so a test needs no unlucky order of events.

use super::emulator::{Emulator, Failure, Grid, Machine, Protocol};
use super::mutants::{Mistake, sensitive_cases};
use crate::skip;

/// Runs the calls of some seeds, and returns the first failure. `None` if nothing can be watched.
fn first_failure(protocol: Protocol, edit: impl Fn(String) -> String) -> Option<Option<Failure>> {
    let Some(emulator) = Emulator::watched(edit) else {
        skip::skipped("there is no C++ compiler with ThreadSanitizer");
        return None;
    };
    for seed in 0..3 {
        let grid =
            [Grid { lanes: 2, threads: 2 }, Grid { lanes: 1, threads: 4 }][seed as usize % 2];
        for calls in sensitive_cases(seed).chunk_by(|a, b| a.slots == b.slots) {
            let machine = Machine { grid, protocol, seed, before: 0 };
            if let Err(failure) = emulator.run(calls, machine) {
                return Some(Some(failure));
            }
        }
    }
    Some(None)
}

fn told(failure: &Option<Failure>) -> String {
    match failure {
        Some(Failure::Race(report)) => report.clone(),
        other => format!("{other:?}"),
    }
}

#[test]
fn publications_are_free_of_races_emulated() {
    crate::skip::takes_turns!(4);
    for protocol in [Protocol::Simple, Protocol::LowLatency] {
        let failure = first_failure(protocol, |text| text);
        assert!(matches!(failure, None | Some(None)), "{}", told(&failure.unwrap()));
    }
}

#[test]
fn every_planted_race_is_found_emulated() {
    crate::skip::takes_turns!(4);
    for mistake in Mistake::found_by(&["watched"], false) {
        let run = |plant: &dyn Fn(String) -> String| first_failure(Protocol::Simple, plant);
        let Some(failure) = mistake.planted(run) else { return };
        let is_race = matches!(failure, Some(Failure::Race(_)));
        assert!(is_race, "{}: {}", mistake.name, told(&failure));
    }
}
