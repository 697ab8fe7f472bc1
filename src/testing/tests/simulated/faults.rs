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

/// Every call has the right result, however slow the links are, unless a rank has died, which all errors
/// name, or the head of a message was corrupted.
#[test]
fn an_error_names_a_rank_that_died_or_there_was_a_corrupted_head() {
    let [dropped, failed] = [(); 2].map(|()| AtomicU64::new(0));
    for_seeds(800, |seed| {
        let (program, world, mut rng) = draw(seed, 0);
        let first = rng.below(program.world);
        let second = (first + 1 + rng.below(program.world - 1)) % program.world;
        // As many ranks die, or a head is corrupted.
        let world = match [0, 0, 1, 1, 1, 1, 2, 3, 3, 3, 3][seed as usize % 11] {
            0 => world,
            1 => world.drop_peer(first),
            2 => world.drop_peer(first).drop_peer(second),
            _ => world.corrupt_head(),
        };
        let run = world.run(|comm| program.run(comm));
        let died: Vec<usize> = run.dropped().collect();
        dropped.fetch_add(u64::from(!died.is_empty()), Ordering::Relaxed);
        for (rank, failure) in failures(&run).filter(|_| run.corrupted().is_empty()) {
            assert!(
                died.iter().any(|victim| names(failure, *victim)),
                "seed {seed}, rank {rank}: {died:?} died, but {failure:?} in {program:?}"
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

/// Numbers change, as the checksums of the transport below are trusted, or the ranks notice that what they say of
/// their calls differs.
#[test]
fn a_corrupted_body_changes_numbers_or_is_an_error() {
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
        for (rank, outcome) in run.survivors() {
            let right = outcome.as_ref().is_ok_and(|(_, all)| {
                let mut parts = all.chunks(count).enumerate();
                parts.all(|(from, part)| part.iter().all(|number| *number == from as u64))
            });
            assert!(right || !run.corrupted().is_empty(), "seed {seed}, rank {rank}: {outcome:?}");
            changed.fetch_add(u64::from(!right && outcome.is_ok()), Ordering::Relaxed);
        }
    });
    if std::env::var_os("TEST_SEED").is_none() {
        assert!(changed.into_inner() > 0, "no number changed, which shows nothing");
    }
}
