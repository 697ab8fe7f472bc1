//! Failures while requests are in flight. Every request soon gets an error.

use super::{LIMIT, is_aborted, start_sum};
use maypole::{Error, Local, Operation};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A limit far below the deadlines of the calls.
const SOON: Duration = Duration::from_secs(20);

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
    crate::skip::takes_turns!(2);
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
