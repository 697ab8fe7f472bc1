//! Random calls of every kind, registered on all ranks, on some, or on none.

use super::case::cases;
use super::common::SeededRng;
use super::{local, skip};
use maypole::schedule::collective::Collective;
use maypole::{Arena, Communicator, Counters, DataType, Error, Operation, ReduceOp};
use std::collections::BTreeMap;

/// Cases of each world.
const CASES: usize = 250;
/// Bytes of each rank's arena: enough for the buffers of one case.
const ARENA: usize = 4 << 20;

/// How many calls of each collective took the path that is counted, and how many did not.
pub(crate) type Coverage = BTreeMap<&'static str, (u64, u64)>;

/// Random cases, in memory of `arena` if there is one.
pub(crate) fn run_cases(
    comm: &mut Communicator,
    seed: u64,
    arena: Option<&Arena>,
    counted: fn(&Counters) -> u64,
) -> Coverage {
    let mut coverage = Coverage::new();
    let world = comm.world();
    let mut seeds = SeededRng::new(seed);
    for number in 0..CASES {
        let mut case = SeededRng::new(seeds.next_u64()).sample(&cases(world));
        // One rank in `world` without registered memory is enough to keep a call private.
        let mut mine = SeededRng::new(seed ^ (number * 64 + comm.rank()) as u64);
        let is_private = number % 4 == 3 && mine.below(world) == 0;
        // On registered memory, a call has a plan of its own, which may combine in another order.
        case.any &= case.algorithm.is_some() || case.deterministic;
        case.arena = arena.filter(|_| !is_private).cloned();
        let before = comm.counters();
        case.run(comm);
        let after = comm.counters();
        let (taken, others) = coverage.entry(case.collective.name()).or_default();
        let all = |counters: &Counters| counters.calls.values().sum::<u64>();
        let counted = counted(&after) - counted(&before);
        *taken += counted;
        *others += all(&after) - all(&before) - counted;
    }
    coverage
}

fn run_registered(comm: &mut Communicator, seed: u64) -> Coverage {
    let arena = comm.arena(ARENA).unwrap();
    let coverage = run_cases(comm, seed, Some(&arena), |since| since.registered);
    assert_eq!(arena.left().0, ARENA, "every buffer was given back");
    coverage
}

#[test]
fn calls_have_the_bits_of_the_oracle_wherever_their_buffers_lie() {
    crate::skip::takes_turns!(2);
    for world in [2, 3].into_iter().chain(skip::every_nth(3, [4, 5, 8])) {
        let covered = local(world).run(|mut comm| run_registered(&mut comm, world as u64));
        assert!(covered.iter().all(|its| *its == covered[0]), "ranks decide alike: {covered:?}");
        for collective in Collective::all(0).into_iter().filter(|it| *it != Collective::Barrier) {
            let (registered, private) = covered[0][collective.name()];
            assert!(registered > 0 && private > 0, "{world} ranks: {:?}", covered[0]);
        }
    }
}

/// The cases above have every type, and every operation but the user's.
#[test]
fn own_operations_run_in_place_on_a_part_of_a_buffer() {
    let sums = local(3).run(|mut comm| {
        let digits = Operation::new("digits", false, |left: &[u32], right: &mut [u32]| {
            left.iter().zip(right).for_each(|(left, right)| *right += 10 * left);
        });
        let mine = comm.rank() as u32 + 1;
        let mut numbers = comm.alloc::<u32>(3000).unwrap();
        numbers.fill(mine);
        comm.all_reduce(&mut numbers[1..2990], &digits).unwrap();
        assert_eq!(comm.counters().registered, 1);
        assert_eq!((numbers[0], numbers[2990]), (mine, mine), "no more than the part changes");
        numbers[2989]
    });
    assert_eq!(sums, [123; 3]);
}

#[test]
fn requests_on_slices_of_one_registered_buffer_run_in_place() {
    let seen = local(2).run(|mut comm| {
        let mut flat = comm.alloc::<f32>(60_000).unwrap();
        flat.fill(1.0);
        let (first, second) = flat.split_at_mut(20_000);
        comm.scope(|scope| {
            let one = scope.start_all_reduce(first, ReduceOp::Sum);
            let other = scope.start_all_reduce(second, ReduceOp::Sum);
            one.wait()?;
            other.wait()
        })
        .unwrap();
        assert!(flat.iter().all(|it| *it == 2.0));
        comm.counters().registered
    });
    assert_eq!(seen, [2, 2]);
}

/// Placement differs from rank to rank, and only some ranks call in place.
#[test]
fn ranks_may_differ_in_placement() {
    for collective in ["all_reduce", "all_to_all"] {
        local(4).run(|mut comm| {
            let mut x = comm.alloc::<u64>(4000).unwrap();
            let mut y = comm.alloc::<u64>(4000).unwrap();
            x.iter_mut().enumerate().for_each(|(at, it)| *it = at as u64 + comm.rank() as u64);
            let in_place = comm.rank() % 2 == 1;
            let result = match (collective, in_place) {
                ("all_reduce", true) => comm.all_reduce(&mut x, ReduceOp::Sum).map(|()| &x),
                ("all_reduce", false) => comm.all_reduce((&x, &mut y), ReduceOp::Sum).map(|()| &y),
                (_, true) => comm.all_to_all(&mut x).map(|()| &x),
                (_, false) => comm.all_to_all((&x, &mut y)).map(|()| &y),
            };
            let expected = |at: usize| match collective {
                "all_reduce" => 4 * at as u64 + 6,
                _ => (1000 * comm.rank() + at % 1000 + at / 1000) as u64,
            };
            let result = result.unwrap();
            assert!(result.iter().enumerate().all(|(at, it)| *it == expected(at)));
            // Blocks that are exchanged in place would be overwritten before they are read.
            assert_eq!(comm.counters().registered, u64::from(collective == "all_reduce"));
        });
    }
}

#[test]
fn calls_that_differ_are_the_same_error_as_with_vectors() {
    let errors = local(2).run(|mut comm| {
        let mut buffer = comm.alloc::<f32>(10_000).unwrap();
        match comm.rank() {
            0 => comm.all_reduce(&mut buffer, ReduceOp::Sum),
            _ => comm.all_reduce(&mut buffer[..9000], ReduceOp::Sum),
        }
        .unwrap_err()
    });
    assert!(errors.iter().all(|error| matches!(error, Error::Mismatch { .. })), "{errors:?}");
}

#[test]
fn small_calls_do_not_ask() {
    Communicator::run_local(2, |mut comm| {
        let mut buffer = comm.alloc::<f32>(1 << 18).unwrap();
        comm.all_reduce(&mut buffer[..2], ReduceOp::Sum).unwrap();
        assert_eq!(comm.counters().registered, 0);
        comm.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
        assert_eq!(comm.counters().registered, 1);
        assert_eq!(DataType::F32.size() * buffer.len(), 1 << 20);
    });
}
