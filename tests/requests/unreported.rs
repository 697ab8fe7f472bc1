//! Errors of requests that are dropped: the first one that no caller has received is returned by the next
//! call, or by `close`, or printed when the communicator is dropped.

use super::LIMIT;
use crate::spawn::World;
use maypole::{Communicator, DataType, Error, Local, ReduceOp, Request, wait_all};
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

/// Starts a request that fails.
type Start = fn(&mut Communicator) -> Request<Vec<u8>>;

fn wrong_root(comm: &mut Communicator) -> Request<Vec<u8>> {
    comm.start_broadcast(vec![0; 4], 9)
}

fn wrong_length(comm: &mut Communicator) -> Request<Vec<u8>> {
    comm.start(vec![0; 4], |comm, data| comm.all_reduce((&*data, &mut [0; 5]), ReduceOp::Sum))
}

fn wrong_peer(comm: &mut Communicator) -> Request<Vec<u8>> {
    comm.start_send(vec![0; 4], 9, 0)
}

/// Requests that are refused before anything is sent.
const REFUSED: [(&str, Start); 3] =
    [("root 9", wrong_root), ("needs 4", wrong_length), ("rank 9", wrong_peer)];

fn other_counts(comm: &mut Communicator) -> Request<Vec<u8>> {
    let count = 4 + comm.rank();
    comm.start_all_reduce(vec![0; count], ReduceOp::Max)
}

/// A way to lose a request, with its name; true if no caller has received its outcome.
type Loss = (&'static str, fn(Request<Vec<u8>>) -> bool);

const LOSE: [Loss; 4] = [
    ("at once", |request| {
        drop(request);
        true
    }),
    ("when it is over", |mut request| {
        let start = Instant::now();
        while !request.test() {
            assert!(start.elapsed() < LIMIT, "the request does not end");
            std::thread::yield_now();
        }
        true
    }),
    ("after a poll", |request| {
        let mut request = pin!(request);
        request.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }),
    ("in another thread", |request| {
        std::thread::spawn(move || drop(request)).join().unwrap();
        true
    }),
];

fn worlds() -> [Local; 3] {
    [Local::new(1), Local::new(2), Local::new(2).hosts(&[0, 1])].map(|local| local.timeout(LIMIT))
}

#[track_caller]
fn names(error: Result<(), Error>, why: &str) {
    let error = error.expect_err(why);
    assert!(error.to_string().contains(why), "{error} does not name {why}");
}

#[test]
fn the_next_call_returns_the_error_of_a_request_that_was_dropped() {
    for (why, start) in REFUSED {
        for (how, lose) in LOSE {
            for local in worlds() {
                local.run(|mut comm| {
                    if lose(start(&mut comm)) {
                        names(comm.barrier(), why);
                    }
                    comm.barrier().unwrap_or_else(|error| panic!("{how}: {error} is told twice"));
                    match lose(start(&mut comm)) {
                        true => names(comm.close(), why),
                        false => comm.close().unwrap(),
                    }
                });
            }
        }
    }
}

/// Every kind of call is the next one.
#[test]
fn every_kind_of_call_returns_it() {
    type Call = fn(&mut Communicator) -> Result<(), Error>;
    let calls: [Call; 6] = [
        |comm| comm.all_reduce(&mut [1u8], ReduceOp::Sum),
        |comm| comm.split(Some(0), 0).map(drop),
        |comm| comm.duplicate().map(drop),
        |comm| comm.arena(100).map(drop),
        |comm| comm.exchange(&[1u8], 0, &mut [0u8], 0, 3),
        |comm| comm.all_gather_values(&1u8).map(drop),
    ];
    Local::new(2).timeout(LIMIT).run(|mut comm| {
        for call in calls {
            comm.all_reduce(&mut [1u8], ReduceOp::Sum).unwrap();
            wrong_root(&mut comm).test();
            drop(wrong_root(&mut comm));
            names(call(&mut comm), "root 9");
        }
        comm.close().unwrap();
    });
}

/// The error is that of the first request, and later requests run all the same.
#[test]
fn other_requests_get_their_own_outcome() {
    Local::new(2).timeout(LIMIT).run(|mut comm| {
        drop(wrong_root(&mut comm));
        drop(wrong_length(&mut comm));
        let sum = comm.start_all_reduce(vec![1u8; 4], ReduceOp::Sum);
        assert_eq!(sum.wait().unwrap(), [2; 4]);
        names(comm.barrier(), "root 9");
        comm.barrier().unwrap();
        wrong_root(&mut comm).wait().unwrap_err();
        comm.barrier().unwrap();
        wait_all([wrong_root(&mut comm), wrong_length(&mut comm)]).unwrap_err();
        names(comm.barrier(), "needs 4");
        wrong_root(&mut comm).ignore_error();
        comm.close().unwrap();
    });
}

#[test]
fn a_call_after_a_scope_returns_the_error_of_its_requests() {
    for local in worlds() {
        local.run(|mut comm| {
            let mut data = [1u8; 4];
            comm.scope(|scope| drop(scope.start_all_reduce((&data[..], [0u8; 5]), ReduceOp::Sum)));
            names(comm.barrier(), "needs 4");
            let (one, others) = data.split_at_mut(1);
            comm.scope(|scope| {
                drop(scope.start_broadcast(one, 9));
                drop(scope.start_broadcast(others, 0));
            });
            names(comm.close(), "root 9");
        });
    }
}

#[test]
fn close_returns_the_failure_of_a_request() {
    for local in worlds().into_iter().skip(1) {
        local.run(|mut comm| {
            drop(other_counts(&mut comm));
            let error = comm.close().unwrap_err();
            assert!(matches!(error, Error::Mismatch { .. }), "{error}");
        });
    }
}

/// A caller that has received the failure does not receive its consequences.
#[test]
fn what_follows_from_a_known_failure_is_not_returned_again() {
    Local::new(2).timeout(LIMIT).run(|mut comm| {
        let first = other_counts(&mut comm);
        let later = comm.start_all_reduce(vec![1u8; 4], ReduceOp::Sum);
        first.wait().unwrap_err();
        drop(later);
        comm.close().unwrap();
    });
    Local::new(2).timeout(LIMIT).run(|mut comm| {
        drop(other_counts(&mut comm));
        for _ in 0..2 {
            let error = comm.barrier().unwrap_err();
            let is_told =
                matches!(&error, Error::Failed { first, .. } if first.text.contains("match"));
            assert!(is_told, "{error}");
        }
        comm.close().unwrap();
    });
}

/// Messages and calls that end by their deadline.
#[test]
fn close_returns_that_a_request_was_late() {
    for message in [true, false] {
        let ends = Local::new(2).timeout(Duration::from_millis(300)).run(|mut comm| {
            if comm.rank() == 1 {
                let start = Instant::now();
                while comm.status().failure.is_none() {
                    assert!(start.elapsed() < LIMIT, "rank 0 is not late");
                    std::thread::sleep(Duration::from_millis(1));
                }
                return None;
            }
            match message {
                true => drop(comm.start_recv(vec![0u8; 4], 1, 0)),
                false => drop(comm.start_all_reduce(vec![0u8; 4], ReduceOp::Max)),
            }
            comm.close().err()
        });
        let error = ends[0].as_ref().expect("rank 1 sends nothing");
        assert!(!error.is_harmless() && error.is_retryable(), "{error}");
    }
}

#[test]
fn a_message_that_does_not_fit_is_returned() {
    Local::new(2).timeout(LIMIT).run(|mut comm| {
        let other = 1 - comm.rank();
        let receive = comm.start_recv(vec![0u8; 4], other, 0);
        comm.start_send(vec![0u16; 9], other, 0).wait().unwrap();
        drop(receive);
        let error = comm.close().unwrap_err();
        assert!(matches!(error, Error::Value { .. }), "{error}");
    });
    // A hook does not count as a report of the error.
    Local::new(2).timeout(LIMIT).run(|comm| {
        let mut handle = comm.message_handle();
        drop(handle.start_send(DataType::U16, vec![0u8; 3], 0, 0, |_| {}));
        names(comm.close(), "whole number");
    });
}

#[test]
fn close_returns_that_a_request_panicked() {
    Local::new(2).timeout(LIMIT).run(|mut comm| {
        drop(comm.start(vec![0u8], |_, _| panic!("by intent")));
        names(comm.close(), "by intent");
    });
}

pub(crate) fn rank_process(_: &str) {
    let mut comm = Communicator::from_env().unwrap();
    comm.barrier().unwrap();
    drop(wrong_root(&mut comm));
}

#[test]
fn a_drop_prints_the_error() {
    for ended in World::new("drops", 2).start().end() {
        let line = ended.lines.iter().find(|line| line.starts_with("maypole: "));
        let line = line.unwrap_or_else(|| panic!("{ended:?}"));
        assert!(line.contains("root 9 is not one of the 2 ranks"), "{line}");
    }
}
