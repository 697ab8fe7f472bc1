//! Failures while requests are in flight. Every request soon gets an error.

use super::{LIMIT, is_aborted, mixtures, start_sum};
use crate::spawn::over_shm_and_tcp;
use maypole::{Communicator, Error, Local, Operation, Request};
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A limit far below the deadlines of the calls.
const SOON: Duration = Duration::from_secs(20);

/// Asserts that the first request has the cause, and later ones that the communicator has failed.
fn all_fail(requests: Vec<Request<Vec<u64>>>) -> Error {
    let mut errors = requests.into_iter().map(|request| request.wait().unwrap_err());
    let first = errors.next().unwrap();
    for later in errors {
        let same =
            matches!(&later, Error::Failed { first: it, .. } if it.text == first.to_string());
        assert!(same, "{later}");
        assert_eq!(later.is_retryable(), first.is_retryable(), "{later}");
        assert_eq!(later.culprit(), first.culprit(), "{later}");
    }
    first
}

pub(crate) fn rank_process(_: &str) {
    forks(Communicator::from_env().unwrap());
}

/// Rank 0 forks while its request waits for rank 1, and the child drops its copy of everything.
fn forks(mut comm: Communicator) {
    start_sum(&mut comm, 1, 1000).wait().unwrap();
    let mut twin = comm.duplicate().unwrap();
    twin.barrier().unwrap();
    if comm.rank() == 1 {
        twin.barrier().unwrap();
        assert_eq!(start_sum(&mut comm, 1, 50_000).wait().unwrap()[0], 2);
        return comm.barrier().unwrap();
    }
    let request = start_sum(&mut comm, 1, 50_000);
    let both = Arc::new(Mutex::new(Some((comm, twin))));
    let theirs = Arc::clone(&both);
    let mut child = Command::new("true");
    // SAFETY: no other thread holds the lock. Dropping only frees memory and closes descriptors.
    unsafe {
        child.pre_exec(move || {
            drop(theirs.lock().unwrap().take());
            Ok(())
        })
    };
    let mut child = child.spawn().unwrap();
    assert!(child.wait().unwrap().success());
    let (mut comm, mut twin) = both.lock().unwrap().take().unwrap();
    twin.barrier().unwrap();
    assert_eq!(request.wait().unwrap()[0], 2);
    comm.barrier().unwrap();
}

#[test]
fn a_forked_child_that_drops_its_copy_does_no_harm() {
    over_shm_and_tcp("forks", 2);
}

#[test]
fn a_peer_leaves_while_requests_are_queued() {
    for local in mixtures() {
        local.run(|mut comm| {
            start_sum(&mut comm, 1, 10).wait().unwrap();
            if comm.rank() == 1 {
                return comm.close().unwrap();
            }
            let since = Instant::now();
            let first = all_fail((0..3).map(|_| start_sum(&mut comm, 1, 10)).collect());
            assert!(matches!(first, Error::PeerLost { .. } | Error::Aborted { .. }), "{first}");
            drop(comm);
            assert!(since.elapsed() < SOON);
        });
    }
}

#[test]
fn the_failure_of_a_dropped_request_is_told_by_the_next_call() {
    Local::new(2).timeout(Duration::from_millis(50)).run(|mut comm| {
        if comm.rank() == 0 {
            drop(start_sum(&mut comm, 1, 10));
            let error = comm.barrier().unwrap_err();
            assert!(
                matches!(&error, Error::Failed { first, .. }
                    if error.is_retryable() && first.text.contains("all_reduce(10 x u64")),
                "{error}"
            );
        }
    });
}

fn panicking() -> Operation<u64> {
    Operation::new("fragile", true, |_: &[u64], _: &mut [u64]| panic!("as planned"))
}

#[test]
fn the_panic_of_an_operation_goes_on_in_wait_and_ends_the_others() {
    Local::new(3).timeout(LIMIT).run(|mut comm| {
        let first = comm.start(vec![1u64; 8], |comm, data| comm.all_reduce(data, &panicking()));
        let later = start_sum(&mut comm, 1, 8);
        match catch_unwind(AssertUnwindSafe(|| first.wait())) {
            Err(panic) => assert_eq!(panic.downcast_ref(), Some(&"as planned")),
            Ok(result) => assert!(
                matches!(&result, Err(error @ Error::Aborted { .. }) if !error.is_retryable()),
                "{result:?}"
            ),
        }
        assert!(matches!(later.wait(), Err(error @ Error::Failed { .. }) if !error.is_retryable()));
        assert!(comm.barrier().is_err());
    });
}

#[test]
fn a_panic_beside_the_calls_of_a_request_ends_the_others_too() {
    let since = Instant::now();
    Local::new(2).timeout(LIMIT).run(|mut comm| {
        if comm.rank() == 0 {
            let request = comm.start(vec![0u8], |_, data| {
                data[1] = 2;
                Ok(())
            });
            assert!(catch_unwind(AssertUnwindSafe(|| request.wait())).is_err());
        } else {
            let error = start_sum(&mut comm, 1, 8).wait().unwrap_err();
            is_aborted(&error, "rank 0 panicked");
        }
    });
    assert!(since.elapsed() < SOON);
}

/// The peers never start the queued requests, because they wait for another call.
#[test]
fn a_panic_with_requests_in_flight_does_not_hold_other_ranks_up() {
    let since = Instant::now();
    Local::new(2).timeout(LIMIT).run(|mut comm| {
        let mut group = comm.duplicate().unwrap();
        if comm.rank() == 0 {
            let rank = AssertUnwindSafe(move || {
                let _request = start_sum(&mut comm, 1, 8);
                panic!("as planned");
            });
            assert!(catch_unwind(rank).is_err());
        } else {
            let error = group.barrier().unwrap_err();
            let said = "rank 0 panicked while it had requests in flight";
            assert!(
                matches!(&error, Error::Aborted { cause, .. } if cause.text == said),
                "{error}"
            );
        }
    });
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
}

/// Sends a message when it is dropped.
struct Told(Sender<()>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.send(()).unwrap();
    }
}

/// A request may own the communicator that runs it, inside a type of the user's, and may be its
/// last owner.
#[test]
fn a_communicator_may_end_on_its_own_thread() {
    let (sender, ended) = channel();
    let sender = &sender;
    Local::new(2).timeout(LIMIT).run(|comm| {
        let sender = sender.clone();
        let (go, gone) = channel();
        let comm = Arc::new(Mutex::new(comm));
        let mut locked = comm.lock().unwrap();
        // Dropped in this order.
        let owners = (Arc::clone(&comm), Told(sender));
        let _detached = locked.start(owners, move |comm, _| {
            gone.recv().unwrap();
            comm.barrier()
        });
        drop(locked);
        drop(comm);
        go.send(()).unwrap();
    });
    (0..2).for_each(|_| ended.recv_timeout(LIMIT).unwrap());
}

/// A request cannot wait for itself: its thread leaves the group once it has ended.
#[test]
fn a_request_may_close_its_own_communicator() {
    let (sender, ended) = channel();
    std::thread::spawn(move || {
        Local::new(2).timeout(LIMIT).run(|comm| {
            let shared = Arc::new(Mutex::new(Some(comm)));
            let mine = Arc::clone(&shared);
            let (go, gone) = channel();
            let request = shared.lock().unwrap().as_mut().unwrap().start((), move |comm, ()| {
                gone.recv().unwrap();
                comm.barrier()?;
                let own = mine.lock().unwrap().take();
                own.unwrap().close()
            });
            go.send(()).unwrap();
            request.wait().unwrap();
        });
        sender.send(()).unwrap();
    });
    ended.recv_timeout(SOON).unwrap();
}
