//! A deadline of a call's own fails the group in which it passes, and no other; and an abort does not
//! replace the failure that it follows.

use crate::spawn::{World, await_file, say};
use maypole::{Communicator, Error, FailureKind, Local, ReduceOp};
use std::time::Duration;

/// A deadline of a call to which a rank does not come.
const SOON: Duration = Duration::from_millis(30);

/// What a rank of a world does.
type Role = fn(Communicator);

const ROLES: [(&str, Role); 4] =
    [("rows", rows), ("waiting", waiting), ("messages", messages), ("abort", abort_later)];

pub(crate) fn rank_process(role: &str) {
    let (_, body) = ROLES.iter().find(|(name, _)| *name == role).unwrap();
    body(Communicator::from_env().unwrap());
}

fn sum(comm: &mut Communicator, count: usize) {
    let mut ones = vec![1u64; count];
    comm.all_reduce(&mut ones, ReduceOp::Sum).unwrap();
    assert!(ones.iter().all(|it| *it == comm.world() as u64));
}

/// True if `error` is the missed deadline of rank 0.
fn is_of_rank_0(error: &Error) -> bool {
    matches!(error, Error::TimedOut { cause, .. } if cause.waiter == 0)
}

/// The group of this rank and its neighbour. Ranks 0 and 2 are rank 0 of theirs.
fn row(comm: &mut Communicator) -> Communicator {
    comm.split(Some(comm.rank() as u64 / 2), 0).unwrap().unwrap()
}

/// Rank 0 tries its row again and again. Rank 1 is elsewhere, and the other row works on.
fn rows(mut comm: Communicator) {
    let mut twin = comm.duplicate().unwrap();
    let mut steady = row(&mut comm);
    for round in 0..3 {
        let mut row = row(&mut comm);
        // With and without connections of the group.
        if round > 0 {
            row.barrier().unwrap();
        }
        match comm.rank() {
            0 => {
                let error = row.within(SOON).barrier().unwrap_err();
                let Error::TimedOut { cause, .. } = &error else { panic!("{error}") };
                assert_eq!((cause.waiter, cause.peer, cause.after), (0, Some(1), SOON), "{error}");
                assert!(matches!(row.barrier(), Err(Error::Failed { .. })));
            }
            1 => {}
            _ => (0..50).for_each(|_| sum(&mut row, 100)),
        }
        sum(&mut comm, 1);
        // Rank 1 comes too late, and gets the same error.
        if comm.rank() == 1 {
            let error = row.all_reduce(&mut [1u8], ReduceOp::Sum).unwrap_err();
            assert!(is_of_rank_0(&error), "{error}");
        }
        for group in [&mut comm, &mut twin, &mut steady] {
            sum(group, 3000);
        }
    }
    comm.close().unwrap();
}

/// Rank 2 waits without a deadline of its own for rank 1, which is elsewhere, and is told of rank 0's.
fn waiting(mut comm: Communicator) {
    let mut group = comm.duplicate().unwrap();
    group.barrier().unwrap();
    let error = match comm.rank() {
        0 => Some(group.within(SOON).all_reduce(&mut [1u64; 9], ReduceOp::Sum).unwrap_err()),
        2 => Some(group.recv(&mut [0u8], 1, 0).unwrap_err()),
        _ => None,
    };
    let is_own =
        |error: &Error| matches!(error, Error::TimedOut { cause, .. } if cause.waiter == 0);
    assert!(error.iter().all(is_own), "{error:?}");
    sum(&mut comm, 1);
    comm.close().unwrap();
}

/// Requests and messages of a group, too; and the ranks that wait there can shrink it.
fn messages(mut comm: Communicator) {
    let mut group = comm.duplicate().unwrap();
    if comm.rank() == 0 {
        let come = group.within(SOON).start_recv(vec![0u8], 1, 7);
        assert_eq!(come.wait().unwrap_err().kind(), Some(FailureKind::Timeout));
    }
    sum(&mut comm, 1);
    let mut any = comm.duplicate().unwrap();
    if comm.rank() == 0 {
        let late = any.within(SOON).recv_any(&mut [0u8], 3).unwrap_err();
        assert!(is_of_rank_0(&late) && late.is_retryable(), "{late}");
    }
    let mut next = comm.duplicate().unwrap();
    // The first request has no deadline. The guard is dropped before either request runs.
    let first = next.start_all_reduce(vec![1u64; 10], ReduceOp::Sum);
    if comm.rank() == 0 {
        let request = next.within(SOON).start_all_reduce(vec![1u64; 10], ReduceOp::Sum);
        assert_eq!(first.wait().unwrap(), [4; 10]);
        assert_eq!(request.wait().unwrap_err().kind(), Some(FailureKind::Timeout));
    } else {
        assert_eq!(first.wait().unwrap(), [4; 10]);
    }
    sum(&mut comm, 1);
    sum(&mut next.shrink().unwrap(), 5);
}

#[test]
fn a_deadline_of_a_call_s_own_fails_its_group_and_no_other() {
    crate::skip::takes_turns!(2);
    for (role, body) in &ROLES[..3] {
        Local::new(4).run(body);
        for way in ["shm", "tcp"] {
            World::new(role, 4).set("MAYPOLE_TRANSPORT", way).start().succeed();
        }
    }
}

/// Rank 1 leaves. Rank 0 is told, and aborts, and then rank 2 looks.
fn abort_later(mut comm: Communicator) {
    comm.barrier().unwrap();
    if comm.rank() == 2 {
        await_file("TEST_FILE");
    }
    if comm.rank() != 1 {
        let error = comm.recv(&mut [0u8], 1, 0).unwrap_err();
        comm.abort("I cannot go on");
        say("kind", format!("{:?}", error.kind()));
        // Rank 0 stays until rank 2 has looked.
        await_file("TEST_FILE");
    }
}

#[test]
fn an_abort_does_not_replace_the_failure_that_it_follows() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("aborted");
    let mut world = World::new("abort", 3).set("TEST_FILE", file.display()).start();
    world.wait_for("kind", &[0]);
    std::fs::write(file, "").unwrap();
    let ended = world.succeed();
    assert_eq!([0, 2].map(|rank| ended[rank].only("kind")), ["Some(Death)"; 2]);
}
