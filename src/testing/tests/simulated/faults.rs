//! Random programs, with and without faults.

use crate::common::SeededRng;
use crate::program::{Failure, Program, draw_world};
use crate::seeds::for_seeds;
use maypole::ReduceOp;
use maypole_testing::{SimulatedRun, SimulatedWorld};
use std::sync::atomic::{AtomicU64, Ordering};

type Ended = SimulatedRun<Result<(), Failure>>;

/// A program and a world for it, both from `seed`.
fn draw(seed: u64, salt: u64) -> (Program, SimulatedWorld, SeededRng) {
    let mut rng = SeededRng::new(seed.wrapping_mul(10) + salt);
    let ranks = 2 + rng.below(6);
    let world = draw_world(seed, ranks, &mut rng);
    (Program::draw(ranks, &mut rng), world, rng)
}

fn failures(run: &Ended) -> impl Iterator<Item = (usize, &Failure)> {
    run.survivors().filter_map(|(rank, outcome)| Some((rank, outcome.as_ref().err()?)))
}

/// True if `failure` names `victim`. A rank that is no member of the group in which a call fails has
/// no number there, so the sentence alone names it.
fn names(failure: &Failure, victim: usize) -> bool {
    match failure.culprit {
        Some(culprit) => culprit == victim,
        None => [" died:", " of the world died:"]
            .iter()
            .any(|died| failure.text.contains(&format!("because rank {victim}{died}"))),
    }
}

#[test]
fn every_call_has_the_right_result_however_slow_the_links() {
    for_seeds(400, |seed| {
        let (program, world, _) = draw(seed, 0);
        let run = world.run(|comm| program.run(comm));
        if let Some((rank, failure)) = failures(&run).next() {
            panic!("seed {seed}, rank {rank} of {}: {failure:?}\nin {program:?}", program.world);
        }
    });
}

#[test]
fn a_dropped_rank_is_named_by_all_that_do_not_succeed() {
    let dropped = AtomicU64::new(0);
    let failed = AtomicU64::new(0);
    for_seeds(800, |seed| {
        let (program, world, mut rng) = draw(seed, 1);
        let victim = rng.below(program.world);
        let run = world.drop_peer(victim).run(|comm| program.run(comm));
        let died = run.dropped().next().is_some();
        dropped.fetch_add(u64::from(died), Ordering::Relaxed);
        for (rank, failure) in failures(&run) {
            assert!(died, "seed {seed}, rank {rank}: nobody died, but {failure:?} in {program:?}");
            assert!(
                names(failure, victim),
                "seed {seed}, rank {rank}: rank {victim} died, but {failure:?} in {program:?}"
            );
            failed.fetch_add(1, Ordering::Relaxed);
        }
    });
    if std::env::var_os("TEST_SEED").is_none() {
        assert!(dropped.into_inner() > 20, "too few ranks were dropped to show anything");
        assert!(failed.into_inner() > 20, "too few calls failed to show anything");
    }
}

#[test]
fn two_dropped_ranks_are_both_causes() {
    for_seeds(200, |seed| {
        let (program, world, mut rng) = draw(seed, 2);
        let first = rng.below(program.world);
        let second = (first + 1 + rng.below(program.world - 1)) % program.world;
        let run = world.drop_peer(first).drop_peer(second).run(|comm| program.run(comm));
        let dropped: Vec<usize> = run.dropped().collect();
        for (rank, failure) in failures(&run) {
            let named = dropped.iter().any(|victim| names(failure, *victim));
            assert!(named, "seed {seed}, rank {rank}: {dropped:?} died: {failure:?}");
        }
    });
}

#[test]
fn a_corrupted_head_is_an_error() {
    let corrupted = AtomicU64::new(0);
    for_seeds(400, |seed| {
        let mut rng = SeededRng::new(seed);
        let ranks = 2 + rng.below(5);
        let world = draw_world(seed, ranks, &mut rng).corrupt_head();
        let program = Program::draw_collectives(ranks, &mut rng);
        let run = world.run(|comm| program.run(comm));
        let failed = failures(&run).count();
        match run.corrupted() {
            [] => assert_eq!(failed, 0, "seed {seed}: {run:?} in {program:?}"),
            [byte, ..] => {
                assert!(failed > 0, "seed {seed}: {byte:?} is unnoticed: {program:?}");
                corrupted.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    if std::env::var_os("TEST_SEED").is_none() {
        assert!(corrupted.into_inner() > 20, "too few heads were corrupted to show anything");
    }
}

/// Numbers change, and nothing else: the checksums of the transport below are trusted.
#[test]
fn a_corrupted_body_changes_numbers_alone() {
    let changed = AtomicU64::new(0);
    for_seeds(300, |seed| {
        let mut rng = SeededRng::new(seed);
        let ranks = 2 + rng.below(5);
        let count = [1, 7, 500, 3000][rng.below(4)];
        let world = draw_world(seed, ranks, &mut rng).corrupt_body();
        let run = world.run(|mut comm| {
            let me = comm.rank() as u64;
            let mut sums = vec![me; count];
            let mut all = vec![0; count * ranks];
            comm.all_reduce(&mut sums, ReduceOp::Sum)?;
            comm.all_gather((&vec![me; count], &mut all))?;
            comm.barrier().map(|()| (sums, all))
        });
        let corrupted = !run.corrupted().is_empty();
        for (rank, outcome) in run.survivors() {
            let (_, all) = outcome.as_ref().unwrap_or_else(|it| panic!("seed {seed}: {it}"));
            let right = all
                .chunks(count)
                .enumerate()
                .all(|(from, part)| part.iter().all(|number| *number == from as u64));
            assert!(right || corrupted, "seed {seed}, rank {rank}");
            changed.fetch_add(u64::from(!right), Ordering::Relaxed);
        }
    });
    if std::env::var_os("TEST_SEED").is_none() {
        assert!(changed.into_inner() > 0, "no number changed, which shows nothing");
    }
}

/// A corrupted head of a message that no rank reads any more does no harm.
#[test]
fn a_corrupted_head_among_messages_and_collectives_gives_no_wrong_result() {
    for_seeds(800, |seed| {
        let (program, world, _) = draw(seed, 4);
        let run = world.corrupt_head().run(|comm| program.run(comm));
        let failed = failures(&run).next();
        assert!(
            failed.is_none() || !run.corrupted().is_empty(),
            "seed {seed}: nothing was corrupted, but {failed:?}"
        );
    });
}
