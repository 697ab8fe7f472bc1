//! Some algorithms declare that the schedules of all ranks follow from the schedule of one rank.
//! This is true, and lowering this one schedule gives the same program as lowering all schedules.

use maypole::algorithms::Algorithm;
use maypole::lower::{LoweringInput, lower, lower_symmetric};
use maypole::schedule::collective::Collective;
use maypole::schedule::hosts::Boards;
use maypole::schedule::{Buffer, Layout, Placement, Schedule, Span, Step, Symmetry};
use std::collections::HashMap;

/// The algorithms that have a symmetry for `world` ranks, each with a collective.
fn symmetric(world: usize) -> impl Iterator<Item = (Algorithm, Collective, Symmetry)> {
    let pairs = move |algorithm: Algorithm| {
        Collective::all(0).into_iter().filter_map(move |collective| {
            Some((algorithm, collective, algorithm.symmetry(collective, world)?))
        })
    };
    Algorithm::named().flat_map(pairs)
}

/// The steps, changed so that a combination always begins with this rank's own part.
fn without_order_of_ranks(schedule: &Schedule) -> Vec<Step> {
    let mut steps = schedule.steps.clone();
    for at in 1..steps.len() {
        if let (Step::Recv { into, from: peer }, Step::Reduce { from, into: same }) =
            (steps[at - 1], steps[at])
            && into == same
        {
            steps[at - 1] = Step::Copy { from, into };
            steps[at] = Step::RecvReduce { into, from: peer };
        }
    }
    steps
}

/// A step without its spans: its kind, and its peer's place relative to `rank`.
fn kind(step: Step, world: usize, rank: usize, symmetry: Symmetry) -> (u8, usize) {
    let seen = |peer: usize| match symmetry {
        Symmetry::Rotation => (peer + world - rank) % world,
        Symmetry::ExclusiveOr => peer ^ rank,
    };
    match step {
        Step::Send { to, .. } => (0, seen(to)),
        Step::Recv { from, .. } => (1, seen(from)),
        Step::RecvReduce { from, .. } => (2, seen(from)),
        Step::Copy { .. } => (3, 0),
        Step::Reduce { .. } => (4, 0),
    }
}

/// Why `other`, of rank `rank`, does not follow from `first`, of rank 0; `None` if it does.
fn objection(
    first: &Schedule,
    other: &Schedule,
    (world, rank): (usize, usize),
    symmetry: Symmetry,
) -> Option<String> {
    let steps = without_order_of_ranks(first);
    let others = without_order_of_ranks(other);
    if steps.len() != others.len() || first.chunks != other.chunks {
        return Some(format!("{} steps, not {}", others.len(), steps.len()));
    }
    // Input and output chunks of one number share bytes in place, so they must be renamed alike.
    let name = |span: Span| (span.buffer == Buffer::Scratch, span.chunk);
    let mut there = HashMap::new();
    let mut back = HashMap::new();
    for (at, (a, b)) in steps.iter().zip(&others).enumerate() {
        if kind(*a, world, 0, symmetry) != kind(*b, world, rank, symmetry) {
            return Some(format!("step {at} is {b:?}, and of rank 0 {a:?}"));
        }
        for (a, b) in a.reads().chain(a.writes()).zip(b.reads().chain(b.writes())) {
            let same = a.buffer == b.buffer
                && *there.entry(name(a)).or_insert(name(b)) == name(b)
                && *back.entry(name(b)).or_insert(name(a)) == name(a);
            if !same {
                return Some(format!("step {at} uses {b}, and of rank 0 {a}"));
            }
        }
    }
    None
}

#[test]
fn schedules_that_are_called_symmetric_are() {
    for world in (1..=40).chain([64]) {
        for (algorithm, collective, symmetry) in symmetric(world) {
            let schedules = algorithm.schedules(collective, world).unwrap();
            for (rank, schedule) in schedules.iter().enumerate() {
                let objection = objection(&schedules[0], schedule, (world, rank), symmetry);
                assert_eq!(objection, None, "{algorithm} {collective:?}, rank {rank} of {world}");
            }
        }
    }
}

/// The program of rank `me`, printed: from one schedule, and from all.
fn programs(
    (algorithm, collective, symmetry): (Algorithm, Collective, Symmetry),
    (world, me): (usize, usize),
    (elements, window): (usize, usize),
    placement: Placement,
) -> [String; 2] {
    let boards = Boards::separate(world);
    let schedules = algorithm.schedules(collective, world).unwrap();
    let layout = Layout::even(elements, schedules[0].chunks);
    let all = LoweringInput {
        collective,
        schedules: &schedules,
        layout: &layout,
        element: 4,
        boards: &boards,
        window,
        fingerprint: 7,
    };
    let alone = LoweringInput { schedules: &schedules[me..=me], ..all };
    let from_one = lower_symmetric(&alone, symmetry, me, placement).expect("it completes");
    [format!("{from_one:?}"), format!("{:?}", lower(&all, me, placement).unwrap())]
}

#[test]
fn one_schedule_gives_the_program_that_all_give() {
    for world in [1, 2, 3, 4, 5, 7, 8, 12, 16, 21, 32] {
        for case in symmetric(world) {
            for me in [0, world / 2, world - 1] {
                for size in [(0, 64), (3 * world + 1, 64), (1000 * world, 1 << 10)] {
                    for placement in [Placement::Apart, Placement::InPlace] {
                        let [from_one, from_all] = programs(case, (world, me), size, placement);
                        let said = format!("{case:?} rank {me} of {world}, {size:?} {placement:?}");
                        assert!(from_one == from_all, "{said}:\n{from_one}\n{from_all}");
                    }
                }
            }
        }
    }
}
