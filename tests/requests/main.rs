//! Requests, the groups that they run in, and what ends them.

#[path = "../common/skip.rs"]
mod skip;
#[path = "../common/spawn.rs"]
mod spawn;

mod awaiting;
mod faults;
mod leaving;
mod overlap;
mod scopes;
mod splits;
mod unreported;

use maypole::{Communicator, Error, Local, ReduceOp, Request};
use maypole_tests::common;
use std::time::Duration;

spawn::rank_processes!(leaving, overlap, scopes, splits, unreported);

/// A limit above everything that the tests take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Boards, streams, and both in one communicator.
fn mixtures() -> [Local; 4] {
    let streams = Local::new(3).hosts(&[0, 1, 2]).stream_capacity(4096);
    [
        Local::new(2),
        Local::new(4),
        streams,
        Local::new(5).hosts(&[0, 0, 1, 1, 1]).stream_capacity(1000),
    ]
    .map(|local| local.timeout(LIMIT))
}

/// Asserts that another rank failed first, and why.
#[track_caller]
fn is_aborted(error: &Error, why: &str) {
    let aborted = matches!(error, Error::Aborted { cause, .. } if cause.text.contains(why));
    assert!(aborted, "{error}");
}

/// The sum of all ranks' `value`, by an all-reduce of `count` elements.
fn sum(comm: &mut Communicator, value: u64, count: usize) -> u64 {
    let mut data = vec![value; count];
    comm.all_reduce(&mut data, ReduceOp::Sum).unwrap();
    assert!(data.iter().all(|it| *it == data[0]));
    data[0]
}

fn start_sum(comm: &mut Communicator, value: u64, count: usize) -> Request<Vec<u64>> {
    comm.start_all_reduce(vec![value; count], ReduceOp::Sum)
}
