//! The panic of a run that hangs, and deadlines, which pass on the simulated clock and take no real
//! time.

use maypole::{Communicator, Error, ReduceOp};
use maypole_testing::SimulatedWorld;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

fn text(panic: Box<dyn std::any::Any + Send>) -> String {
    *panic.downcast::<String>().expect("a panic with a formatted message")
}

#[test]
fn a_run_that_takes_too_many_turns_ends_with_a_picture() {
    let world = SimulatedWorld::new(11).ranks(3).most_turns(2000);
    let run = || world.run(|mut comm| while comm.barrier().is_ok() {});
    let picture = text(catch_unwind(AssertUnwindSafe(run)).unwrap_err());
    assert!(picture.starts_with("the simulated world of seed 11 hangs at turn 2000"), "{picture}");
    for rank in 0..3 {
        assert!(picture.contains(&format!("of rank {rank}, ")), "{picture}");
    }
}

#[test]
fn five_minutes_of_waiting_take_no_time() {
    let start = Instant::now();
    let run = SimulatedWorld::new(3).ranks(3).run(|mut comm| match comm.rank() {
        // Rank 0 begins only after the others have aborted.
        0 => {
            while comm.recv(&mut [0u8], 1, 9).is_ok() {}
            None
        }
        _ => comm.all_reduce(&mut [1u64], ReduceOp::Sum).err(),
    });
    assert!(run.elapsed() >= Duration::from_secs(300), "{:?}", run.elapsed());
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    let errors = run.into_values();
    let timed_out = |error: &Option<Error>| {
        matches!(error, Some(Error::TimedOut { .. } | Error::Aborted { .. }))
    };
    assert!(errors[1..].iter().all(timed_out), "{errors:?}");
}

#[test]
fn the_deadline_of_one_call_passes_by_the_simulated_clock() {
    let run = SimulatedWorld::new(4).run(|mut comm: Communicator| {
        if comm.rank() == 1 {
            return None;
        }
        comm.within(Duration::from_secs(7)).recv(&mut [0u8], 1, 0).err()
    });
    assert!(run.elapsed() < Duration::from_secs(300), "{:?}", run.elapsed());
    assert!(run.into_values()[0].is_some());
}

#[test]
fn a_panic_of_a_rank_is_the_panic_of_the_run() {
    let world = SimulatedWorld::new(5).ranks(3);
    let run = || {
        world.run(|mut comm| {
            assert!(comm.rank() != 1, "rank one is not well");
            let _ = comm.barrier();
        })
    };
    let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"rank one is not well"));
}

#[test]
fn a_rank_is_dropped_where_the_test_says() {
    for step in [0, 1, 5, 30] {
        let world = SimulatedWorld::new(6).ranks(3).drop_peer_at(2, step);
        let run = world.run(|mut comm| {
            let mut x = vec![1u32; 3000];
            (0..4).try_for_each(|_| comm.all_reduce(&mut x, ReduceOp::Max))
        });
        assert_eq!(run.dropped().collect::<Vec<_>>(), [2], "after step {step}");
        assert_eq!(run.survivors().count(), 2);
        for (rank, outcome) in run.survivors() {
            let error = outcome.as_ref().expect_err("rank 2 was needed");
            assert_eq!(error.culprit(), Some(2), "rank {rank}, step {step}: {error}");
        }
    }
}
