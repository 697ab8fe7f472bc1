//! Failures between real processes. Every rank soon gets an error, which says what happened, where
//! and why.

use super::calls::{Call, PAIRS, WAITING};
use crate::spawn::{Ended, World, say};
use maypole::{Communicator, Error, Local, ReduceOp};
use std::time::{Duration, Instant};

/// How long a failed call, the calls after it and leaving may take on a busy machine.
const SOON: Duration = Duration::from_secs(10);
/// The transports that processes of one host have.
const WAYS: [&str; 2] = ["shm", "tcp"];

fn kind(error: &Error) -> &'static str {
    match error {
        Error::Mismatch { .. } => "mismatch",
        Error::TimedOut { .. } => "timed out",
        Error::PeerLost { .. } => "lost",
        Error::Aborted { .. } => "aborted",
        Error::Connect { .. } => "connect",
        _ => "other",
    }
}

/// Reports how a rank failed. Asserts that later calls fail, too, and that it leaves in time.
fn report(mut comm: Communicator, error: &Error, since: Instant) {
    say("took", since.elapsed().as_millis());
    say("kind", kind(error));
    say("error", error);
    assert_eq!((error.rank(), error.operation().is_some()), (Some(comm.rank()), true), "{error}");
    let matched = !matches!(error, Error::Mismatch { .. });
    assert_eq!(
        error.is_retryable(),
        matched,
        "a death or a deadline may pass, a mismatch will not: {error}"
    );
    say("culprit", error.culprit().map_or("none".to_owned(), |rank| rank.to_string()));
    let since = Instant::now();
    for later in [
        comm.barrier(),
        comm.all_reduce(&mut [1.0f32], ReduceOp::Sum),
        comm.split(None, 0).map(drop),
    ] {
        assert!(
            matches!(&later, Err(Error::Failed { first, .. }) if *first == error.to_string()),
            "{later:?}"
        );
    }
    assert!(since.elapsed() < Duration::from_secs(2), "later calls fail at once");
    comm.close().unwrap();
    assert!(since.elapsed() < SOON, "leaving took {:?}", since.elapsed());
}

/// A rank process of a test of this file.
pub(crate) fn rank_process(role: &str) {
    let joined = Communicator::from_env();
    let mut comm = match joined {
        Ok(comm) => comm,
        Err(error) => return say("error", error),
    };
    if std::env::var("TEST_WARM").is_ok() {
        comm.all_reduce(&mut [1u64], ReduceOp::Sum).unwrap();
        comm.barrier().unwrap();
    }
    let since = Instant::now();
    let result = match role {
        "join" => Ok(()),
        "endless" => for_ever(&mut comm, |comm| Call::Large.make(comm)),
        "endless broadcast" => for_ever(&mut comm, |comm| comm.broadcast(&mut [7u8; 5000], 0)),
        "quit" => return comm.close().unwrap(),
        // A rank that only sends may have ended its part. It learns of the failure in the barrier.
        call => {
            (0..3).try_for_each(|_| Call::named(call).make(&mut comm)).and_then(|()| comm.barrier())
        }
    };
    match result {
        Ok(()) => say("error", "none"),
        Err(error) => report(comm, &error, since),
    }
}

/// Repeats `call` until it fails, and says when it has worked.
fn for_ever(
    comm: &mut Communicator,
    call: impl Fn(&mut Communicator) -> maypole::Result<()>,
) -> maypole::Result<()> {
    call(comm)?;
    say("ready", "now");
    loop {
        call(comm)?;
    }
}

/// The text that `rank` reported with this tag, which must be the only one.
#[track_caller]
fn said<'a>(ranks: &'a [Ended], rank: usize, tag: &str) -> &'a str {
    match ranks[rank].said(tag)[..] {
        [it] => it,
        _ => panic!("rank {rank} did not say {tag} once: {ranks:#?}"),
    }
}

#[track_caller]
fn took(ranks: &[Ended], rank: usize) -> Duration {
    Duration::from_millis(said(ranks, rank, "took").parse().unwrap())
}

/// Rank 1 makes another call than ranks 0 and 2.
fn mismatch(calls: (&str, &str), way: &str, warm: bool) {
    let mut world = World::new(calls.0, 3).set("MAYPOLE_TRANSPORT", way).set("MAYPOLE_TIMEOUT", 20);
    world = world.set_of(1, "TEST_ROLE", calls.1);
    if warm {
        world = world.set("TEST_WARM", 1);
    }
    let ranks = world.start().succeed();
    let cause = |rank| said(&ranks, rank, "error").split("; rank ").next().unwrap();
    for rank in 0..3 {
        let kind = said(&ranks, rank, "kind");
        let case = format!("{calls:?} over {way}, warm {warm}: {}", said(&ranks, rank, "error"));
        assert_eq!(kind, "mismatch", "{case}");
        assert!(cause(rank).starts_with("ranks do not match: rank "), "{case}");
        assert_eq!(cause(rank), cause(0), "{case}");
        assert!(took(&ranks, rank) < SOON, "{case}: {:?}", took(&ranks, rank));
    }
}

#[test]
fn calls_that_do_not_match_over_shared_memory() {
    PAIRS.iter().for_each(|calls| mismatch(*calls, "shm", true));
}

#[test]
fn calls_that_do_not_match_over_tcp() {
    PAIRS.iter().for_each(|calls| mismatch(*calls, "tcp", true));
}

#[test]
fn first_calls_that_do_not_match() {
    for way in WAYS {
        PAIRS.iter().for_each(|calls| mismatch(*calls, way, false));
    }
}

#[test]
fn calls_that_wait_for_one_another() {
    for way in WAYS {
        WAITING.iter().for_each(|calls| mismatch(*calls, way, false));
    }
}

#[test]
fn the_text_of_a_mismatch() {
    let world = World::new("sum", 2)
        .set_of(1, "TEST_ROLE", "max")
        .set("MAYPOLE_TRANSPORT", "shm")
        .set("TEST_WARM", 1);
    let ranks = world.start().succeed();
    let texts = [0, 1].map(|rank| said(&ranks, rank, "error"));
    let golden = "ranks do not match: rank 0 calls all_reduce(100 x f32, sum) as operation 2, but \
                  rank 1 calls all_reduce(100 x f32, max); they differ in operation (sum, max)";
    assert_eq!(texts, [golden; 2]);
}

/// Kills `victim` while all ranks are in long operations.
fn kill(world: World, ranks: usize, victim: usize) {
    let mut running = world.start();
    running.wait_for("ready", &(0..ranks).collect::<Vec<_>>());
    running.signal(victim, "KILL");
    let killed = Instant::now();
    let ended = running.end();
    assert!(killed.elapsed() < 2 * SOON, "{:?}", killed.elapsed());
    for rank in (0..ranks).filter(|rank| *rank != victim) {
        assert_eq!(ended[rank].code, Some(0), "{ended:#?}");
        let kind = said(&ended, rank, "kind");
        let error = said(&ended, rank, "error");
        let named = error.contains(&format!("lost rank {victim} in "))
            || error.contains(&format!("rank {victim} died"));
        assert!(matches!(kind, "lost" | "aborted") && named, "rank {rank}: {error}\n{ended:#?}");
    }
}

#[test]
fn a_process_is_killed() {
    for way in WAYS {
        for victim in [0, 1, 2] {
            kill(World::new("endless", 3).set("MAYPOLE_TRANSPORT", way), 3, victim);
        }
    }
    kill(World::new("endless", 4).hosts(&[0, 0, 1, 1]), 4, 2);
}

#[test]
fn a_process_is_stopped() {
    for way in WAYS {
        let mut running = World::new("endless", 3)
            .set("MAYPOLE_TRANSPORT", way)
            .set("MAYPOLE_TIMEOUT", 5)
            .start();
        running.wait_for("ready", &[0, 1, 2]);
        running.signal(1, "STOP");
        running.wait_for("error", &[0, 2]);
        // The stopped rank gets an error, too; its words are not checked.
        running.signal(1, "CONT");
        let ranks = running.end();
        for rank in [0, 2] {
            let kind = said(&ranks, rank, "kind");
            let error = said(&ranks, rank, "error");
            assert!(matches!(kind, "timed out" | "aborted"), "{error}");
            let blamed = error
                .contains("rank 1 does not answer: its process is stopped, or has no processor");
            assert!(blamed, "over {way}, rank {rank}: {error}");
            assert_eq!(said(&ranks, rank, "culprit"), "1", "over {way}, rank {rank}: {error}");
            assert!(error.contains("waited 5 s for rank "), "{error}");
        }
    }
}

#[test]
fn a_rank_leaves_while_others_go_on() {
    for way in WAYS {
        for (role, warm) in [("sum", true), ("sum", false), ("endless broadcast", true)] {
            let mut world =
                World::new(role, 3).set("MAYPOLE_TRANSPORT", way).set("MAYPOLE_TIMEOUT", 30);
            world = world.set_of(1, "TEST_ROLE", "quit");
            let ranks = if warm { world.set("TEST_WARM", 1) } else { world }.start().succeed();
            for rank in [0, 2] {
                let kind = said(&ranks, rank, "kind");
                let error = said(&ranks, rank, "error");
                let named = error.contains("lost rank 1 in ") || error.contains("rank 1 has left");
                assert!(
                    matches!(kind, "lost" | "aborted" | "connect") && named,
                    "{role} over {way}: {error}"
                );
                assert!(took(&ranks, rank) < SOON, "{role} over {way}: {:?}", took(&ranks, rank));
            }
        }
    }
}

#[test]
fn a_rank_never_joins() {
    let ranks =
        World::new("join", 3).processes(&[&[0], &[1]]).set("MAYPOLE_TIMEOUT", 2).start().succeed();
    for rank in [0, 1] {
        assert_eq!(said(&ranks, rank, "error"), "after 2 s these ranks have not joined: 2");
    }
}

#[test]
fn a_rank_has_another_key() {
    let world = World::new("join", 2)
        .set_of(1, "MAYPOLE_JOB_KEY", "5a".repeat(32))
        .set("MAYPOLE_TIMEOUT", 4);
    let ranks = world.set("MAYPOLE_JOB", "one job").start().succeed();
    let error = said(&ranks, 1, "error");
    assert!(error.starts_with("rank 1 was refused at 127.0.0.1:"), "{error}");
    let reason =
        "because its job key differs from rank 0's (job 'one job'): give all ranks the same key";
    assert!(error.ends_with(reason), "{error}");
    let error = said(&ranks, 0, "error");
    assert!(error.starts_with("after 4 s these ranks have not joined: 1"), "{error}");
}

#[test]
fn a_thread_panics() {
    let since = Instant::now();
    let errors = Local::new(3).run(|mut comm| {
        if comm.rank() == 1 {
            let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                let _kept = &mut comm;
                std::panic::resume_unwind(Box::new("as planned"));
            }));
            assert!(panic.is_err());
            return None;
        }
        let error =
            if comm.rank() == 0 { comm.barrier() } else { comm.split(Some(0), 0).map(drop) }
                .unwrap_err();
        Some((comm.rank(), error))
    });
    for (rank, error) in errors.into_iter().flatten() {
        let told = error.to_string();
        assert!(
            matches!(error, Error::Aborted { culprit: Some(1), retryable: false, .. }),
            "{told}"
        );
        assert!(told.contains("because rank 1 panicked outside a call"), "rank {rank}: {told}");
    }
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
}

#[test]
fn wrong_arguments_do_no_harm() {
    use maypole::algorithms::Algorithm;
    Local::new(2).timeout(Duration::from_secs(60)).run(|mut comm| {
        let rank = comm.rank();
        let bad = [
            comm.broadcast(&mut [0u8; 4], 2),
            comm.all_reduce_into(&[0u8; 4], &mut [0; 3], ReduceOp::Sum),
            comm.all_gather_in_place(&mut [0u8; 5]),
            comm.reduce_scatter(&[0u8; 4], &mut [0; 4], ReduceOp::Sum),
        ];
        for error in bad.map(Result::unwrap_err) {
            assert!(
                matches!(&error, Error::Invalid { rank: who, .. } if *who == rank)
                    && error.is_harmless(),
                "{error}"
            );
        }
        comm.set_algorithm(Some(Algorithm::Pairwise));
        let error = comm.barrier().unwrap_err();
        assert!(matches!(
            error,
            Error::Unsupported { algorithm: Algorithm::Pairwise, operation: "barrier" }
        ));
        comm.set_algorithm(None);
        let error = comm.broadcast(&mut [0u8; 4], 2).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("rank {rank}: broadcast: root 2 is not one of the 2 ranks")
        );
        let mut data = [rank as u32 + 1];
        comm.all_reduce(&mut data, ReduceOp::Sum).unwrap();
        assert_eq!(data, [3]);
    });
}
