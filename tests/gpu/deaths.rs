//! Ranks that are processes, and one that is killed: the errors of the others name it.

use crate::spawn::{World, say};
use crate::{alone, hosts, stream};
use maypole::cuda::Comm;
use maypole::{Communicator, Error, ReduceOp};
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn rank_process(role: &str) {
    let mut comm = Communicator::from_env().unwrap();
    comm.set_timeout(Duration::from_secs(60));
    say("joined", "now");
    if role == "dies before the group is made" && comm.rank() == 1 {
        // It is killed while it waits for the others, which do not come.
        return drop(comm.recv(&mut [0u8], 0, 0));
    }
    tell_failure(&mut comm);
}

/// Calls until something fails, and says how.
pub(crate) fn tell_failure(comm: &mut Communicator) {
    let error = fail(comm);
    say("error", &error);
    say("culprit", error.culprit().map_or("none".to_owned(), |rank| rank.to_string()));
}

/// Makes a group on the GPU, and calls until that or a call fails.
fn fail(comm: &mut Communicator) -> Error {
    let stream = stream(comm.rank()).expect("the test has seen the GPU");
    let gpu = match Comm::new(comm, Arc::clone(&stream)) {
        Ok(gpu) => gpu,
        Err(error) => return error,
    };
    let mut data = stream.clone_htod(&vec![1.0f32; 50_000]).unwrap();
    for calls in 0u64.. {
        let called = gpu.all_reduce_in_place(&mut data, &ReduceOp::Max);
        if let Err(error) = called.and_then(|()| gpu.synchronize()) {
            return error;
        }
        if calls == 10 {
            say("calls", "now");
        }
    }
    unreachable!("calls go on until one fails")
}

/// Kills rank 1 once the ranks in `ready` have printed `tag`. The other two name it.
fn check(role: &str, tag: &str, ready: &[usize]) {
    let Some(_alone) = alone() else { return };
    let mut world = World::new(role, 3).hosts(&hosts(3)).start();
    world.wait_for(tag, ready);
    world.signal(1, "KILL");
    let ended = world.end();
    for rank in [0, 2] {
        let end = &ended[rank];
        assert_eq!(end.said("culprit"), ["1"], "rank {rank} says {:?}", end.lines);
        assert!(end.said("error")[0].contains("rank 1"), "{:?}", end.lines);
    }
}

#[test]
fn a_rank_that_is_killed_between_calls_or_in_one_is_named() {
    check("calls until a call fails", "calls", &[0, 1, 2]);
}

#[test]
fn a_rank_that_is_killed_before_the_group_is_made_is_named() {
    check("dies before the group is made", "joined", &[0, 1, 2]);
}
