//! A forked child is not the rank: every call on its copy of a communicator is an error, and
//! nothing that the child does reaches its parent or its parent's peers.
//!
//! This is a program of its own, because a fork duplicates the sockets of all tests that run.

#[path = "common/spawn.rs"]
mod spawn;

use maypole::schedule::collective::Collective;
use maypole::schedule::{Schedule, Step, input, output};
use maypole::{Communicator, Error, Local, Operation, ReduceOp, Request};
use maypole_tests::forked::in_forked_child;
use spawn::over_shm_and_tcp;
use std::fmt::Write;
use std::time::Duration;

/// Runs `work` in a forked child and returns its output.
fn in_child(work: impl FnOnce() -> String) -> String {
    // SAFETY: `work` makes calls of communicators, which must survive a fork: this is the property
    // under test. A lock that is never released makes the test fail after a minute.
    unsafe { in_forked_child(work) }.unwrap()
}

/// The name of a call, and whether it ended as it must in a child.
fn verdict<T>(said: &mut String, call: &str, rank: usize, outcome: maypole::Result<T>) {
    let verdict = match outcome {
        Err(Error::Forked { rank: of }) if of == rank => "ok",
        Err(other) => &format!("gives another error: {other}"),
        Ok(_) => "succeeds",
    };
    if verdict != "ok" {
        writeln!(said, "{call} {verdict}").unwrap();
    }
}

/// Makes every kind of call. Returns the calls that do not end in the error for a fork.
fn call_everything(comm: &mut Communicator) -> String {
    let rank = comm.rank();
    let other = 1 - rank;
    let mut said = String::new();
    let mut note = |call, outcome: maypole::Result<()>| verdict(&mut said, call, rank, outcome);
    let mut four = [1u64; 4];
    let mut eight = [1u64; 8];
    let soon = Duration::from_secs(20);
    for round in 0..2 {
        note("barrier", comm.barrier());
        note("all_reduce", comm.all_reduce(&mut four, ReduceOp::Sum));
        note("all_reduce of before", comm.all_reduce(&mut eight, ReduceOp::Sum));
        note("broadcast", comm.broadcast(&mut four, 0));
        note("all_gather", comm.all_gather((&four, &mut eight)));
        note("scan", comm.scan(&mut four, ReduceOp::Sum));
        note("all_gather_v", comm.all_gather((&four[..2], &mut eight[..4], &[2, 2])));
        note("within", comm.within(soon).all_to_all((&eight.clone(), &mut eight)));
        note("send", comm.send(&four, other, 0));
        note("recv", comm.recv(&mut four, other, 0));
        note("recv_any", comm.recv_any(&mut four, 0).map(drop));
        note("exchange", comm.exchange(&four, other, &mut eight[..4], other, 0));
        note("group", comm.group(|group| group.send(&[1u8], other, 0)).map(drop));
        note("split", comm.split(Some(0), 0).map(drop));
        note("duplicate", comm.duplicate().map(drop));
        note("trace", comm.trace("/nonexistent/{rank}"));
        let add = Operation::new("add", true, |_: &[u64], _: &mut [u64]| {});
        note("all_reduce_with", comm.all_reduce(&mut four, &add));
        let copy = |_| {
            let copy = Step::Copy { from: input(0), into: output(0) };
            Schedule::new(1, vec![copy])
        };
        note("run", comm.run(copy, Collective::AllReduce, &mut four, ReduceOp::Sum));
        let mut request = comm.start_all_reduce(vec![1u64; 9], ReduceOp::Sum);
        assert!(request.test(), "a request of a child is over at once");
        note("start", request.wait().map(drop));
        drop(comm.start_all_reduce(vec![1u64; 9], ReduceOp::Sum));
        let scoped = comm.scope(|scope| {
            drop(scope.start_all_reduce(&mut eight[..], ReduceOp::Sum));
            scope.start_all_reduce(&mut four[..], ReduceOp::Sum).wait().map(drop)
        });
        note("scope", scoped);
        // Settings are the child's own affair, and do not fail.
        comm.set_timeout(soon);
        comm.set_algorithm(None);
        comm.set_deterministic(round == 0);
        let _ = (comm.counters(), comm.programs());
        let _ = comm.explain(Collective::AllReduce, 32);
        let status = comm.status();
        assert!(status.failure.is_some_and(|why| why.contains("created before fork")));
    }
    said
}

/// Calls that must work in the parent before and after a fork.
fn work(comm: &mut Communicator) {
    let mut eight = [1u64; 8];
    comm.all_reduce(&mut eight, ReduceOp::Sum).unwrap();
    assert_eq!(eight, [2; 8]);
    let mut long = vec![comm.rank() as u64 + 1; 100_000];
    comm.all_reduce(&mut long, ReduceOp::Sum).unwrap();
    assert!(long.iter().all(|sum| *sum == 3));
    let other = 1 - comm.rank();
    let mut came = vec![0; 30_000];
    comm.exchange(&vec![comm.rank(); 30_000], other, &mut came, other, 7).unwrap();
    assert_eq!(came, vec![other; 30_000]);
}

/// Forks in several states of two communicators, and continues.
fn forks(mut comm: Communicator) {
    work(&mut comm);
    let mut twin = comm.duplicate().unwrap();
    work(&mut twin);
    assert_eq!(in_child(|| call_everything(&mut comm)), "");
    work(&mut comm);
    assert_eq!(in_child(|| call_everything(&mut twin)), "");
    work(&mut twin);
    children_end(&mut comm);
    comm = drops_in_child(comm);
    work(&mut comm);
    requests_in_flight(&mut comm);
    work(&mut twin);
    twin.close().unwrap();
    work(&mut comm);
    comm.close().unwrap();
}

/// A child that closes its copy gets the error for a fork, and the parent is not affected. Returns
/// `comm`.
fn drops_in_child(comm: Communicator) -> Communicator {
    let mut slot = Some(comm);
    let rank = slot.as_ref().map_or(0, Communicator::rank);
    let closed = in_child(|| {
        let mut said = String::new();
        verdict(&mut said, "close", rank, slot.take().unwrap().close());
        said
    });
    assert_eq!(closed, "");
    let dropped = in_child(|| {
        drop(slot.take());
        "dropped".to_owned()
    });
    assert_eq!(dropped, "dropped");
    slot.unwrap()
}

/// A child makes a communicator of its own, while its parent's is open.
fn children_end(comm: &mut Communicator) {
    let rank = comm.rank();
    let said = in_child(|| {
        let sums = Communicator::run_local(2, |mut comm| {
            let mut sum = [comm.rank() + 1];
            comm.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
            sum
        });
        let mut said = format!("{sums:?} ");
        verdict(&mut said, "barrier", rank, comm.barrier());
        said
    });
    assert_eq!(said, "[[3], [3]] ");
}

/// The parent forks while its engine is with the thread that runs requests, which the child does
/// not have.
fn requests_in_flight(comm: &mut Communicator) {
    let rank = comm.rank();
    let mut turn = comm.duplicate().unwrap();
    let request: Request<Vec<u64>> = comm.start_all_reduce(vec![1; 50_000], ReduceOp::Sum);
    let mut slot = Some(request);
    for round in 0..2 {
        let said = in_child(|| {
            let mut request = slot.take().unwrap();
            let mut said = call_everything(comm);
            if round == 0 {
                assert!(request.test());
                verdict(&mut said, "wait", rank, request.wait());
            }
            said
        });
        assert_eq!(said, "");
    }
    turn.barrier().unwrap();
    assert_eq!(slot.take().unwrap().wait().unwrap(), vec![2; 50_000]);
}

#[test]
fn a_child_of_a_process_is_not_the_rank() {
    over_shm_and_tcp("forks", 2);
}

/// The peer waits meanwhile, and learns nothing.
#[test]
fn a_child_of_one_thread_of_many_is_not_the_rank() {
    for local in [Local::new(2), Local::new(2).hosts(&[0, 1])] {
        local.run(|mut comm| {
            work(&mut comm);
            if comm.rank() == 0 {
                assert_eq!(in_child(|| call_everything(&mut comm)), "");
                comm = drops_in_child(comm);
            }
            work(&mut comm);
            requests_in_flight(&mut comm);
            work(&mut comm);
        });
    }
}

#[test]
fn a_child_of_a_world_of_one_is_not_the_rank() {
    Local::new(1).run(|mut comm| {
        comm.barrier().unwrap();
        let said = in_child(|| {
            let mut said = String::new();
            verdict(&mut said, "barrier", 0, comm.barrier());
            verdict(&mut said, "start", 0, comm.start((), |comm, ()| comm.barrier()).wait());
            said
        });
        assert_eq!(said, "");
        comm.barrier().unwrap();
    });
}

fn rank_process(_: &str) {
    forks(Communicator::from_env().unwrap());
}

spawn::rank_processes!(self);
