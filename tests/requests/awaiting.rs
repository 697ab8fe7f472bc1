//! Requests as futures, and calls that are prepared.

use super::{LIMIT, mixtures, start_sum};
use maypole::{Communicator, Error, Local, ReduceOp, wait_any};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

fn block_on<T>(task: impl Future<Output = T>) -> (T, usize, usize) {
    crate::common::tasks::block_on(task, LIMIT)
}

#[test]
fn tasks_await_requests_and_messages_together() {
    for local in mixtures() {
        local.run(|mut comm| {
            let (rank, world) = (comm.rank(), comm.world());
            let mut sums: Vec<_> =
                (0..5).map(|nth| start_sum(&mut comm, nth, 1 + 3000 * nth as usize)).collect();
            let come = comm.start_recv(vec![0u64; 3], (rank + world - 1) % world, 1);
            let sent = comm.start_send(vec![rank as u64; 3], (rank + 1) % world, 1);
            let (came, ..) = block_on(async {
                let came = come.await.unwrap();
                sent.await.unwrap();
                came
            });
            assert_eq!(came, [((rank + world - 1) % world) as u64; 3]);
            for nth in 0..5 {
                let (at, sum) = wait_any(&mut sums).unwrap();
                assert_eq!((at, sum.unwrap()), (0, vec![(nth * world) as u64; 1 + 3000 * nth]));
            }
            assert!(wait_any(&mut sums).is_none());
            // The communicator continues, also where a task is dropped while it awaits.
            let mut dropped = start_sum(&mut comm, 1, 100_000);
            let _ = Pin::new(&mut dropped).poll(&mut Context::from_waker(Waker::noop()));
            drop(dropped);
            comm.barrier().unwrap();
        });
    }
}

/// The first of two receives ends last, and a request that fails gives its buffer back.
#[test]
fn a_thread_waits_for_one_of_several_requests() {
    Local::new(2).timeout(LIMIT).run(|mut comm| {
        if comm.rank() == 1 {
            comm.send(&[2u8], 0, 2).unwrap();
            comm.recv(&mut [0u8], 0, 9).unwrap();
            return comm.send(&[1u8], 0, 1).unwrap();
        }
        let mut receives = vec![comm.start_recv([0u8], 1, 1), comm.start_recv([0u8], 1, 2)];
        assert!(matches!(wait_any(&mut receives), Some((1, Ok([2])))));
        comm.send(&[0u8], 1, 9).unwrap();
        assert!(matches!(wait_any(&mut receives), Some((0, Ok([1])))));
        let late = comm.within(Duration::from_millis(20)).start_all_reduce([3u8], ReduceOp::Sum);
        let (error, buffers) = late.wait_or_buffers().unwrap_err();
        assert!(error.is_retryable() && buffers == Some([3]), "{error}");
    });
}

/// Rank r brings r + 1 elements, which are r + 1.
#[test]
fn every_collective_is_a_request() {
    for local in mixtures() {
        local.run(|mut comm| {
            let (rank, world) = (comm.rank(), comm.world());
            let counts: Vec<usize> = (1..=world).collect();
            let whole = counts.iter().flat_map(|count| vec![*count; *count]).collect::<Vec<_>>();
            let (mine, none) = (vec![rank + 1; rank + 1], vec![0; whole.len()]);
            let spread = vec![rank + 1; world * (rank + 1)];
            let spread = (spread, vec![rank + 1; world], none.clone(), counts.clone());
            comm.start_barrier().wait().unwrap();
            let reduced = comm.start_reduce([1u8; 9], ReduceOp::Sum, 1);
            let scanned = comm.start_scan([1u8; 9], ReduceOp::Sum);
            let before = comm.start_exclusive_scan(([1u8; 9], [0; 9]), ReduceOp::Sum);
            let gathered = comm.start_gather((mine.clone(), none.clone(), counts.clone()), 1);
            let all = comm.start_all_gather((mine.clone(), none.clone(), counts.clone()));
            let part = (whole.clone(), vec![0; rank + 1], counts);
            let scattered = comm.start_scatter(part.clone(), 0);
            let part = comm.start_reduce_scatter(part, ReduceOp::Sum);
            let swapped = comm.start_all_to_all(spread);
            let at_root = if rank == 1 { &whole } else { &none };
            assert_eq!(reduced.wait().unwrap()[8], if rank == 1 { world as u8 } else { 1 });
            assert_eq!(scanned.wait().unwrap()[8], rank as u8 + 1);
            assert_eq!(before.wait().unwrap().1[8], rank as u8);
            assert_eq!(gathered.wait().unwrap().1, *at_root);
            assert_eq!(all.wait().unwrap().1, whole);
            assert_eq!(scattered.wait().unwrap().1, mine);
            assert_eq!(part.wait().unwrap().1, vec![(rank + 1) * world; rank + 1]);
            assert_eq!(swapped.wait().unwrap().2, whole);
        });
    }
}

/// A task that waits for a peer is polled twice: first, and when it is woken.
#[test]
fn a_task_is_woken_once_and_only_when_its_request_is_done() {
    Local::new(2).timeout(LIMIT).run(|mut comm| {
        let mut other = comm.duplicate().unwrap();
        for _ in 0..20 {
            if comm.rank() == 0 {
                let request = start_sum(&mut comm, 1, 10);
                let mut request = pin!(request);
                let mut polled = request.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                assert!(polled.is_pending(), "rank 1 has not begun");
                // Another task continues it, whose waker counts.
                other.barrier().unwrap();
                let (sum, polls, wakes) = block_on(async { request.await.unwrap() });
                assert!(polls <= 2 && wakes <= 1, "{polls} polls, {wakes} wakes");
                polled = Poll::Ready(Ok(sum));
                assert_eq!(polled.map(Result::unwrap), Poll::Ready(vec![2; 10]));
            } else {
                other.barrier().unwrap();
                comm.all_reduce(&mut [1u64; 10], ReduceOp::Sum).unwrap();
            }
        }
    });
}

#[test]
fn a_task_hears_of_failures_and_panics() {
    let errors = Local::new(2).timeout(LIMIT).run(|mut comm| {
        if comm.rank() == 1 {
            thread::sleep(Duration::from_millis(50));
            comm.abort("enough");
            return None;
        }
        block_on(start_sum(&mut comm, 1, 10)).0.err()
    });
    assert!(matches!(errors[0], Some(Error::Aborted { .. })), "{errors:?}");

    Local::new(2).timeout(LIMIT).run(|mut comm| {
        let request = comm.start([0u8], |_, _| panic!("the user's"));
        let panic = catch_unwind(AssertUnwindSafe(|| block_on(request))).err().unwrap();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"the user's"));
    });
}

#[test]
fn a_future_that_was_ready_is_not_polled_again() {
    Local::new(1).run(|mut comm| {
        let mut request = start_sum(&mut comm, 3, 1);
        let mut poll = || Pin::new(&mut request).poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(poll(), Poll::Ready(Ok(sum)) if sum == [3]));
        let again = catch_unwind(AssertUnwindSafe(poll));
        assert!(again.is_err());
    });
}

#[test]
fn a_repeated_request_is_lowered_once_and_its_buffers_stay_in_place() {
    for local in mixtures() {
        local.run(|mut comm| {
            let world = comm.world() as u64;
            let call = |comm: &mut Communicator, (x, sum): &mut (Vec<u64>, Vec<u64>)| {
                comm.all_reduce((&*x, sum), ReduceOp::Sum)
            };
            let mut sum = (vec![0; 3000], vec![0; 3000]);
            let place = sum.0.as_ptr();
            let mut lowered = None;
            for step in 1..=20 {
                sum.0.fill(step);
                sum = match step % 3 {
                    0 => block_on(comm.start(sum, call)).0.unwrap(),
                    1 => comm.start(sum, call).wait().unwrap(),
                    _ => {
                        call(&mut comm, &mut sum).unwrap();
                        sum
                    }
                };
                assert_eq!(sum.1, vec![step * world; 3000]);
                let programs = comm.programs().lowered;
                assert_eq!(*lowered.get_or_insert(programs), programs, "step {step}");
            }
            assert_eq!(sum.0.as_ptr(), place);
        });
    }
}
