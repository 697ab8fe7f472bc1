//! The kernel that walks programs on a GPU, emulated: the same source, compiled by a C++ compiler,
//! gives the bits of the executor. Threads of the GPU are fibers whose order a seed draws. These
//! tests show nothing of a real GPU's memory or speed.

mod case;
mod counts;
mod disturbed;
mod emulator;
mod mutants;
mod races;
mod short_calls;

use crate::fake_gpu::or_skipped;
use crate::skip;
use case::{Case, table};
use emulator::{Emulator, Failure, Grid, Machine, Protocol};
use maypole::algorithms::Algorithm;
use maypole::schedule::Placement;
use maypole::schedule::collective::Collective;
use maypole_kernels::cuda::WALK_THREADS;
use maypole_kernels::{BinaryOp, DataType, packed};

/// `Status` in `program.h`.
const MISMATCH: u16 = 3;

const GRIDS: [Grid; 3] =
    [Grid { lanes: 1, threads: 4 }, Grid { lanes: 2, threads: 3 }, Grid { lanes: 3, threads: 2 }];

/// The emulator, unless there is no C++ compiler.
fn emulator() -> Option<&'static Emulator> {
    or_skipped(Emulator::whole())
}

/// Asserts that all cases, called one after the other, leave the bytes that the executor leaves.
fn check(emulator: &Emulator, cases: &[Case], machine: Machine) {
    emulator.run(cases, machine).unwrap_or_else(|what| {
        let at = if let Failure::Wrong { call, .. } = what { call } else { 0 };
        panic!("{what:?}: {machine:?}, {:?}", cases[at])
    });
}

fn check_world(world: usize, counts: &[usize]) {
    let Some(emulator) = emulator() else { return };
    for placement in [Placement::Apart, Placement::InPlace] {
        let cases = table(world, counts, placement);
        for (nth, alike) in cases.chunk_by(|a, b| a.slots == b.slots).enumerate() {
            for protocol in [Protocol::Simple, Protocol::LowLatency] {
                let grid = GRIDS[(nth + world) % GRIDS.len()];
                let seed = world as u64 * 100 + nth as u64;
                check(emulator, alike, Machine { grid, protocol, seed, before: 0 });
            }
        }
    }
}

#[test]
fn every_algorithm_has_the_bits_of_the_executor_among_few_ranks_emulated() {
    crate::skip::takes_turns!(4);
    (1..=4).for_each(|world| check_world(world, &[0, 7, 500]));
}

#[test]
fn every_algorithm_has_the_bits_of_the_executor_among_more_ranks_emulated() {
    crate::skip::takes_turns!(4);
    [5, 8].into_iter().for_each(|world| check_world(world, &[100]));
    let Some(emulator) = emulator() else { return };
    for case in mutants::cases_of_many(1) {
        check(emulator, &[case], ONE_LANE);
    }
}

#[test]
fn every_type_and_operation_has_the_bits_of_the_executor_emulated() {
    let Some(emulator) = emulator() else { return };
    let able = |kind| BinaryOp::ALL.into_iter().filter(move |op| op.supports(kind));
    let all = DataType::NUMBERS.into_iter().flat_map(|kind| able(kind).map(move |op| (kind, op)));
    for (kind, op) in skip::every_nth(3, all) {
        let cases: Vec<Case> = [(Algorithm::Ring, 3), (Algorithm::OneShot, 6)]
            .map(|(algorithm, world)| {
                let schedules = algorithm.schedules(Collective::AllReduce, world).unwrap();
                Case::new(Collective::AllReduce, schedules, 100, 64, 1).with_type(kind, op)
            })
            .to_vec();
        for case in &cases {
            for (seed, protocol) in [(1, Protocol::Simple), (2, Protocol::LowLatency)] {
                let machine = Machine { grid: GRIDS[1], protocol, seed, before: 0 };
                check(emulator, std::slice::from_ref(case), machine);
            }
        }
    }
}

/// The checked limits of a program are the capacities of the kernel's arrays.
#[test]
fn the_arrays_of_the_kernel_are_as_long_as_the_checks_say_emulated() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/cuda/");
    let text_of = |file| std::fs::read_to_string(format!("{folder}{file}")).unwrap();
    let text = text_of("lane.h");
    for (name, checked) in [
        ("MOST_SOURCES", packed::MOST_SOURCES),
        ("MOST_RANKS", packed::MOST_RANKS),
        ("MOST_SLOTS", packed::MOST_SLOTS),
    ] {
        assert!(text.contains(&format!("    {name} = {checked},\n")), "{name} is not {checked}");
        assert!(text.contains(&format!("[{name}];\n")), "no array has {name} elements");
    }
    let machine = text_of("machine.h");
    assert!(machine.contains(&format!("{{ WALK_THREADS = {WALK_THREADS}, ")));
}

/// The same calls in many orders of events.
#[test]
fn every_order_of_events_has_the_same_bits_emulated() {
    let Some(emulator) = emulator() else { return };
    for seed in skip::every_nth(6, 0..20) {
        let cases = mutants::sensitive_cases(seed);
        let grid = GRIDS[seed as usize % GRIDS.len()];
        for protocol in [Protocol::Simple, Protocol::LowLatency] {
            for alike in cases.chunk_by(|a, b| a.slots == b.slots) {
                check(emulator, alike, Machine { grid, protocol, seed, before: 0 });
            }
        }
    }
}

/// Counters have 64 bits, but flags of lines repeat, here after 256 publications.
#[test]
fn flags_that_repeat_are_not_taken_for_new_ones_emulated() {
    let Some(emulator) = emulator() else { return };
    for after in [0, 100, 1 << 32] {
        for seed in 0..4 {
            let (before, cases) = mutants::calls_when_flags_repeat(seed);
            let (grid, protocol) = (GRIDS[1], Protocol::LowLatency);
            check(emulator, &cases, Machine { grid, protocol, seed, before: before + after });
        }
    }
}

const ONE_LANE: Machine =
    Machine { grid: GRIDS[0], protocol: Protocol::Simple, seed: 1, before: 0 };

/// A rank that makes another call is named by those that wait for it, and by those that do not.
#[test]
fn a_rank_that_makes_another_call_is_named_emulated() {
    crate::skip::takes_turns!(4);
    let Some(emulator) = emulator() else { return };
    for protocol in [Protocol::Simple, Protocol::LowLatency] {
        let case = Case { other_rank: Some(1), ..mutants::sensitive_cases(1)[0].clone() };
        let error = emulator.run(&[case], Machine { protocol, ..ONE_LANE }).unwrap_err();
        assert!(matches!(error, Failure::GaveUp { status: MISMATCH, .. }), "{error:?}");
    }
}
