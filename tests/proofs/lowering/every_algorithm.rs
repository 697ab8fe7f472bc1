//! Every algorithm of the table, over boards and streams.

use crate::common::SeededRng;
use crate::common::world::{Operation, World, every_algorithm};
use crate::skip;
use maypole::execute::Executor;
use maypole::schedule::Placement;
use maypole::schedule::collective::{Collective, Symbol};

fn contribution(rank: usize, at: usize) -> u64 {
    SeededRng::new((rank as u64) << 32 ^ at as u64).next_u64()
}

/// Element `at` of the expected result of rank `me`.
fn promised(operation: &Operation, me: usize, at: usize) -> u64 {
    let layout = &operation.layout;
    let chunk = (0..layout.chunks())
        .find(|chunk| layout.range(*chunk).contains(&at))
        .expect("it is in a chunk");
    let place = |symbol: &Symbol| at - layout.range(chunk).start + layout.range(symbol.chunk).start;
    let parts = operation.collective.result(operation.schedules.len(), me, chunk);
    parts.iter().map(|symbol| contribution(symbol.rank, place(symbol))).fold(0, u64::wrapping_add)
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
    let mut operations = every_algorithm(hosts.len(), counts);
    operations.retain(|it| it.collective != Collective::Barrier || it.layout.count() == 0);
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
    crate::skip::takes_turns!(2);
    let worlds = (2..=3).chain(skip::every_nth(4, 4..=8));
    worlds.for_each(|world| check_table((0..world).collect(), 1, &[0, 1, 7]));
    let worlds = skip::every_nth(2, 2..=3).into_iter();
    worlds.for_each(|world| check_table((0..world).collect(), 1, &[1000]));
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
