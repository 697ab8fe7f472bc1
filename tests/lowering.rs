//! Schedules, lowered and executed on threads: they complete over every transport, with the bits of
//! the proof.

mod common;

use common::SeededRng;
use common::random::{CHUNKS, Chunks, schedules};
use common::world::{Operation, World};
use maypole::algorithms::Algorithm;
use maypole::execute::Executor;
use maypole::lower::Program;
use maypole::schedule::collective::{Collective, Symbol};
use maypole::schedule::walk::{Meaning, walk};
use maypole::schedule::{Buffer, Layout, Placement, Schedule, Span, Step, input, output, scratch};
use proptest::prelude::*;
use std::collections::HashSet;

/// Bytes of a window where a test is not about windows.
const WINDOW: usize = 32 << 10;

// ---- Running ahead
// ------------------------------------------------------------------------------------------------

/// Rank 0 sends `chunks` chunks to ranks 1 and 2; rank 1 takes all of them and then sends to rank
/// 2; rank 2 first waits for rank 1. This is legal under the law of schedules, and stuck on any
/// ring with fewer slots if rank 0 publishes for both at once.
fn running_ahead(chunks: usize) -> Vec<Schedule> {
    let each = |step: fn(usize) -> Vec<Step>| (0..chunks).flat_map(step).collect::<Vec<_>>();
    let zero =
        each(|c| vec![Step::Send { from: input(c), to: 1 }, Step::Send { from: input(c), to: 2 }]);
    let take = each(|c| vec![Step::Recv { into: output(c), from: 0 }]);
    let one = [take.clone(), vec![Step::Send { from: output(0), to: 2 }]].concat();
    let two = [vec![Step::Recv { into: scratch(0), from: 1 }], take].concat();
    [zero, one, two].map(|steps| Schedule::new(chunks, steps)).to_vec()
}

fn check_running_ahead(hosts: &[usize], capacity: usize, elements: usize, upto: usize) {
    let operation = |chunks: usize| Operation {
        collective: Collective::Broadcast { root: 0 },
        schedules: running_ahead(chunks),
        layout: Layout::even(elements * chunks, chunks),
        window: WINDOW,
        fingerprint: chunks as u64,
    };
    let operations: Vec<Operation> = (1..=upto).map(operation).collect();
    let rank = |me: usize, executor: &mut Executor| {
        for operation in &operations {
            let whole: Vec<u32> = (0..operation.layout.count() as u32).collect();
            let mut out = if me == 0 { whole.clone() } else { vec![0; whole.len()] };
            let program = operation.lower::<u32>(hosts, me, Placement::Apart);
            let brought = &whole[operation.brings(me)];
            let end = operation.apart(executor, &program, brought, &mut out);
            end.map_err(|failure| {
                format!("{} chunks, {hosts:?}: {failure:?}", operation.layout.chunks())
            })?;
            assert!(out == whole, "{} chunks, {hosts:?}: rank {me}", operation.layout.chunks());
        }
        Ok(())
    };
    World { hosts: hosts.to_vec(), capacity }.run(rank).unwrap();
}

#[test]
fn a_root_that_runs_ahead_of_one_reader_completes_at_every_depth() {
    check_running_ahead(&[0, 0, 0], 1, 5000, 20);
    for (hosts, capacity) in
        [([0, 0, 0], 1), ([0, 1, 2], 1), ([0, 0, 1], 64), ([0, 1, 0], 64), ([0, 1, 1], 64)]
    {
        check_running_ahead(&hosts, capacity, 1, 70);
        check_running_ahead(&hosts, capacity, 20, 70);
    }
}

// ---- Random schedules
// ---------------------------------------------------------------------------------------------

/// The reference: whole chunks, in the order of the proof, input and output apart.
struct Reference {
    /// By rank: input, output, scratch; by chunk.
    memory: Vec<[Vec<Vec<f32>>; 3]>,
    /// Scratch that was read before it was written: (rank, chunk).
    unwritten: HashSet<(usize, usize)>,
    written: HashSet<(usize, usize)>,
}

impl Reference {
    fn chunk(&mut self, rank: usize, span: Span) -> &mut Vec<f32> {
        &mut self.memory[rank][span.buffer as usize][span.chunk]
    }

    fn read(&mut self, rank: usize, span: Span) -> Vec<f32> {
        if span.buffer == Buffer::Scratch && !self.written.contains(&(rank, span.chunk)) {
            self.unwritten.insert((rank, span.chunk));
        }
        self.chunk(rank, span).clone()
    }

    fn write(&mut self, rank: usize, into: Span, mut value: Vec<f32>, reduce: bool) {
        if reduce {
            let mine = self.read(rank, into);
            value = mine.iter().zip(&value).map(|(a, b)| a + b).collect();
        }
        if into.buffer == Buffer::Scratch {
            self.written.insert((rank, into.chunk));
        }
        *self.chunk(rank, into) = value;
    }
}

impl Meaning for Reference {
    type Message = Vec<f32>;

    fn send(&mut self, rank: usize, _: usize, from: Span, _: usize) -> Vec<f32> {
        self.read(rank, from)
    }

    fn receive(
        &mut self,
        rank: usize,
        _: usize,
        into: Span,
        _: usize,
        message: Vec<f32>,
        reduce: bool,
    ) {
        self.write(rank, into, message, reduce);
    }

    fn local(&mut self, rank: usize, _: usize, from: Span, into: Span, reduce: bool) {
        let value = self.read(rank, from);
        self.write(rank, into, value, reduce);
    }
}

/// Numbers whose sums depend on the order: of very different sizes.
fn number(rank: usize, at: usize, salt: u64) -> f32 {
    let drawn = SeededRng::new((rank as u64) << 40 ^ (at as u64) << 8 ^ salt).next_u64();
    let size = [1.0, 1e-3, 1e3, 1e6][drawn as usize % 4];
    (drawn >> 40) as f32 / 1e5 * size
}

fn numbers(rank: usize, count: usize, salt: u64) -> Vec<f32> {
    (0..count).map(|at| number(rank, at, salt)).collect()
}

/// What every rank's output ends as, if the schedules complete; and what scratch they read before
/// they wrote it.
type End = (Vec<Vec<f32>>, HashSet<(usize, usize)>);

/// `before(rank)` is what the output holds at first.
fn reference(
    schedules: &[Schedule],
    layout: &Layout,
    before: impl Fn(usize) -> Vec<f32>,
) -> Option<End> {
    let cut = |whole: Vec<f32>| {
        (0..CHUNKS).map(|chunk| whole[layout.range(chunk)].to_vec()).collect::<Vec<_>>()
    };
    let rank = |rank| {
        [cut(numbers(rank, layout.count(), 0)), cut(before(rank)), cut(vec![0.0; layout.count()])]
    };
    let memory = (0..schedules.len()).map(rank).collect();
    let mut reference = Reference { memory, unwritten: HashSet::new(), written: HashSet::new() };
    walk(schedules, Placement::Apart, &mut reference).ok()?;
    let outputs = reference.memory.into_iter().map(|[_, output, _]| output.concat()).collect();
    Some((outputs, reference.unwritten))
}

/// Makes schedules legal, which may not read scratch before it is written: adds a write of each
/// span in `unwritten`.
fn write_scratch_first(schedules: &mut [Schedule], unwritten: &HashSet<(usize, usize)>) {
    for (rank, chunk) in unwritten {
        schedules[*rank].steps.insert(0, Step::Copy { from: input(*chunk), into: scratch(*chunk) });
    }
}

#[derive(Clone, Debug)]
struct Case {
    world: World,
    operation: Operation,
}

fn case(ranks: usize, events: usize, chunks: Chunks, rng: &mut SeededRng) -> Case {
    let hosts = 1 + rng.below(ranks);
    let hosts = (0..ranks).map(|_| rng.below(hosts)).collect();
    let world = World { hosts, capacity: [1, 7, 4096][rng.below(3)] };
    // Per chunk: nothing, one, primes, more than the largest slot holds.
    let count = [0, 1, 7, 127, 1009, 1009, 9001][rng.below(7)];
    let count = count.min(match world.capacity {
        1 => 31,
        7 => 1009,
        _ => usize::MAX,
    });
    let whole = CHUNKS * count + if chunks == Chunks::Aligned { rng.below(CHUNKS) } else { 0 };
    let window = [4, 28, 256, 1 << 11, WINDOW, 1 << 20][rng.below(6)].max(count / 8);
    let operation = Operation {
        collective: Collective::AllReduce,
        schedules: rng.sample(&schedules(ranks, events, chunks)),
        layout: Layout::even(whole, CHUNKS),
        window,
        fingerprint: rng.next_u64(),
    };
    Case { world, operation }
}

impl Case {
    /// What every rank must end with, apart and in place; `None` if the schedules do not complete.
    fn expected(&mut self) -> Option<[Vec<Vec<f32>>; 2]> {
        let count = self.operation.layout.count();
        let operation = &mut self.operation;
        let (_, unwritten) =
            reference(&operation.schedules, &operation.layout, |rank| numbers(rank, count, 1))?;
        write_scratch_first(&mut operation.schedules, &unwritten);
        let ends = [1, 0].map(|salt| {
            let end = reference(&operation.schedules, &operation.layout, |rank| {
                numbers(rank, count, salt)
            });
            end.expect("a copy more changes nothing").0
        });
        Some(ends)
    }

    /// Runs the case twice in each placement without a barrier, so that ranks run ahead into the
    /// next call.
    fn check(&self, expected: &[Vec<Vec<f32>>; 2]) -> Result<(), String> {
        let count = self.operation.layout.count();
        self.world.run(|me, executor| {
            let placements = [Placement::Apart, Placement::InPlace];
            let programs =
                placements.map(|place| self.operation.lower::<f32>(&self.world.hosts, me, place));
            for turn in 0..4 {
                let program = &programs[turn % 2];
                let mut out = numbers(me, count, 1 - turn as u64 % 2);
                let end = match turn % 2 {
                    0 => self.operation.apart(executor, program, &numbers(me, count, 0), &mut out),
                    _ => self.operation.in_place(executor, program, me, &mut out),
                };
                end.map_err(|failure| format!("rank {me}, turn {turn}: {failure:?}"))?;
                compare(&out, &expected[turn % 2][me])
                    .map_err(|what| format!("rank {me}, turn {turn}: {what}"))?;
            }
            Ok(())
        })
    }
}

fn compare(out: &[f32], expected: &[f32]) -> Result<(), String> {
    let differs = out.iter().zip(expected).position(|(a, b)| a.to_bits() != b.to_bits());
    differs.map_or(Ok(()), |at| {
        Err(format!("element {at} is {} instead of {}", out[at], expected[at]))
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200, failure_persistence: None, max_shrink_time: 60_000, ..ProptestConfig::default()
    })]
    #[test]
    fn random_schedules_give_the_bits_of_the_proof(
        ranks in 2..6usize,
        events in 1..24usize,
        seed: u64,
        aligned: bool,
    ) {
        let chunks = if aligned { Chunks::Aligned } else { Chunks::Mixed };
        let mut case = case(ranks, events, chunks, &mut SeededRng::new(seed));
        if let Some(expected) = case.expected() {
            let end = case.check(&expected);
            prop_assert!(end.is_ok(), "{}: {case:#?}", end.unwrap_err());
        }
    }
}

/// Checks the steps of two ranks, on a board and over a stream, in many windows.
fn check_pair(zero: Vec<Step>, one: Vec<Step>) {
    let schedules =
        [zero, one].map(|steps| Schedule { chunks: CHUNKS, scratch: CHUNKS, steps }).to_vec();
    for hosts in [vec![0, 0], vec![0, 1]] {
        let collective = Collective::AllReduce;
        let layout = Layout::even(CHUNKS * 100, CHUNKS);
        let operation = Operation {
            collective,
            schedules: schedules.clone(),
            layout,
            window: 40,
            fingerprint: 1,
        };
        let mut case = Case { world: World { hosts, capacity: 7 }, operation };
        let expected = case.expected().expect("it completes");
        case.check(&expected).unwrap();
    }
}

#[test]
fn what_is_sent_twice_arrives_twice() {
    let send = Step::Send { from: input(0), to: 1 };
    let receive =
        [Step::Recv { into: output(0), from: 0 }, Step::RecvReduce { into: output(0), from: 0 }];
    check_pair(vec![send, send], receive.to_vec());
}

/// The copy into scratch waits for a message, and the next copy waits for nothing. The write must
/// not overtake the first copy.
#[test]
fn a_write_waits_for_all_that_read_before_it() {
    let one = vec![
        Step::Recv { into: scratch(0), from: 0 },
        Step::Reduce { from: output(1), into: scratch(0) },
        Step::Copy { from: output(1), into: output(2) },
        Step::Copy { from: input(0), into: output(1) },
        Step::Copy { from: scratch(0), into: output(0) },
    ];
    check_pair(vec![Step::Send { from: input(0), to: 1 }], one);
}

/// The property above would mean little if few random schedules completed.
#[test]
fn enough_random_schedules_complete() {
    let mut rng = SeededRng::new(3);
    let complete = (0..300).filter(|_| {
        let ranks = 2 + rng.below(4);
        let events = 1 + rng.below(23);
        case(ranks, events, Chunks::Aligned, &mut rng).expected().is_some()
    });
    assert!(complete.count() > 100);
}

// ---- What lowering promises
// ---------------------------------------------------------------------------------------

fn all_reduce(algorithm: Algorithm, world: usize, count: usize) -> Operation {
    let schedules = algorithm.schedules(Collective::AllReduce, world).expect("it is in the table");
    let layout = Layout::even(count, schedules[0].chunks);
    Operation {
        collective: Collective::AllReduce,
        schedules,
        layout,
        window: WINDOW,
        fingerprint: 1,
    }
}

fn programs(operation: &Operation, hosts: &[usize]) -> Vec<Program> {
    (0..hosts.len()).map(|me| operation.lower::<u64>(hosts, me, Placement::Apart)).collect()
}

fn published(program: &Program) -> usize {
    program.folds.iter().filter(|fold| fold.audience != 0).count()
}

#[test]
fn fusing_leaves_the_fewest_folds_and_publications() {
    for n in 2..=8 {
        let expected = [
            // One fold publishes the vector to all ranks; a second one combines all vectors.
            (Algorithm::OneShot, 2, 1),
            // A fold for the chunk of each other rank; one that combines the contributions of all
            // ranks and sends the result to all; one for the result of each other rank.
            (Algorithm::TwoShot, 2 * n - 1, n),
            // The first send; then each receive is fused with the send that follows.
            (Algorithm::Ring, 2 * n - 1, 2 * n - 2),
        ];
        for (algorithm, folds, publications) in expected {
            for program in programs(&all_reduce(algorithm, n, 1000), &vec![0; n]) {
                assert_eq!(
                    (program.folds.len(), published(&program)),
                    (folds, publications),
                    "{algorithm}, {n} ranks"
                );
            }
        }
    }
}

#[test]
fn broadcasts_publish_once_for_all() {
    let schedules = Algorithm::Linear
        .schedules(Collective::Broadcast { root: 1 }, 5)
        .expect("it is in the table");
    let collective = Collective::Broadcast { root: 1 };
    let layout = Layout::even(10, 1);
    let operation = Operation { collective, schedules, layout, window: WINDOW, fingerprint: 1 };
    let programs = programs(&operation, &[0; 5]);
    assert_eq!((programs[1].folds.len(), programs[1].folds[0].audience), (1, 0b11101));
    assert!(programs.iter().all(|program| program.folds.len() == 1 && program.streams.is_empty()));
}

#[test]
fn flat_plans_need_no_counters() {
    for n in 2..=8 {
        for algorithm in [Algorithm::OneShot, Algorithm::TwoShot] {
            let small = programs(&all_reduce(algorithm, n, n), &vec![0; n]);
            assert!(small.iter().all(|program| program.self_crediting), "{algorithm}, {n} ranks");
        }
        let windows = programs(&all_reduce(Algorithm::OneShot, n, 100_000), &vec![0; n]);
        assert!(
            windows.iter().all(|program| program.windows > 1 && !program.self_crediting),
            "{n} ranks"
        );
    }
    let chain = all_reduce(Algorithm::Ring, 4, 4);
    assert!(
        programs(&chain, &[0; 4]).iter().all(|program| !program.self_crediting),
        "in a ring, no reader publishes to its writer"
    );
}

#[test]
fn a_program_is_as_long_for_many_windows_as_for_few() {
    let size = |program: &Program| {
        let numberings = program
            .numberings
            .iter()
            .map(|numbering| format!("{numbering:?}").matches(',').count());
        (
            program.folds.len(),
            program.sources.len(),
            program.first_of.len(),
            numberings.sum::<usize>(),
        )
    };
    for algorithm in [Algorithm::Ring, Algorithm::Tree, Algorithm::OneShot, Algorithm::TwoShot] {
        for hosts in [[0; 6], [0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 1, 1]] {
            let of = |windows: usize| {
                programs(&all_reduce(algorithm, 6, windows * 6 * WINDOW / 8), &hosts)
            };
            let few = of(2);
            let many = of(1000);
            assert!(many.iter().all(|program| program.windows >= 1000), "{algorithm}");
            assert!(few.iter().map(size).eq(many.iter().map(size)), "{algorithm}, {hosts:?}");
        }
    }
}

/// Programs that need no counters, each for itself, may follow one another in any order also where
/// their ranks have other neighbours.
#[test]
fn programs_without_counters_may_take_turns() {
    let flat = [Algorithm::TwoShot, Algorithm::Tree, Algorithm::OneShot, Algorithm::Ring];
    for (ranks, count) in [(2, 300), (3, 1), (3, 300), (3, 30_000)] {
        let hosts = vec![0; ranks];
        let operations: Vec<_> = (0..4)
            .map(|nth| Operation {
                fingerprint: nth as u64 + 1,
                ..all_reduce(flat[nth], ranks, count)
            })
            .collect();
        let rank = |me: usize, executor: &mut Executor| {
            let programs: Vec<_> =
                operations.iter().map(|it| it.lower::<u64>(&hosts, me, Placement::Apart)).collect();
            let mut rng = SeededRng::new(9);
            for turn in 0..60 {
                let which = rng.below(4);
                for _ in 0..rng.below(9) {
                    let mut out = vec![0; count];
                    let end = operations[which].apart(
                        executor,
                        &programs[which],
                        &vec![me as u64 + 1; count],
                        &mut out,
                    );
                    end.map_err(|failure| {
                        format!("{ranks} ranks, turn {turn}, {}: {failure:?}", flat[which])
                    })?;
                    assert!(
                        out.iter().all(|sum| *sum == (ranks * (ranks + 1) / 2) as u64),
                        "turn {turn}"
                    );
                }
            }
            Ok(())
        };
        World { hosts: hosts.clone(), capacity: 1 }.run(rank).unwrap();
    }
}

// ---- Every algorithm
// ----------------------------------------------------------------------------------------------

fn contribution(rank: usize, at: usize) -> u64 {
    SeededRng::new((rank as u64) << 32 ^ at as u64).next_u64()
}

/// Element `at` of what rank `me` must end with.
fn promised(operation: &Operation, me: usize, at: usize) -> u64 {
    let layout = &operation.layout;
    let chunk = (0..layout.chunks())
        .find(|chunk| layout.range(*chunk).contains(&at))
        .expect("it is in a chunk");
    let place = |symbol: &Symbol| at - layout.range(chunk).start + layout.range(symbol.chunk).start;
    let parts = operation.collective.result(operation.schedules.len(), me, chunk);
    parts.iter().map(|symbol| contribution(symbol.rank, place(symbol))).fold(0, u64::wrapping_add)
}

/// Every algorithm of the table, with every root, in a world of `world`.
fn table(world: usize, counts: &[usize]) -> Vec<Operation> {
    let mut operations = Vec::new();
    for algorithm in Algorithm::ALL {
        for collective in algorithm.collectives() {
            for root in 0..collective.root().map_or(1, |_| world) {
                let collective = collective.with_root(root);
                let schedules = algorithm.schedules(collective, world).expect("it is in the table");
                for &count in
                    counts.iter().filter(|count| collective != Collective::Barrier || **count == 0)
                {
                    let whole =
                        if collective.is_blocked() { count.div_ceil(world) * world } else { count };
                    let layout = Layout::even(whole, schedules[0].chunks);
                    let nth = operations.len();
                    let window = [WINDOW, 200][nth % 2];
                    let fingerprint = nth as u64 + 1;
                    operations.push(Operation {
                        collective,
                        schedules: schedules.clone(),
                        layout,
                        window,
                        fingerprint,
                    });
                }
            }
        }
    }
    operations
}

fn run_operation(
    operation: &Operation,
    hosts: &[usize],
    me: usize,
    executor: &mut Executor,
) -> Result<(), String> {
    let place = |at: usize| contribution(me, at);
    let mut out = vec![0; operation.holds(me).len()];
    let brought: Vec<u64> = operation.brings(me).map(place).collect();
    let program = operation.lower::<u64>(hosts, me, Placement::Apart);
    operation
        .apart(executor, &program, &brought, &mut out)
        .map_err(|failure| format!("{me}: {failure:?}"))?;
    let mut whole = vec![0; operation.layout.count()];
    whole[operation.brings(me)].copy_from_slice(&brought);
    let program = operation.lower::<u64>(hosts, me, Placement::InPlace);
    operation
        .in_place(executor, &program, me, &mut whole)
        .map_err(|failure| format!("{me} in place: {failure:?}"))?;
    let expected: Vec<u64> = operation.holds(me).map(|at| promised(operation, me, at)).collect();
    assert!(out == expected, "{operation:?}, rank {me} of {hosts:?}");
    assert!(
        whole[operation.holds(me)] == expected,
        "{operation:?}, rank {me} of {hosts:?}, in place"
    );
    Ok(())
}

fn check_table(hosts: Vec<usize>, capacity: usize, counts: &[usize]) {
    let operations = table(hosts.len(), counts);
    let rank = |me: usize, executor: &mut Executor| {
        operations.iter().try_for_each(|operation| {
            let end = run_operation(operation, &hosts, me, executor);
            end.map_err(|what| format!("{:?}, {hosts:?}, rank {what}", operation.collective))
        })
    };
    World { hosts: hosts.clone(), capacity }.run(rank).unwrap();
}

#[test]
fn every_algorithm_keeps_its_promise_on_a_board() {
    (2..=8).for_each(|world| check_table(vec![0; world], 1, &[0, 1, 7, 1000]));
}

#[test]
fn every_algorithm_keeps_its_promise_over_streams_of_one_byte() {
    (2..=8).for_each(|world| check_table((0..world).collect(), 1, &[0, 1, 7]));
    (2..=3).for_each(|world| check_table((0..world).collect(), 1, &[1000]));
}

#[test]
fn every_algorithm_keeps_its_promise_over_narrow_streams() {
    (4..=8).for_each(|world| check_table((0..world).collect(), 500, &[1000]));
}

#[test]
fn every_algorithm_keeps_its_promise_between_hosts() {
    (3..=6)
        .for_each(|world| check_table((0..world).map(|rank| rank / 2).collect(), 500, &[1, 1000]));
}
