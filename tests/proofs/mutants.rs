//! If any one step of a schedule is broken, either the checker objects or the schedule still
//! implements its collective.

use crate::common::{Executor, Memory, Op, SeededRng, home, works_in_place};
use maypole::algorithms::Algorithm;
use maypole::algorithms::hierarchical::{self, Levels};
use maypole::schedule::collective::{Collective, Symbol};
use maypole::schedule::verify::verify;
use maypole::schedule::{Placement, Schedule, Span, Step, input, output, scratch};
use proptest::prelude::*;

/// The name of an algorithm, and what it is checked for.
type Call<'a> = (&'a str, Collective, Placement);

/// A different number for every contribution; a barrier's is one bit a rank.
fn contribution(collective: Collective, symbol: Symbol) -> u64 {
    match collective {
        Collective::Barrier => 1 << symbol.rank,
        _ => SeededRng::new((symbol.rank * 1000 + symbol.chunk) as u64).next_u64(),
    }
}

fn op(collective: Collective) -> Op {
    match collective {
        Collective::Barrier => |a, b| a | b,
        _ => u64::wrapping_add,
    }
}

fn start(collective: Collective, schedules: &[Schedule], placement: Placement) -> Memory {
    let chunks = |rank: usize| (0..schedules[rank].chunks).map(move |chunk| Symbol { rank, chunk });
    (0..schedules.len())
        .flat_map(chunks)
        .filter(|symbol| collective.input(symbol.rank).contains(symbol.chunk))
        .map(|symbol| {
            ((symbol.rank, home(input(symbol.chunk), placement)), contribution(collective, symbol))
        })
        .collect()
}

/// Runs the schedules on numbers, in a random order, and compares the results with the collective's
/// contract.
fn does_what_it_promises(call: Call<'_>, schedules: &[Schedule], rng: &mut SeededRng) -> bool {
    let (_, collective, placement) = call;
    let memory = start(collective, schedules, placement);
    let mut executor = Executor::new(schedules, placement, op(collective), memory);
    let right = |rank: usize, chunk: usize| {
        let parts = collective.result(schedules.len(), rank, chunk);
        parts.into_iter().map(|symbol| contribution(collective, symbol)).reduce(op(collective))
    };
    executor.run(rng)
        && (0..schedules.len()).all(|rank| {
            let chunks = 0..schedules[rank].chunks;
            let mut held = chunks.filter(|chunk| collective.output(rank).contains(*chunk));
            held.all(|chunk| {
                executor.memory.get(&(rank, output(chunk))).copied() == right(rank, chunk)
            })
        })
}

fn map_spans(step: Step, map: impl Fn(Span) -> Span) -> Step {
    match step {
        Step::Send { from, to } => Step::Send { from: map(from), to },
        Step::Recv { into, from } => Step::Recv { into: map(into), from },
        Step::RecvReduce { into, from } => Step::RecvReduce { into: map(into), from },
        Step::Copy { from, into } => Step::Copy { from: map(from), into },
        Step::Reduce { from, into } => Step::Reduce { from, into: map(into) },
    }
}

fn retarget(step: Step, by: usize, world: usize) -> Option<Step> {
    match step {
        Step::Send { from, to } => Some(Step::Send { from, to: (to + by) % world }),
        Step::Recv { into, from } => Some(Step::Recv { into, from: (from + by) % world }),
        Step::RecvReduce { into, from } => {
            Some(Step::RecvReduce { into, from: (from + by) % world })
        }
        Step::Copy { .. } | Step::Reduce { .. } => None,
    }
}

/// The other verb with the same operands.
fn other_verb(step: Step) -> Option<Step> {
    match step {
        Step::Send { .. } => None,
        Step::Recv { into, from } => Some(Step::RecvReduce { into, from }),
        Step::RecvReduce { into, from } => Some(Step::Recv { into, from }),
        Step::Copy { from, into } => Some(Step::Reduce { from, into }),
        Step::Reduce { from, into } => Some(Step::Copy { from, into }),
    }
}

/// Every way to break one step of `rank`.
fn mutants(schedules: &[Schedule], rank: usize, nth: usize) -> Vec<Schedule> {
    let schedule = &schedules[rank];
    let world = schedules.len();
    let steps = &schedule.steps;
    let step = steps[nth];
    let replace = |by: &[Step]| {
        let steps = [&steps[..nth], by, &steps[nth + 1..]].concat();
        Schedule { steps, ..schedule.clone() }
    };
    let mut mutants = vec![replace(&[]), replace(&[step, step])];
    if nth + 1 < steps.len() {
        let mut swapped = schedule.clone();
        swapped.steps.swap(nth, nth + 1);
        mutants.push(swapped);
    }
    mutants
        .extend((1..world).filter_map(|by| retarget(step, by, world)).map(|step| replace(&[step])));
    mutants.extend(other_verb(step).map(|step| replace(&[step])));
    for by in 1..schedule.chunks {
        let other = |span: Span| Span { chunk: (span.chunk + by) % schedule.chunks, ..span };
        mutants.push(replace(&[map_spans(step, other)]));
    }
    for elsewhere in [input, output] {
        mutants.push(replace(&[map_spans(step, |span| elsewhere(span.chunk))]));
    }
    mutants.retain(|mutant| mutant.steps != *steps);
    mutants
}

/// Of the mutants: how many are caught, and how many are harmless.
type Tally = [usize; 2];

fn check(call: Call<'_>, mut schedules: Vec<Schedule>, tally: &mut Tally) {
    let (name, collective, placement) = call;
    let world = schedules.len();
    let mut rng = SeededRng::new(7);
    assert!(does_what_it_promises(call, &schedules, &mut rng));
    for rank in 0..world {
        for nth in 0..schedules[rank].steps.len() {
            for mutant in mutants(&schedules, rank, nth) {
                let original = std::mem::replace(&mut schedules[rank], mutant);
                match verify(collective, &schedules, placement) {
                    Err(_) => tally[0] += 1,
                    Ok(_) => {
                        tally[1] += 1;
                        assert!(
                            does_what_it_promises(call, &schedules, &mut rng),
                            "{name} {collective:?}, world {world}, {placement:?}: the checker \
                             accepts a wrong step {nth} of rank {rank}: {:?} instead of {:?}",
                            schedules[rank].steps,
                            original.steps,
                        );
                    }
                }
                schedules[rank] = original;
            }
        }
    }
}

#[test]
fn the_checker_objects_or_it_was_harmless() {
    crate::skip::takes_turns!(2);
    let mut tally = [0; 2];
    for world in 2..=6 {
        for algorithm in Algorithm::ALL {
            for &collective in algorithm.collectives() {
                for root in if collective.root().is_some() { vec![0, world - 1] } else { vec![0] } {
                    let collective = collective.with_root(root);
                    let schedules =
                        algorithm.schedules(collective, world).expect("it is in the table");
                    let name = algorithm.name();
                    if works_in_place(algorithm, collective) {
                        let call = (name, collective, Placement::InPlace);
                        check(call, schedules.clone(), &mut tally);
                    }
                    check((name, collective, Placement::Apart), schedules, &mut tally);
                }
            }
        }
    }
    for (collective, schedules) in hierarchies() {
        for placement in [Placement::InPlace, Placement::Apart] {
            check(("hierarchical", collective, placement), schedules.clone(), &mut tally);
        }
    }
    let [caught, harmless] = tally;
    println!("{caught} mutants caught, {harmless} harmless");
    assert!(caught > 4 * harmless, "{caught} mutants caught, {harmless} harmless");
}

/// Hierarchical algorithms, over three hosts with two, two and one ranks.
fn hierarchies() -> Vec<(Collective, Vec<Schedule>)> {
    let across = [Algorithm::Ring, Algorithm::HalvingDoubling, Algorithm::Binomial];
    let levels = across.map(|across| Levels { local: Algorithm::Binomial, across });
    let all = levels
        .into_iter()
        .flat_map(|levels| Collective::all(3).map(|collective| (levels, collective)));
    let schedules = |levels, collective| -> Option<Vec<Schedule>> {
        (0..5)
            .map(|rank| hierarchical::schedule(collective, &[0, 1, 1, 0, 2], rank, levels))
            .collect()
    };
    all.filter_map(|(levels, collective)| Some((collective, schedules(levels, collective)?)))
        .collect()
}

/// If input and output are apart, a schedule without any one of its steps is wrong.
#[test]
fn no_step_is_superfluous() {
    let table = Algorithm::ALL.into_iter().flat_map(|algorithm| {
        let schedules =
            move |collective| algorithm.schedules(collective, 6).expect("it is in the table");
        algorithm.collectives().iter().map(move |&collective| (collective, schedules(collective)))
    });
    for (collective, schedules) in table.chain(hierarchies()) {
        for rank in 0..schedules.len() {
            for nth in 0..schedules[rank].steps.len() {
                let mut without = schedules.clone();
                without[rank].steps.remove(nth);
                let proof = verify(collective, &without, Placement::Apart);
                assert!(proof.is_err(), "{collective:?} {rank} {nth}: {:?}", schedules[rank]);
            }
        }
    }
}

fn any_span() -> impl Strategy<Value = Span> {
    (0..3, 0..4usize).prop_map(|(buffer, chunk)| [input, output, scratch][buffer as usize](chunk))
}

fn any_step() -> impl Strategy<Value = Step> {
    let peer = 0..4usize;
    prop_oneof![
        (any_span(), peer.clone()).prop_map(|(from, to)| Step::Send { from, to }),
        (any_span(), peer.clone()).prop_map(|(into, from)| Step::Recv { into, from }),
        (any_span(), peer).prop_map(|(into, from)| Step::RecvReduce { into, from }),
        (any_span(), any_span()).prop_map(|(from, into)| Step::Copy { from, into }),
        (any_span(), any_span()).prop_map(|(from, into)| Step::Reduce { from, into }),
    ]
}

fn any_schedule() -> impl Strategy<Value = Schedule> {
    (0..4usize, 0..5usize, prop::collection::vec(any_step(), 0..8))
        .prop_map(|(chunks, scratch, steps)| Schedule { chunks, scratch, steps })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// The checker panics on no schedules, and schedules that it accepts are correct.
    #[test]
    fn the_checker_survives_anything(
        schedules in prop::collection::vec(any_schedule(), 0..4),
        nth in 0..Collective::all(0).len(),
        root in 0..3usize,
        in_place: bool,
    ) {
        let placement = if in_place { Placement::InPlace } else { Placement::Apart };
        let call = ("drawn", Collective::all(root)[nth], placement);
        if verify(call.1, &schedules, placement).is_ok() {
            prop_assert!(does_what_it_promises(call, &schedules, &mut SeededRng::new(3)));
        }
    }
}
