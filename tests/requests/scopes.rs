//! Requests on slices of one flat buffer, groups that are used at the same time, and deadlines of
//! single calls.

use super::{LIMIT, is_aborted, mixtures, sum};
use crate::spawn::{World, over_shm_and_tcp};
use maypole::{Communicator, Error, Local, ReduceOp, Transport, wait_all};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// How long a failure may take, far below [`LIMIT`].
const SOON: Duration = Duration::from_secs(20);
/// Elements of the flat buffer.
const LEN: usize = 10_000;

fn flat(rank: usize) -> Vec<u64> {
    (0..LEN).map(|at| (at * (rank + 1)) as u64).collect()
}

fn sums(world: usize) -> Vec<u64> {
    (0..LEN).map(|at| (at * world * (world + 1) / 2) as u64).collect()
}

/// The closure of the scope waits for some buckets and not for others. All are done after the
/// scope.
fn buckets(mut comm: Communicator) {
    let mut data = flat(comm.rank());
    for round in 0..3 {
        data.copy_from_slice(&flat(comm.rank()));
        let waited = comm.scope(|scope| {
            let mut requests = Vec::new();
            for (at, bucket) in data.chunks_mut(3000).enumerate().rev() {
                let request = scope.start_all_reduce(bucket, ReduceOp::Sum);
                if at % 2 == round % 2 {
                    requests.push(request);
                }
            }
            wait_all(requests).unwrap().iter().map(|bucket| bucket.len()).sum::<usize>()
        });
        assert_eq!(data, sums(comm.world()));
        assert_eq!(waited, if round % 2 == 0 { 6000 } else { 4000 });
    }
    // Requests before, within and after the scope have one order.
    let before = comm.start_all_reduce(vec![1u64; 5000], ReduceOp::Sum);
    let (left, right) = data.split_at_mut(LEN / 2);
    let mut twice = [1u8, 2];
    comm.scope(|scope| {
        let copied = scope.start((&*left, &mut *right), |comm, (left, right)| {
            comm.all_reduce((left, right), ReduceOp::Max)
        });
        assert_eq!(
            scope.start(&mut twice[..], |comm, it| comm.broadcast(it, 0)).wait().unwrap()[1],
            2
        );
        // After the wait the slice is the caller's again.
        copied.wait().unwrap().1[0] += 1;
    });
    assert_eq!(left[1..], right[1..], "sums are equal on all ranks");
    assert_eq!(left[0] + 1, right[0]);
    let after = comm.start((), |comm, ()| comm.barrier());
    assert_eq!(before.wait().unwrap(), vec![comm.world() as u64; 5000]);
    after.wait().unwrap();
    comm.close().unwrap();
}

#[test]
fn slices_of_a_flat_buffer() {
    mixtures().iter().for_each(|local| drop(local.run(buckets)));
    over_shm_and_tcp("buckets", 2);
    World::new("buckets", 3).hosts(&[0, 1, 1]).start().succeed();
}

/// The body of rank 0's scope does not return before rank 1 has its result, although the request
/// needs rank 0.
#[test]
fn requests_go_on_while_the_scope_computes() {
    for local in mixtures() {
        local.run(|mut comm| {
            let mut other = comm.duplicate().unwrap();
            let mut data = flat(comm.rank());
            if comm.rank() == 0 {
                comm.scope(|scope| {
                    let _detached = scope.start_all_reduce(&mut data, ReduceOp::Sum);
                    other.barrier().unwrap();
                });
            } else {
                comm.all_reduce(&mut data, ReduceOp::Sum).unwrap();
                other.barrier().unwrap();
            }
            assert_eq!(data, sums(comm.world()));
        });
    }
}

#[test]
fn a_panic_goes_on_once_the_requests_are_over() {
    for local in mixtures() {
        local.run(|mut comm| {
            let mut data = flat(comm.rank());
            panic_in_scope(&mut comm, &mut data);
            assert_eq!(data, sums(comm.world()));
            comm.barrier().unwrap();
        });
    }
}

/// Starts a request on `data` in a scope, whose closure panics then.
fn panic_in_scope(comm: &mut Communicator, data: &mut [u64]) {
    let scope = AssertUnwindSafe(|| {
        comm.scope(|scope| {
            let _dropped = scope.start_all_reduce(data, ReduceOp::Sum);
            std::panic::panic_any("as planned");
        });
    });
    assert_eq!(catch_unwind(scope).unwrap_err().downcast_ref(), Some(&"as planned"));
}

/// The peer does not start the queued request, because it waits for another call. Neither rank
/// waits for its deadline.
#[test]
fn a_panic_fails_the_group_if_peers_do_not_start_the_requests() {
    crate::skip::takes_turns!(2);
    let since = Instant::now();
    Local::new(2).timeout(LIMIT).run(|mut comm| {
        let mut group = comm.duplicate().unwrap();
        if comm.rank() == 1 {
            let error = group.barrier().unwrap_err();
            is_aborted(&error, "rank 0 panicked");
            return;
        }
        let mut data = [1; 8];
        panic_in_scope(&mut comm, &mut data);
        assert!(matches!(comm.barrier(), Err(Error::Failed { .. })));
    });
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
}

#[test]
fn a_failure_within_a_scope_reaches_its_requests_and_later_calls() {
    Local::new(2).timeout(Duration::from_millis(50)).run(|mut comm| {
        if comm.rank() == 1 {
            return;
        }
        let mut data = flat(0);
        let errors: Vec<_> = comm.scope(|scope| {
            let requests: Vec<_> =
                data.chunks_mut(5000).map(|it| scope.start_all_reduce(it, ReduceOp::Sum)).collect();
            requests.into_iter().map(|request| request.wait().unwrap_err()).collect()
        });
        let first = &errors[0];
        assert!(matches!(first, Error::TimedOut { .. } | Error::PeerLost { .. }), "{first}");
        let later =
            matches!(&errors[1], Error::Failed { first: it, .. } if it.text == first.to_string());
        assert!(later, "{}", errors[1]);
        assert!(matches!(comm.barrier(), Err(Error::Failed { .. })));
    });
}

/// Two groups of a rank, used from two threads. Unread bytes of one do not hold the other up.
fn groups(mut comm: Communicator) {
    let rank = comm.rank();
    let world = comm.world();
    let mut half = comm.split(Some(rank as u64 % 2), 0).unwrap().unwrap();
    let mut twin = comm.duplicate().unwrap();
    let mut tcp = comm.over(Transport::Tcp).unwrap();
    assert_eq!((twin.rank(), twin.world(), twin.hosts()), (rank, world, comm.hosts()));
    std::thread::scope(|threads| {
        let members = half.world() as u64;
        threads.spawn(move || (0..50).for_each(|_| assert_eq!(sum(&mut half, 1, 3000), members)));
        (0..30).for_each(|round| assert_eq!(sum(&mut twin, round, 9000), round * world as u64));
    });
    for group in [&mut twin, &mut tcp] {
        // Rank 0 sends far more than a link holds before another rank reads it.
        let request = (rank == 0).then(|| group.start_broadcast(vec![7u64; 400_000], 0));
        (0..20).for_each(|_| assert_eq!(sum(&mut comm, 1, 2000), world as u64));
        match request {
            Some(request) => drop(request.wait().unwrap()),
            None => {
                let mut data = vec![0u64; 400_000];
                group.broadcast(&mut data, 0).unwrap();
                assert!(data.iter().all(|it| *it == 7));
            }
        }
    }
}

#[test]
fn groups_are_used_from_two_threads_at_once() {
    World::new("groups", 3).start().succeed();
    World::new("groups", 4).hosts(&[0, 0, 1, 1]).start().succeed();
}

#[test]
fn deadlines_nest_and_end_with_their_guards() {
    Local::new(2).timeout(LIMIT).run(|mut comm| {
        let mut outer = comm.within(Duration::from_secs(50));
        outer.within(Duration::from_secs(40)).barrier().unwrap();
        outer.barrier().unwrap();
        drop(outer);
        comm.set_timeout(Duration::from_secs(30));
        // A deadline may be further away than the clock can count.
        comm.within(Duration::MAX).barrier().unwrap();
        assert_eq!(comm.timeout(), Duration::from_secs(30));
    });
}

/// After the guard is gone, a peer may come later than its deadline was.
#[test]
fn a_deadline_ends_with_its_guard() {
    crate::skip::takes_turns!(2);
    for hosts in [[0, 0], [0, 1]] {
        Local::new(2).hosts(&hosts).timeout(LIMIT).run(|mut comm| {
            comm.barrier().unwrap();
            let given = Duration::from_millis(1500);
            let deadline = Instant::now() + given;
            comm.within(given).barrier().unwrap();
            if comm.rank() == 1 {
                // Only lateness itself is tested, so nothing else can wake this rank.
                while Instant::now() < deadline + Duration::from_millis(100) {
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
            comm.barrier().unwrap();
            let mut data = [comm.rank() as u64];
            comm.all_reduce(&mut data, ReduceOp::Sum).unwrap();
            assert_eq!(data, [1]);
        });
    }
}

pub(crate) fn rank_process(role: &str) {
    let comm = Communicator::from_env().unwrap();
    if role == "groups" { groups(comm) } else { buckets(comm) }
}
