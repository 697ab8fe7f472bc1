//! Some algorithms declare that the schedules of all ranks follow from those of one board. They do, and lowering
//! these gives the same program as lowering all schedules.

use maypole::algorithms::Algorithm;
use maypole::lower::{LoweringInput, lower, lower_symmetric};
use maypole::schedule::collective::Collective;
use maypole::schedule::hosts::Boards;
use maypole::schedule::{Buffer, Layout, Placement, Schedule, Span, Step, Symmetry};
use std::collections::HashMap;

/// Boards of `width` ranks each, one after the other.
fn boards(count: usize, width: usize) -> Boards {
    Boards::new(&(0..count * width).map(|rank| rank / width).collect::<Vec<_>>())
}

/// The algorithms that have a symmetry on `boards`, each with a collective.
fn symmetric(boards: &Boards) -> impl Iterator<Item = (Algorithm, Collective, Symmetry)> {
    let pairs = move |algorithm: Algorithm| {
        Collective::all(0).into_iter().filter_map(move |collective| {
            Some((algorithm, collective, algorithm.symmetry(collective, boards)?))
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

/// A step without its spans: its kind, and its peer relative to `rank`.
fn kind(step: Step, boards: (usize, usize), rank: usize, symmetry: Symmetry) -> (u8, usize) {
    let seen = |peer: usize| symmetry.moved([peer, rank], 0, boards)[0];
    match step {
        Step::Send { to, .. } => (0, seen(to)),
        Step::Recv { from, .. } => (1, seen(from)),
        Step::RecvReduce { from, .. } => (2, seen(from)),
        Step::Copy { .. } => (3, 0),
        Step::Reduce { .. } => (4, 0),
    }
}

/// Why `other`, of rank `rank`, does not follow from `first`, of the rank at its place of the first of the
/// `boards`; `None` if it does.
fn objection(
    first: &Schedule,
    other: &Schedule,
    (boards, rank): ((usize, usize), usize),
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
        let there_and_here = [(*a, rank % boards.1), (*b, rank)];
        let [first, other] = there_and_here.map(|(step, of)| kind(step, boards, of, symmetry));
        if first != other {
            return Some(format!("step {at} is {b:?}, and of the first board {a:?}"));
        }
        for (a, b) in a.reads().chain(a.writes()).zip(b.reads().chain(b.writes())) {
            let same = a.buffer == b.buffer
                && *there.entry(name(a)).or_insert(name(b)) == name(b)
                && *back.entry(name(b)).or_insert(name(a)) == name(a);
            if !same {
                return Some(format!("step {at} uses {b}, and of the first board {a}"));
            }
        }
    }
    None
}

#[test]
fn schedules_that_are_called_symmetric_are() {
    crate::skip::takes_turns!(2);
    let regular = (1..=12).flat_map(|count| [2, 3, 4, 8].map(|width| (count, width)));
    let mut hierarchical = 0;
    for shape in (1..=40).chain([64]).map(|world| (world, 1)).chain(regular).chain([(16, 4)]) {
        let boards = boards(shape.0, shape.1);
        for (algorithm, collective, symmetry) in symmetric(&boards) {
            hierarchical += usize::from(algorithm == Algorithm::Hierarchical && shape.1 > 1);
            let schedules = algorithm.schedules_on(collective, boards.numbers()).unwrap();
            for (rank, schedule) in schedules.iter().enumerate() {
                let first = &schedules[rank % shape.1];
                let objection = objection(first, schedule, (shape, rank), symmetry);
                assert_eq!(objection, None, "{algorithm} {collective:?}, rank {rank} of {shape:?}");
            }
        }
    }
    assert!(hierarchical > 50, "{hierarchical} hierarchical schedules are compared");
}

#[test]
fn unequal_boards_have_no_symmetry() {
    let ring =
        |boards: &[usize]| Algorithm::Ring.symmetry(Collective::AllReduce, &Boards::new(boards));
    assert_eq!(ring(&[0, 0, 1, 1, 2]), None);
    assert_eq!(ring(&[0, 1, 0, 1]), None);
    assert_eq!(ring(&[0, 0, 1, 1]), Some(Symmetry::Rotation));
}

/// The program of rank `me`, printed: from the schedules of its board, and from all.
fn programs(
    (algorithm, collective, symmetry): (Algorithm, Collective, Symmetry),
    (boards, me): (&Boards, usize),
    (elements, window): (usize, usize),
    placement: Placement,
) -> [String; 2] {
    let schedules = algorithm.schedules_on(collective, boards.numbers()).unwrap();
    let layout = Layout::even(elements, schedules[0].chunks);
    let all = LoweringInput {
        collective,
        schedules: &schedules,
        layout: &layout,
        element: 4,
        boards,
        window,
        fingerprint: 7,
    };
    let locals = boards.locals(me);
    let here = LoweringInput { schedules: &schedules[locals[0]..=locals[locals.len() - 1]], ..all };
    let from_board = lower_symmetric(&here, symmetry, me, placement).expect("it completes");
    [format!("{from_board:?}"), format!("{:?}", lower(&all, me, placement).unwrap())]
}

/// Where two programs differ, and some of each from there on.
fn first_difference<'a>(here: &'a str, all: &'a str) -> [&'a str; 2] {
    let at = here.bytes().zip(all.bytes()).take_while(|(a, b)| a == b).count();
    [here, all].map(|text| &text[at.saturating_sub(200)..(at + 200).min(text.len())])
}

#[test]
fn the_schedules_of_a_board_give_the_program_that_all_give() {
    let alone = [1, 2, 3, 4, 5, 7, 8, 12, 16, 21, 32].map(|world| (world, 1));
    let regular = [(1, 4), (2, 2), (2, 8), (3, 2), (4, 3), (9, 2), (10, 3), (16, 2), (6, 4)];
    for shape in alone.into_iter().chain(regular) {
        let boards = boards(shape.0, shape.1);
        let world = boards.world();
        for case in symmetric(&boards) {
            for me in [0, world / 2, world - 1] {
                for size in [(0, 64), (3 * world + 1, 64), (1000 * world, 1 << 10)] {
                    for placement in [Placement::Apart, Placement::InPlace] {
                        let [here, all] = programs(case, (&boards, me), size, placement);
                        let said =
                            format!("{case:?} rank {me} of {shape:?}, {size:?} {placement:?}");
                        assert!(here == all, "{said}: {:?}", first_difference(&here, &all));
                    }
                }
            }
        }
    }
}
