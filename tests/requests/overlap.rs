//! Requests: calls that run while their caller does something else, between threads and between
//! processes.

use super::{LIMIT, mixtures, start_sum};
use crate::spawn::{World, over_shm_and_tcp};
use maypole::{
    Algorithm, Collective, Communicator, DataType, Error, Local, ReduceOp, Request, wait_all,
};
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

/// Rank 0 does not use the communicator until rank 1 has its result, although the request needs
/// rank 0.
fn overlaps(mut comm: Communicator, mut other: Communicator) {
    for _ in 0..3 {
        if comm.rank() == 0 {
            let request = start_sum(&mut comm, 1, 300_000);
            other.barrier().unwrap();
            assert_eq!(request.wait().unwrap()[299_999], comm.world() as u64);
        } else {
            let mut data = vec![1u64; 300_000];
            comm.all_reduce(&mut data, ReduceOp::Sum).unwrap();
            other.barrier().unwrap();
        }
    }
}

/// Within a tenth of a millisecond, only the waiting thread begins a request.
#[test]
fn a_thread_that_waits_at_once_runs_its_request() {
    let here = Local::new(2).timeout(LIMIT).run(|mut comm| {
        let (tell, told) = channel();
        for _ in 0..200 {
            let tell = tell.clone();
            let request = comm.start([1u32], move |comm, data| {
                tell.send(std::thread::current().id()).unwrap();
                comm.all_reduce(data, ReduceOp::Sum)
            });
            assert_eq!(request.wait().unwrap(), [2]);
        }
        let here = std::thread::current().id();
        told.try_iter().filter(|runner| *runner == here).count()
    });
    assert!(here.iter().all(|times| *times > 0), "of 200 requests, here ran: {here:?}");
}

fn duplicated(mut comm: Communicator) {
    let other = comm.duplicate().unwrap();
    overlaps(comm, other);
}

#[test]
fn requests_go_on_while_their_caller_does_something_else() {
    crate::skip::takes_turns!(2);
    mixtures().iter().for_each(|local| drop(local.run(duplicated)));
    over_shm_and_tcp("overlap", 2);
    World::new("overlap", 3).hosts(&[0, 0, 1]).start().succeed();
}

#[test]
fn a_test_tells_whether_a_request_is_over() {
    let (go, gone) = channel();
    let gone = std::sync::Mutex::new(Some(gone));
    Local::new(2).timeout(LIMIT).run(|mut comm| {
        if comm.rank() == 0 {
            let mut request = start_sum(&mut comm, 1, 10);
            assert!(!request.test(), "rank 1 has not started it yet");
            go.send(()).unwrap();
            let deadline = Instant::now() + LIMIT;
            while !request.test() {
                assert!(Instant::now() < deadline);
                std::thread::yield_now();
            }
            assert!(request.test(), "a request that is over stays over");
            assert_eq!(request.wait().unwrap(), [2; 10]);
        } else {
            gone.lock().unwrap().take().unwrap().recv_timeout(LIMIT).unwrap();
            comm.all_reduce(&mut [1u64; 10], ReduceOp::Sum).unwrap();
        }
    });
}

#[test]
fn a_blocking_call_comes_after_the_requests_before_it() {
    for local in mixtures() {
        local.run(|mut comm| {
            let world = comm.world() as u64;
            for round in 0..20 {
                let mut requests: Vec<_> =
                    (0..4).map(|at| start_sum(&mut comm, at, 5000)).collect();
                let last = vec![round; 100];
                let place = last.as_ptr();
                let last = comm.start_all_reduce(last, ReduceOp::Sum);
                let mut data = [round];
                comm.all_reduce(&mut data, ReduceOp::Sum).unwrap();
                assert_eq!(data, [round * world]);
                assert!(requests.iter_mut().all(Request::test));
                let last = last.wait().unwrap();
                assert_eq!(last.as_ptr(), place, "a buffer is given back");
                let sums = wait_all(requests).unwrap();
                sums.iter().zip(0..).for_each(|(sum, at)| assert_eq!(*sum, vec![at * world; 5000]));
            }
        });
    }
}

/// A buffer that sends its first element when it is dropped.
struct Noticed(Vec<f32>, Sender<f32>);

impl AsMut<[f32]> for Noticed {
    fn as_mut(&mut self) -> &mut [f32] {
        &mut self.0
    }
}

impl Drop for Noticed {
    fn drop(&mut self) {
        let _ = self.1.send(self.0[0]);
    }
}

#[test]
fn a_dropped_request_still_runs_and_its_buffer_is_dropped_afterwards() {
    for local in mixtures() {
        local.run(|mut comm| {
            let (sender, dropped) = channel();
            let start = |comm: &mut Communicator| {
                comm.start_all_reduce(Noticed(vec![1.0; 30_000], sender.clone()), ReduceOp::Sum)
            };
            let world = comm.world() as f32;
            if comm.rank() == 0 {
                (0..3).for_each(|_| drop(start(&mut comm)));
            } else {
                let requests: Vec<_> = (0..3).map(|_| start(&mut comm)).collect();
                assert!(wait_all(requests).unwrap().iter().all(|sum| sum.0 == [world; 30_000]));
            }
            comm.close().unwrap();
            let values: Vec<_> = (0..3).map(|_| dropped.recv_timeout(LIMIT).unwrap()).collect();
            assert_eq!(values, [world; 3], "dropped with the result in them");
        });
    }
}

#[test]
fn a_communicator_waits_for_its_requests_before_it_leaves() {
    for closes in [true, false] {
        Local::new(3).timeout(LIMIT).run(|mut comm| {
            let requests: Vec<_> = (0..3).map(|_| start_sum(&mut comm, 1, 50_000)).collect();
            if closes {
                comm.close().unwrap()
            } else {
                drop(comm)
            }
            for mut request in requests {
                assert!(request.test());
                assert_eq!(request.wait().unwrap(), vec![3; 50_000]);
            }
        });
    }
}

#[test]
fn settings_take_their_turn_without_waiting() {
    let (go, gone) = channel();
    let gone = std::sync::Mutex::new(Some(gone));
    Local::new(2).timeout(LIMIT).run(|mut comm| {
        if comm.rank() == 1 {
            gone.lock().unwrap().take().unwrap().recv_timeout(LIMIT).unwrap();
        }
        let mut requests = Vec::new();
        for algorithm in [Algorithm::Ring, Algorithm::OneShot, Algorithm::Tree] {
            comm.set_algorithm(Some(algorithm));
            comm.set_timeout(LIMIT);
            assert_eq!((comm.timeout(), comm.hosts().numbers()), (LIMIT, &[0, 0][..]));
            requests.push(start_sum(&mut comm, 1, 1000));
        }
        if comm.rank() == 0 {
            // Rank 1 has not started, so no statement above has waited for a request.
            assert!(!requests.iter_mut().any(Request::test));
            go.send(()).unwrap();
        }
        // The call would not match if the other rank used another algorithm.
        wait_all(requests).unwrap();
        let algorithm = comm.algorithm(Collective::AllReduce, 1000, DataType::U64);
        assert_eq!(algorithm.unwrap(), Algorithm::Tree);
    });
}

#[test]
fn a_world_of_one_needs_no_thread() {
    let mut comm = Communicator::local(1).remove(0);
    let here = std::thread::current().id();
    let request = comm.start([2.5f32], move |comm, data| {
        assert_eq!(std::thread::current().id(), here);
        comm.all_reduce(data, ReduceOp::Avg)
    });
    assert_eq!(request.wait().unwrap(), [2.5]);
    let mut data = [7u8];
    let sum = comm
        .scope(|scope| scope.start_all_reduce(&mut data, ReduceOp::Sum).wait().map(|sum| sum[0]));
    assert_eq!(sum.unwrap(), 7);
}

#[test]
fn wrong_arguments_are_reported_by_the_request_and_do_no_harm() {
    Communicator::run_local(2, |mut comm| {
        let short = comm.start_all_reduce(([1u8; 3], [0u8; 2]), ReduceOp::Sum);
        let root = comm.start_broadcast(vec![1u8], 2);
        let good = start_sum(&mut comm, 1, 4);
        let (error, buffers) = short.wait_or_buffers().unwrap_err();
        assert_eq!(buffers, Some(([1; 3], [0; 2])));
        assert!(matches!(error, Error::Invalid { operation: "all_reduce", .. }), "{error}");
        assert!(matches!(root.wait(), Err(Error::Invalid { operation: "broadcast", .. })));
        assert_eq!(good.wait().unwrap(), [2; 4]);
        comm.barrier().unwrap();
    });
}

#[test]
fn communicators_and_requests_go_to_other_threads() {
    fn sends<T: Send>() {}
    sends::<Communicator>();
    sends::<Request<Vec<f32>>>();
    Communicator::run_local(2, |mut comm| {
        let request = start_sum(&mut comm, 1, 10_000);
        let comm = std::thread::spawn(move || {
            let _queued = start_sum(&mut comm, 1, 10_000);
            comm.barrier().unwrap();
            comm
        });
        assert_eq!(std::thread::spawn(move || request.wait().unwrap()[0]).join().unwrap(), 2);
        // A query that needs the engine waits for it.
        assert_eq!(comm.join().unwrap().counters().calls["all_reduce"], 2);
    });
}

pub(crate) fn rank_process(_: &str) {
    duplicated(Communicator::from_env().unwrap());
}
