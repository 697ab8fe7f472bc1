//! Calls that do not match between real processes, panics and wrong arguments: every rank soon returns
//! an error, with the event, its place and its cause.

use crate::calls::{PAIRS, WAITING, make};
use crate::report::{SOON, report};
use crate::spawn::{World, say};
use maypole::{Communicator, Error, FailureKind, Local, ReduceOp};
use std::time::{Duration, Instant};

pub(crate) fn rank_process(role: &str) {
    let mut comm = Communicator::from_env().unwrap();
    if std::env::var("TEST_WARM").is_ok() {
        comm.all_reduce(&mut [1u64], ReduceOp::Sum).unwrap();
        comm.barrier().unwrap();
    }
    let since = Instant::now();
    // A rank that only sends may have ended its part. It learns of the failure in the barrier.
    let result = (0..3).try_for_each(|_| make(role, &mut comm)).and_then(|()| comm.barrier());
    match result {
        Ok(()) => say("error", "none"),
        Err(error) => report(comm, &error, since),
    }
}

/// Rank 1 makes another call than ranks 0 and 2.
fn mismatch(calls: (&str, &str), way: &str, warm: bool) {
    let mut world = World::new(calls.0, 3).set("MAYPOLE_TRANSPORT", way).set("MAYPOLE_TIMEOUT", 20);
    world = world.set_of(1, "TEST_ROLE", calls.1);
    if warm {
        world = world.set("TEST_WARM", 1);
    }
    let ranks = world.start().succeed();
    let first = ranks[0].only("error").split("; rank ").next().unwrap();
    for rank in &ranks {
        let error = rank.only("error");
        let case = format!("{calls:?} over {way}, warm {warm}: {error}");
        assert_eq!(rank.only("kind"), "mismatch", "{case}");
        assert!(error.starts_with("ranks do not match: rank "), "{case}");
        assert_eq!(error.split("; rank ").next(), Some(first), "{case}");
        let took = Duration::from_millis(rank.only("took").parse().unwrap());
        assert!(took < SOON, "{case}: {took:?}");
    }
}

#[test]
fn calls_that_do_not_match() {
    for (way, warm) in [("shm", true), ("tcp", true), ("shm", false), ("tcp", false)] {
        PAIRS.iter().for_each(|calls| mismatch(*calls, way, warm));
    }
}

#[test]
fn calls_that_wait_for_one_another() {
    for way in ["shm", "tcp"] {
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
    let texts = [0, 1].map(|rank| ranks[rank].only("error"));
    let golden = "ranks do not match: rank 0 calls all_reduce(100 x f32, sum) as operation 2, but \
                  rank 1 calls all_reduce(100 x f32, max); they differ in operation (sum, max)";
    assert_eq!(texts, [golden; 2]);
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
        assert!(matches!(error, Error::Aborted { .. }), "{told}");
        assert_eq!((error.kind(), error.culprit()), (Some(FailureKind::UserAbort), Some(1)));
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
