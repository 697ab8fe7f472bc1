//! Algorithms that the user brings. They are proved once and then run like those of the table, or
//! they are refused with the checker's error.

use crate::common::SeededRng;
use crate::spawn::{World, as_each_rank, as_told, everywhere, say};
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::{Collective, HeldChunks};
use maypole::schedule::{Schedule, Step, input, output};
use maypole::{
    Communicator, Element, Error, Factor, IntoBuffers, IntoOp, Local, Operation, ReduceOp,
};
use std::time::{Duration, Instant};

/// A star: rank 0 receives the vectors of all ranks in rank order, and sends the sum to all ranks.
pub(super) fn star(world: usize, rank: usize) -> Schedule {
    if rank != 0 {
        return Schedule::new(
            1,
            vec![Step::Send { from: input(0), to: 0 }, Step::Recv { into: output(0), from: 0 }],
        );
    }
    let mut steps = vec![Step::Copy { from: input(0), into: output(0) }];
    steps.extend((1..world).map(|from| Step::RecvReduce { into: output(0), from }));
    steps.extend((1..world).map(|to| Step::Send { from: output(0), to }));
    Schedule::new(1, steps)
}

/// Reduces the buffers of all ranks by the star.
pub(super) fn run_star<'a, 'o, T: Element>(
    comm: &mut Communicator,
    buffers: impl IntoBuffers<'a, T>,
    op: impl IntoOp<'o, T>,
) -> maypole::Result<()> {
    let world = comm.world();
    comm.run(|rank| star(world, rank), Collective::AllReduce, buffers, op)
}

/// The contribution of a rank: different numbers on every rank.
fn numbers(rank: usize, count: usize) -> Vec<i64> {
    let mut rng = SeededRng::new(rank as u64 + 77);
    (0..count).map(|_| rng.next_u64() as i64 >> 20).collect()
}

fn stars(comm: &mut Communicator) {
    let rank = comm.rank();
    let world = comm.world();
    for count in [0, 1, 5, 1000, 70_001, 300_000] {
        let mut whole = numbers(rank, count);
        let mut apart = vec![0; count];
        run_star(comm, (&whole, &mut apart), ReduceOp::Sum).unwrap();
        run_star(comm, &mut whole, ReduceOp::Sum).unwrap();
        let mut sum = vec![0; count];
        (0..world).for_each(|rank| {
            sum.iter_mut().zip(numbers(rank, count)).for_each(|(sum, x)| *sum += x)
        });
        assert!(whole == sum && apart == sum, "{count} on {world} ranks");
        // An equal call by the tuner's choice, and another by the star.
        let mut data = numbers(rank, count);
        comm.all_reduce(&mut data, ReduceOp::Sum).unwrap();
        assert!(data == sum);
        let mut data = numbers(rank, count);
        run_star(comm, &mut data, ReduceOp::Sum).unwrap();
        assert!(data == sum);
    }
    let remember = Operation::new("decimal places", false, |left: &[u64], right: &mut [u64]| {
        left.iter().zip(right).for_each(|(left, right)| *right += 10 * left);
    });
    let mut digits = [rank as u64 + 1; 5];
    run_star(comm, &mut digits, &remember).unwrap();
    assert_eq!(digits, [(1..=world as u64).fold(0, |number, digit| 10 * number + digit); 5]);
    for round in 1..4u32 {
        let mut scaled = [1f32; 3];
        let factor = Factor::new(f64::from(round) + rank as f64);
        run_star(comm, &mut scaled, ReduceOp::PreMulSum(factor)).unwrap();
        let sum = (0..world).map(|rank| rank as f32 + round as f32).sum::<f32>();
        assert_eq!(scaled, [sum; 3]);
    }
}

/// Every collective, by a schedule of the table that is passed as if it were the user's. The result
/// must be that of the call of the same name.
fn every_collective(comm: &mut Communicator) {
    let rank = comm.rank();
    let world = comm.world();
    let count = 1001;
    let root = comm.world() - 1;
    for collective in Collective::all(root) {
        let algorithm =
            Algorithm::ALL.into_iter().rev().find(|it| it.supports(collective)).unwrap();
        let schedule = |rank| algorithm.schedule(collective, world, rank).unwrap();
        let len = |held| match held {
            HeldChunks::Nothing => 0,
            HeldChunks::All if collective.is_blocked() => count * world,
            HeldChunks::All | HeldChunks::One(_) => count,
        };
        let brings = numbers(rank, len(collective.input(rank)));
        let mut keeps = vec![-1; len(collective.output(rank))];
        let mut expected = keeps.clone();
        comm.run(schedule, collective, (&brings, &mut keeps), ReduceOp::Max).unwrap();
        comm.call(collective, (&brings, &mut expected), ReduceOp::Max).unwrap();
        assert!(
            collective == Collective::Barrier || keeps == expected,
            "{collective:?} apart, rank {rank}"
        );
        in_place(comm, collective, &schedule, &brings, &keeps);
    }
}

/// The same where input and output are one buffer.
fn in_place(
    comm: &mut Communicator,
    collective: Collective,
    schedule: &dyn Fn(usize) -> Schedule,
    brings: &[i64],
    keeps: &[i64],
) {
    let rank = comm.rank();
    let all = brings.len().max(keeps.len());
    let part = |held: HeldChunks| match held {
        HeldChunks::One(chunk) if all > 1001 => chunk * 1001..(chunk + 1) * 1001,
        HeldChunks::Nothing => 0..0,
        HeldChunks::All | HeldChunks::One(_) => 0..all,
    };
    let mut data = vec![-2; all];
    data[part(collective.input(rank))].copy_from_slice(brings);
    comm.run(schedule, collective, &mut data, ReduceOp::Max).unwrap();
    let kept = &data[part(collective.output(rank))];
    assert!(
        collective == Collective::Barrier || kept == keeps,
        "{collective:?} in place, rank {rank}"
    );
}

/// Schedules that do not implement the collective are refused on every rank, without harm.
fn refused(comm: &mut Communicator) {
    let rank = comm.rank();
    let world = comm.world();
    let drops_a_step = |rank: usize| {
        let mut schedule = star(world, rank);
        if rank == 0 {
            schedule.steps.pop();
        }
        schedule
    };
    let to_nobody = |_| Schedule::new(1, vec![Step::Send { from: input(0), to: world }]);
    let adds_twice = |rank: usize| {
        let mut schedule = star(world, rank);
        schedule.steps.insert(1, Step::Reduce { from: input(0), into: output(0) });
        schedule
    };
    let stuck = format!("stuck: rank {} waits at its step 1 for ever", world - 1);
    let unwritten = "rank 0: no step writes chunk 0 of the output".to_owned();
    let twice = "rank 0, step 1: out0 already holds chunk 0 of rank 0, and it is combined a second \
                 time";
    let flawed: [(&dyn Fn(usize) -> Schedule, String); 3] = [
        (&drops_a_step, if world == 1 { unwritten } else { stuck }),
        (&to_nobody, format!("rank 0, step 0: there is no rank {world} in a world of {world}")),
        (&adds_twice, twice.to_owned()),
    ];
    for (schedule, words) in flawed {
        let error =
            comm.run(schedule, Collective::AllReduce, &mut [1f32; 8], ReduceOp::Sum).unwrap_err();
        assert!(error.is_harmless(), "{error}");
        let text = format!("rank {rank}: all_reduce: the schedules do something else: {words}");
        assert_eq!(error.to_string(), text);
    }
    let error = run_star(comm, (&[1u8], &mut [0u8; 2]), ReduceOp::Sum);
    assert!(error.unwrap_err().is_harmless());
    let error = run_star(comm, &mut [1f32], ReduceOp::Xor).unwrap_err();
    assert!(error.is_harmless() && error.to_string().contains("bits of integers"), "{error}");
    comm.barrier().unwrap();
}

/// A star adds from left to right, a ring does not.
fn deterministic(comm: &mut Communicator) {
    let world = comm.world();
    let ring = |rank| Algorithm::Ring.schedule(Collective::AllReduce, world, rank).unwrap();
    let mut data = [[1e8f32, 1.0, -1e8, 1.0][comm.rank() % 4]];
    comm.set_deterministic(true);
    if world > 2 {
        let error = comm.run(ring, Collective::AllReduce, &mut data, ReduceOp::Sum).unwrap_err();
        let why = "the user's algorithm does not combine the ranks one by one from left to right";
        assert!(error.is_harmless() && error.to_string().contains(why), "{error}");
    }
    run_star(comm, &mut data, ReduceOp::Sum).unwrap();
    let sum = (1..world).fold(1e8f32, |sum, rank| sum + [1e8, 1.0, -1e8, 1.0][rank % 4]);
    assert_eq!(data, [sum]);
    comm.set_deterministic(false);
    comm.run(ring, Collective::AllReduce, &mut data, ReduceOp::Sum).unwrap();
}

fn everything(mut comm: Communicator) {
    refused(&mut comm);
    deterministic(&mut comm);
    stars(&mut comm);
    every_collective(&mut comm);
    let mut group = comm.split(Some(comm.rank() as u64 % 2), 0).unwrap().unwrap();
    // Its programs are dropped all the time.
    group.set_program_memory(3000);
    stars(&mut group);
    comm.close().unwrap();
}

/// Rank 1 brings a schedule of its own, which is right by itself.
fn differs(mut comm: Communicator) -> Error {
    let rank = comm.rank();
    let world = comm.world();
    let since = Instant::now();
    run_star(&mut comm, &mut [1u64; 100], ReduceOp::Sum).unwrap();
    let ring = |rank| Algorithm::Ring.schedule(Collective::AllReduce, world, rank).unwrap();
    let end = (0..3).try_for_each(|_| {
        let mut data = [1u64; 100];
        if rank == 1 {
            comm.run(ring, Collective::AllReduce, &mut data, ReduceOp::Sum)
        } else {
            run_star(&mut comm, &mut data, ReduceOp::Sum)
        }
    });
    assert!(since.elapsed() < Duration::from_secs(15));
    end.unwrap_err()
}

pub(crate) fn rank_process(role: &str) {
    match role {
        "differs" => as_each_rank(|comm| say("error", differs(comm))),
        _ => as_told(role, everything),
    }
}

#[test]
fn own_algorithms_of_threads_and_processes() {
    crate::skip::takes_turns!(2);
    everywhere(everything);
}

#[test]
fn ranks_that_bring_different_algorithms() {
    for error in Local::new(3).timeout(Duration::from_secs(60)).run(differs) {
        assert!(error.to_string().contains("ranks do not match: rank "), "{error}");
    }
    for ended in World::new("differs", 3).start().succeed() {
        let [error] = ended.said("error")[..] else { panic!("{ended:?}") };
        assert!(
            error.contains("ranks do not match: rank ")
                && error.contains("they differ in schedule of the user ("),
            "{error}"
        );
    }
}
