//! Mistakes planted in the text of the kernel. Each must end in wrong bytes, in a deadlock, or in another
//! failure that the kernel itself does not have.

use super::case::Case;
use super::disturbed::SCENARIOS;
use super::emulator::{Emulator, Failure, Grid, Machine, Protocol};
use crate::fake_gpu::or_skipped;
use crate::skip;
use maypole::algorithms::Algorithm;
use maypole::schedule::Placement;
use maypole::schedule::collective::Collective;
use maypole_kernels::{BinaryOp, DataType};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A call of four ranks with numbers of f32, in windows of 200 bytes if it has some.
fn sum_of_four(algorithm: Algorithm, collective: Collective, count: usize, salt: u64) -> Case {
    let schedules = algorithm.schedules(collective, 4).unwrap();
    Case::new(collective, schedules, count, 200, salt * 100 + count as u64)
        .with_type(DataType::F32, BinaryOp::Sum)
}

fn in_both_placements(apart: &[Case]) -> Vec<Case> {
    let in_place = apart.iter().cloned().map(|it| Case { placement: Placement::InPlace, ..it });
    apart.iter().cloned().chain(in_place).collect()
}

/// Calls in which every rule of the kernel matters: many windows in few slots, several sources
/// whose order matters, several calls in a row.
pub(crate) fn sensitive_cases(salt: u64) -> Vec<Case> {
    let mut cases = in_both_placements(&[
        sum_of_four(Algorithm::Ring, Collective::AllReduce, 901, salt),
        sum_of_four(Algorithm::OneShot, Collective::AllReduce, 902, salt),
        sum_of_four(Algorithm::RecursiveDoubling, Collective::AllGather, 904, salt),
        sum_of_four(Algorithm::Linear, Collective::Broadcast { root: 1 }, 3000, salt),
        sum_of_four(Algorithm::ReduceScatterGather, Collective::Reduce { root: 2 }, 905, salt),
    ]);
    cases.sort_by_key(|case| case.slots.bytes);
    cases
}

/// Folds of more sources than a thread loads at a time, whose order matters.
pub(crate) fn cases_of_many(salt: u64) -> Vec<Case> {
    let case = |world| {
        let schedules = Algorithm::OneShot.schedules(Collective::AllReduce, world).unwrap();
        Case::new(Collective::AllReduce, schedules, 120, 480, salt * 100 + world as u64)
            .with_type(DataType::F32, BinaryOp::Sum)
    };
    [8, 9, 11, 16].map(case).to_vec()
}

/// Long calls, with short ones between them that leave most lines of a slot alone. A long call begins
/// with the flags, when those repeat for the first time, that the last publications of the one before
/// have left in the slots. Returned with the publications before the first call.
pub(crate) fn calls_when_flags_repeat(salt: u64) -> (u64, Vec<Case>) {
    const PERIOD: u64 = 256;
    let schedules = Algorithm::Ring.schedules(Collective::AllReduce, 3).unwrap();
    let new = |nth: u64, count| {
        Case::new(Collective::AllReduce, schedules.clone(), count, 200, salt * 1000 + nth)
            .with_type(DataType::F32, BinaryOp::Sum)
    };
    let slots = new(0, 900).slots;
    let of = |nth, count| Case { slots, ..new(nth, count) };
    let publications = |case: &Case| case.lower_for_device(0).totals[0];
    let (long, short) = (publications(&of(0, 900)), publications(&of(0, 3)));
    let slots = slots.count as u64;
    let between = (PERIOD - slots) / short;
    assert_eq!(slots + between * short, PERIOD, "short calls fill the period");
    let count = |nth: u64| if nth.is_multiple_of(between + 1) { 900 } else { 3 };
    (PERIOD - (long - slots), (0..=2 * (between + 1)).map(|nth| of(nth, count(nth))).collect())
}

/// The planted mistakes, of which each run of the tests takes every fourth: a name, the runs that must each detect
/// it, and lines of the kernel with their replacements.
const MISTAKES: &str = include_str!("mistakes.txt");

/// A mistake, as `mistakes.txt` has it.
pub(crate) struct Mistake {
    pub(crate) name: &'static str,
    runs: Vec<&'static str>,
    edits: Vec<(String, String)>,
}

impl Mistake {
    fn read(text: &'static str) -> Self {
        let (mut runs, mut edits) = (Vec::new(), Vec::<(String, String)>::new());
        let mut lines = text.lines();
        let name = lines.next().expect("a mistake has a name");
        let mut last = '?';
        for line in lines.filter(|line| !line.is_empty()) {
            let (kind, rest) = line.split_at(1);
            let kind = kind.chars().next().expect("one letter");
            match kind {
                '?' => runs.push(rest.trim()),
                '-' if last == '-' => edits.last_mut().unwrap().0 += &format!("\n{rest}"),
                '-' => edits.push((rest.to_owned(), String::new())),
                _ if last == '+' => edits.last_mut().unwrap().1 += &format!("\n{rest}"),
                _ => edits.last_mut().expect("a line is replaced").1 = rest.to_owned(),
            }
            last = kind;
        }
        Self { name, runs, edits }
    }

    pub(crate) fn new(name: &'static str, edits: &[(&str, &str)]) -> Self {
        let edits = edits.iter().map(|(from, to)| (from.to_string(), to.to_string())).collect();
        Self { name, runs: Vec::new(), edits }
    }

    /// The mistakes that are found by runs of this kind, or by others than these kinds.
    pub(crate) fn found_by(kinds: &[&str], others: bool) -> Vec<Self> {
        let all = MISTAKES.split("# ").skip(1).map(Self::read);
        let all = all.filter(|it| kinds.contains(&it.runs[0]) != others).collect::<Vec<_>>();
        skip::every_nth(if others { 4 } else { 2 }, all)
    }

    /// The kernel with the mistake, each of whose edits is in one place. `None` if there is no compiler.
    pub(crate) fn planted<T>(
        &self,
        compile: impl FnOnce(&dyn Fn(String) -> String) -> Option<T>,
    ) -> Option<T> {
        let found = Cell::new(0);
        let plant = |text: String, (from, to): &(String, String)| {
            found.set(found.get() + text.matches(from).count());
            text.replace(from, to)
        };
        let made = compile(&|text| self.edits.iter().fold(text, plant))?;
        assert_eq!(found.get(), self.edits.len(), "{}: the text is in the kernel once", self.name);
        Some(made)
    }
}

/// True if some seed of these runs shows a mistake.
fn notice(runs: &str, emulator: &Emulator) -> bool {
    let (kind, protocol) = runs.split_once(" by ").unwrap_or((runs, "counters"));
    let protocol = if protocol == "lines" { Protocol::LowLatency } else { Protocol::Simple };
    match kind {
        "sensitive" => is_caught(emulator, protocol, |seed| {
            let cases = sensitive_cases(seed);
            cases.chunk_by(|a, b| a.slots == b.slots).map(|alike| (0, alike.to_vec())).collect()
        }),
        "many" => is_caught(emulator, protocol, |seed| {
            cases_of_many(seed).into_iter().map(|it| (0, vec![it])).collect()
        }),
        "repeating" => is_caught(emulator, protocol, |seed| vec![calls_when_flags_repeat(seed)]),
        scenario => {
            let (_, scenario) = SCENARIOS.iter().find(|(name, _)| *name == scenario).unwrap();
            let failure = scenario.first_failure(emulator, protocol, 0..40);
            failure.is_some_and(|(_, end)| {
                !matches!(end, Err(Failure::GaveUp { .. } | Failure::Race(_)))
            })
        }
    }
}

fn is_caught(
    emulator: &Emulator,
    protocol: Protocol,
    runs_of: impl Fn(u64) -> Vec<(u64, Vec<Case>)>,
) -> bool {
    (0..12).any(|seed| {
        let grid =
            [Grid { lanes: 1, threads: 3 }, Grid { lanes: 3, threads: 2 }][seed as usize % 2];
        runs_of(seed).iter().any(|(before, calls)| {
            let machine = Machine { grid, protocol, seed, before: *before };
            emulator.run(calls, machine).is_err()
        })
    })
}

/// Asserts that each of the runs shows the mistake. `None` if there is no compiler.
fn check(mistake: &Mistake) -> Option<()> {
    let emulator = mistake.planted(|plant| Emulator::edited(plant))?;
    for runs in &mistake.runs {
        assert!(notice(runs, &emulator), "{runs} notices nothing: {}", mistake.name);
    }
    Some(())
}

#[test]
fn every_planted_mistake_is_caught_emulated() {
    crate::skip::takes_turns!(4);
    let next = AtomicUsize::new(0);
    let mistakes = Mistake::found_by(&["watched", "short"], true);
    let work = || {
        while let Some(mistake) = mistakes.get(next.fetch_add(1, Ordering::Relaxed)) {
            if or_skipped(check(mistake)).is_none() {
                return;
            }
        }
    };
    std::thread::scope(|threads| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        (0..cores).for_each(|_| drop(threads.spawn(work)));
    });
}
