//! A root that runs ahead of one of its readers.

use super::WINDOW;
use crate::common::world::{Operation, World};
use maypole::execute::Executor;
use maypole::schedule::collective::Collective;
use maypole::schedule::{Layout, Placement, Schedule, Step, input, output, scratch};

/// Rank 0 sends `chunks` chunks to ranks 1 and 2; rank 1 takes all of them and then sends to rank
/// 2; rank 2 first waits for rank 1. This is legal under the law of schedules, and deadlocks on any
/// ring with fewer slots if rank 0 publishes once for both.
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
    crate::skip::takes_turns!(2);
    check_running_ahead(&[0, 0, 0], 1, 5000, 20);
    for (hosts, capacity) in
        [([0, 0, 0], 1), ([0, 1, 2], 1), ([0, 0, 1], 64), ([0, 1, 0], 64), ([0, 1, 1], 64)]
    {
        check_running_ahead(&hosts, capacity, 1, 70);
        check_running_ahead(&hosts, capacity, 20, 70);
    }
}
