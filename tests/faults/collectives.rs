//! Calls that do not match between real processes, ranks that do not join, panics and wrong
//! arguments: every rank soon gets an error, which names the failure, its place and its reason.

use crate::calls::{Call, PAIRS, WAITING};
use crate::report::{SOON, report};
use crate::spawn::{Ended, World, say};
use maypole::{Communicator, Error, Local, ReduceOp};
use std::time::{Duration, Instant};

/// The transports that processes of one host have.
const WAYS: [&str; 2] = ["shm", "tcp"];

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
            comm.all_reduce((&[0u8; 4], &mut [0; 3]), ReduceOp::Sum),
            comm.all_gather(&mut [0u8; 5]),
            comm.reduce_scatter((&[0u8; 4], &mut [0; 4]), ReduceOp::Sum),
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
