//! Deaths and stopped processes, at bad moments: all survivors name the rank that is to blame, and
//! no other one.
//!
//! `MAYPOLE_TEST_ROUNDS` sets how many worlds each test of random moments makes.

use crate::spawn::{Ended, Running, World, say};
use maypole::{Communicator, Error, ReduceOp};
use std::time::{Duration, Instant};

/// Worlds that a test of random moments makes.
const ROUNDS: usize = 10;
/// How long a world of a few processes may take to join, fail and end on a busy machine.
const ROUND_LIMIT: Duration = Duration::from_secs(60);

fn rounds() -> usize {
    let asked = std::env::var("MAYPOLE_TEST_ROUNDS").ok();
    asked.map_or(ROUNDS, |rounds| rounds.parse().expect("a number of rounds"))
}

/// A random number below `end`, and different in every run.
fn random(end: u64) -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish() % end
}

/// A rank process of a test of this file.
pub(crate) fn rank_process(role: &str) {
    let mut comm = match Communicator::from_env() {
        Ok(comm) => comm,
        Err(error) => return say("error", error),
    };
    say("joined", "now");
    if let Ok(delay) = std::env::var("TEST_DEATH") {
        let delay = Duration::from_micros(delay.parse().unwrap());
        std::thread::spawn(move || {
            std::thread::sleep(delay);
            std::process::abort();
        });
    }
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
    let mut calls = 0u64;
    loop {
        let mut sum = [1u64; 100];
        let done = comm.all_reduce(&mut sum, ReduceOp::Sum).and_then(|()| comm.barrier());
        if let Err(error) = done {
            return error;
        }
        calls += 1;
        if calls == 1 {
            say("ready", "now");
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
    for round in 0..rounds() {
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
    for round in 0..rounds() {
        let victim = 1 + random(3) as usize;
        let world = World::new("exit at once", 4)
            .set("MAYPOLE_TRANSPORT", if round % 2 == 0 { "shm" } else { "tcp" })
            .set_of(victim, "TEST_DEATH", 20_000 + random(20_000));
        let ended = world.start().end();
        all_name(&ended, victim, 4);
    }
}

/// Stops `victims` of four ranks while all are in calls, and returns what the others report. The
/// stopped ranks are killed after that.
fn stop(victims: &[usize], way: &str) -> Vec<(usize, String, String)> {
    let mut running: Running =
        World::new("stop", 4).set("MAYPOLE_TRANSPORT", way).set("MAYPOLE_TIMEOUT", 3).start();
    running.wait_for("ready", &[0, 1, 2, 3]);
    victims.iter().for_each(|victim| running.signal(*victim, "STOP"));
    let others: Vec<usize> = (0..4).filter(|rank| !victims.contains(rank)).collect();
    running.wait_for("culprit", &others);
    victims.iter().for_each(|victim| running.signal(*victim, "KILL"));
    let ended = running.end();
    let said = |rank: usize| {
        let (culprit, error) = told(&ended, rank);
        (rank, culprit.to_owned(), error.to_owned())
    };
    others.into_iter().map(said).collect()
}

#[test]
fn a_stopped_rank_is_named_and_no_other() {
    for way in ["shm", "tcp"] {
        for victim in [0, 2] {
            for (rank, culprit, error) in stop(&[victim], way) {
                let text = format!("rank {victim} does not answer: its process is stopped");
                assert_eq!(culprit, victim.to_string(), "{way}, rank {rank}: {error}");
                assert!(error.contains(&text), "{way}, rank {rank}: {error}");
                assert!(error.contains("whom it awaits is not known"), "{error}");
            }
        }
    }
}

#[test]
fn two_stopped_ranks_are_named_and_no_other() {
    for way in ["shm", "tcp"] {
        for (rank, culprit, error) in stop(&[0, 2], way) {
            assert!(["0", "2"].contains(&&*culprit), "{way}, rank {rank}: {culprit}, {error}");
            let text = format!("rank {culprit} does not answer: its process is stopped");
            assert!(error.contains(&text), "{way}, rank {rank}: {error}");
        }
    }
}
