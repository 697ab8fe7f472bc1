//! Deaths at random moments: all survivors name the rank that is to blame, and no other one.
//!
//! `MAYPOLE_TEST_ROUNDS` sets how many worlds each test of random moments makes.

use crate::report::{die_if_told, random, rounds};
use crate::spawn::{Ended, World, say};
use maypole::{Communicator, Error, ReduceOp};
use std::time::{Duration, Instant};

/// Worlds that a test of random moments makes.
const ROUNDS: u64 = 4;
/// How long a world of a few processes may take to join, fail and end on a busy machine.
const ROUND_LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn rank_process(role: &str) {
    let mut comm = match Communicator::from_env() {
        Ok(comm) => comm,
        Err(error) => return say("error", error),
    };
    say("joined", "now");
    die_if_told();
    let error = fail(&mut comm);
    say("error", &error);
    say("culprit", error.culprit().map_or("none".to_owned(), |rank| rank.to_string()));
    if role == "exit at once" && comm.rank() == 0 {
        std::process::exit(0);
    }
    comm.close().unwrap();
}

/// Calls until a call fails.
fn fail(comm: &mut Communicator) -> Error {
    loop {
        let mut sum = [1u64; 100];
        let done = comm.all_reduce(&mut sum, ReduceOp::Sum).and_then(|()| comm.barrier());
        if let Err(error) = done {
            return error;
        }
    }
}

/// The culprit that `rank` reported, and its error.
#[track_caller]
fn told(ended: &[Ended], rank: usize) -> (&str, &str) {
    let errors = ended[rank].said("error");
    let [error] = errors[..] else { panic!("rank {rank} said no error: {ended:#?}") };
    (ended[rank].said("culprit").first().copied().unwrap_or("none"), error)
}

/// Asserts that all ranks but `victim` name its death.
#[track_caller]
fn all_name(ended: &[Ended], victim: usize, ranks: usize) {
    for rank in (0..ranks).filter(|rank| *rank != victim) {
        let (culprit, error) = told(ended, rank);
        let joining = format!("went away while rank {rank} was joining");
        let named = error.contains(&format!("rank {victim} died"))
            || error.contains(&format!("lost rank {victim} in"))
            || (victim == 0 && error.contains(&joining));
        assert!(named, "rank {victim} died, but rank {rank} says: {error}\n{ended:#?}");
        // A rank that fails while it joins reports no culprit.
        let joined = ended[rank].said("joined").len() == 1;
        assert!(!joined || culprit == victim.to_string(), "rank {rank}: {culprit}, {error}");
    }
}

#[test]
fn a_death_while_ranks_connect_is_named_by_all_survivors() {
    for round in 0..rounds(ROUNDS) {
        let victim = if round % 2 == 0 { 0 } else { random(6) as usize };
        let begun = Instant::now();
        let world = World::new("connect", 6)
            .set("MAYPOLE_TRANSPORT", if round % 5 == 4 { "tcp" } else { "shm" })
            .set_of(victim, "TEST_DEATH", random(6000));
        let ended = world.start().end();
        assert_eq!(ended[victim].code, None, "the victim was killed");
        all_name(&ended, victim, 6);
        assert!(begun.elapsed() < ROUND_LIMIT, "{:?}", begun.elapsed());
    }
}

#[test]
fn the_end_of_a_rank_that_has_failed_is_no_cause() {
    for round in 0..rounds(ROUNDS) {
        let victim = 1 + random(3) as usize;
        let world = World::new("exit at once", 4)
            .set("MAYPOLE_TRANSPORT", if round % 2 == 0 { "shm" } else { "tcp" })
            .set_of(victim, "TEST_DEATH", 20_000 + random(20_000));
        let ended = world.start().end();
        all_name(&ended, victim, 4);
    }
}
