//! A rank drops communicators, in the middle of its work or while requests are in flight.

use super::{LIMIT, start_sum};
use crate::spawn::over_shm_and_tcp;
use maypole::{Communicator, Error, Local, ReduceOp};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A limit far below the deadlines of the calls.
const SOON: Duration = Duration::from_secs(20);

pub(crate) fn rank_process(role: &str) {
    let comm = Communicator::from_env().unwrap();
    match role {
        "gives-up-first-group" => gives_up(comm, true),
        "gives-up-second-group" => gives_up(comm, false),
        "leaves-a-group" => leaves_a_group(comm, true, |group| group.barrier()),
        "leaves-a-fresh-group" => leaves_a_group(comm, false, |group| group.barrier()),
        "leaves-before-a-message" => {
            leaves_a_group(comm, true, |group| group.recv(&mut [0u8], 0, 0))
        }
        "detaches" => detaches(comm),
        _ => panic!("{role}"),
    }
}

/// Asserts that `error` came soon after `since`, and that rank 0 is its culprit.
fn names_rank_0(since: Instant, error: &Error) {
    assert!(since.elapsed() < SOON, "{:?}: {error}", since.elapsed());
    assert!(matches!(error, Error::PeerLost { peer: 0, .. } | Error::Aborted { .. }), "{error}");
    assert_eq!(error.culprit(), Some(0), "{error}");
    assert!(error.to_string().contains("left"), "{error}");
}

/// Rank 0 returns early, as a program does on an error, while its request in one group waits for the
/// others. They wait for rank 0 in another group. Rank 0 drops the group `first` first.
fn gives_up(mut world: Communicator, first: bool) {
    let mut groups = [world.duplicate().unwrap(), world.duplicate().unwrap()];
    for group in &mut groups {
        start_sum(group, 1, 1000).wait().unwrap();
    }
    let since = Instant::now();
    let [mut requested, mut called] = groups;
    if world.rank() == 0 {
        let _detached = start_sum(&mut requested, 1, 1000);
        match first {
            true => drop((requested, called)),
            false => drop((called, requested)),
        }
        drop(world);
        assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
        return;
    }
    names_rank_0(since, &called.barrier().unwrap_err());
}

#[test]
fn a_rank_that_gives_up_with_requests_in_flight_does_not_hold_other_ranks_up() {
    for first in [true, false] {
        Local::new(3).timeout(LIMIT).run(|world| gives_up(world, first));
        let streams = Local::new(3).hosts(&[0, 1, 2]).timeout(LIMIT);
        streams.run(|world| gives_up(world, first));
    }
}

#[test]
fn a_process_that_gives_up_with_requests_in_flight_does_not_hold_other_processes_up() {
    for role in ["gives-up-first-group", "gives-up-second-group"] {
        over_shm_and_tcp(role, 3);
    }
}

/// Rank 0 drops a group that the others still use, and stays in the world.
fn leaves_a_group(
    mut world: Communicator,
    used: bool,
    call: impl FnOnce(&mut Communicator) -> maypole::Result<()>,
) {
    let mut group = world.duplicate().unwrap();
    if used {
        group.barrier().unwrap();
    }
    let since = Instant::now();
    if world.rank() == 0 {
        drop(group);
        // Waits for the others, so that rank 0 does not leave the world.
        let error = world.barrier().unwrap_err();
        assert!(matches!(error, Error::Aborted { .. }), "{error}");
        assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
        return;
    }
    names_rank_0(since, &call(&mut group).unwrap_err());
    assert!(world.barrier().is_err());
}

#[test]
fn a_process_that_leaves_a_group_and_stays_in_the_world_is_told_of() {
    for role in ["leaves-a-group", "leaves-a-fresh-group", "leaves-before-a-message"] {
        over_shm_and_tcp(role, 3);
    }
}

/// Dropping a communicator does not lose its requests: the last communicator of the rank waits for
/// them.
#[test]
fn requests_of_a_dropped_communicator_complete() {
    let (dropped, is_dropped) = channel();
    let is_dropped = Mutex::new(is_dropped);
    Local::new(2).timeout(LIMIT).run(|mut world| {
        let mut group = world.duplicate().unwrap();
        if world.rank() == 0 {
            let request = start_sum(&mut group, 1, 1000);
            drop(group);
            dropped.send(()).unwrap();
            drop(world);
            // Its rank has left the world, so it has ended.
            assert_eq!(request.wait().unwrap(), [3; 1000]);
        } else {
            is_dropped.lock().unwrap().recv_timeout(LIMIT).unwrap();
            assert_eq!(start_sum(&mut group, 2, 1000).wait().unwrap(), [3; 1000]);
        }
    });
}

/// Rank 0 ends its program while its request waits for rank 1, which may be late.
fn detaches(mut world: Communicator) {
    let mut group = world.duplicate().unwrap();
    if world.rank() == 0 {
        let _detached = start_sum(&mut group, 1, 100_000);
        return;
    }
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(start_sum(&mut group, 2, 100_000).wait().unwrap(), [3; 100_000]);
}

#[test]
fn requests_of_a_process_that_returns_complete() {
    over_shm_and_tcp("detaches", 2);
}

/// Ranks 1 and 3 wait for room that ranks 0 and 2 would have to make, and each is the only reader of
/// the other one's next publication. Where that happens depends on which slots come next. The
/// thread that leaves the group afterwards waits for the one that runs the request, which must not
/// wait for it.
#[test]
fn a_request_may_drop_its_communicator_whichever_thread_runs_it() {
    for _ in 0..20 {
        Local::new(2).timeout(LIMIT).run(|comm| {
            let shared = Arc::new(Mutex::new(Some(comm)));
            let owner = Arc::clone(&shared);
            let sum = move |comm: &mut Communicator, data: &mut Vec<u32>| {
                let own = owner.lock().unwrap().take();
                comm.all_reduce(&mut *data, ReduceOp::Sum)?;
                drop(own);
                Ok(())
            };
            let request = shared.lock().unwrap().as_mut().unwrap().start(vec![1; 10], sum);
            assert_eq!(request.wait().unwrap(), [2; 10]);
        });
    }
}

#[test]
fn readers_that_have_left_are_found_by_writers_for_other_readers() {
    for (rounds, len) in (1..24).flat_map(|rounds| [(rounds, 8), (rounds, 200), (rounds, 900)]) {
        Local::new(4).timeout(LIMIT).run(|mut comm| {
            comm.set_deterministic(true);
            let mut all = vec![1.0f32; 4 * len];
            let mut own = vec![0.0f32; len];
            let counts = [len; 4];
            for _ in 0..rounds {
                comm.reduce_scatter((&all, &counts, &mut own), ReduceOp::Sum).unwrap();
                comm.all_gather((&own, &mut all, &counts)).unwrap();
            }
            if comm.rank() % 2 == 0 {
                return;
            }
            let since = Instant::now();
            comm.reduce_scatter((&all, &counts, &mut own), ReduceOp::Sum).unwrap_err();
            assert!(since.elapsed() < SOON, "{rounds} of {len}: {:?}", since.elapsed());
        });
    }
}
