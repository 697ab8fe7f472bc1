//! After a failed call, no rank reaches memory that was given back to user code.

use super::local;
use crate::spawn::{World, say};
use maypole::{Communicator, Error, Operation, ReduceOp, RegisteredBuffer, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

const COUNT: usize = 50_000;
/// How long rank 0 waits for rank 1 before it aborts the call.
const PATIENCE: Duration = Duration::from_millis(300);
/// A limit for events that take milliseconds.
const LIMIT: Duration = Duration::from_secs(30);

/// Rank 1 stops in the middle of its part of a call. Rank 0 aborts the call, writes to its buffer,
/// and continues rank 1. When rank 1 is done, rank 0's buffer must be unchanged.
struct LatePeer {
    go: Sender<()>,
    gate: Mutex<Receiver<()>>,
    done: Sender<()>,
    is_done: Mutex<Receiver<()>>,
    stopped: AtomicBool,
}

impl LatePeer {
    fn new() -> &'static Self {
        let (go, gate) = channel();
        let (done, is_done) = channel();
        let stopped = AtomicBool::new(false);
        // `Operation::new` needs a function of the lifetime `'static`.
        Box::leak(Box::new(Self { go, gate: gate.into(), done, is_done: is_done.into(), stopped }))
    }

    /// A sum in which rank 1 stops at its first block.
    fn sum(&'static self, rank: usize) -> Operation<u32> {
        Operation::new("sum", true, move |left: &[u32], right: &mut [u32]| {
            if rank == 1 && !self.stopped.swap(true, Ordering::Relaxed) {
                self.gate.lock().unwrap().recv_timeout(LIMIT).expect("rank 0 has given up");
            }
            left.iter().zip(right).for_each(|(left, right)| *right += left);
        })
    }

    fn run<T>(
        &'static self,
        call: impl Fn(&mut Communicator, &mut RegisteredBuffer<u32>, &Operation<u32>) -> T + Sync,
        check: impl Fn(usize, T) + Sync,
    ) {
        local(2).run(|mut comm| {
            let mut x = comm.alloc::<u32>(COUNT).unwrap();
            x.fill(1);
            let rank = comm.rank();
            let ended = call(&mut comm, &mut x, &self.sum(rank));
            check(rank, ended);
            if rank == 0 {
                x.fill(77);
                self.go.send(()).unwrap();
                self.is_done.lock().unwrap().recv_timeout(LIMIT).expect("rank 1 has ended");
                assert!(x.iter().all(|it| *it == 77), "rank 1 wrote to memory of user code");
            } else {
                self.done.send(()).unwrap();
            }
        });
    }
}

fn all_reduce(
    comm: &mut Communicator,
    x: &mut RegisteredBuffer<u32>,
    op: &Operation<u32>,
) -> Result<()> {
    match comm.rank() {
        0 => comm.within(PATIENCE).all_reduce(x, op),
        _ => comm.all_reduce(x, op),
    }
}

#[test]
fn a_late_rank_does_not_write_into_memory_that_was_given_back() {
    LatePeer::new().run(all_reduce, |rank, ended| {
        let timed_out = matches!(ended, Err(Error::TimedOut { .. }));
        assert!(rank == 1 || timed_out, "{ended:?}");
    });
}

#[test]
fn a_late_rank_does_not_write_into_memory_of_a_rank_that_has_panicked() {
    let peer = LatePeer::new();
    let broken = Operation::new("sum", true, |_: &[u32], _: &mut [u32]| panic!("out of order"));
    let call = |comm: &mut Communicator, x: &mut RegisteredBuffer<u32>, op: &Operation<u32>| {
        let op = if comm.rank() == 0 { &broken } else { op };
        catch_unwind(AssertUnwindSafe(|| comm.all_reduce(x, op)))
    };
    peer.run(call, |rank, ended| assert!(rank == 1 || ended.is_err(), "{ended:?}"));
}

/// Rank 0 aborts and overwrites its input, which rank 1 has not read yet. If rank 1's call succeeds
/// nevertheless, its result is that of the input of the call.
#[test]
fn a_late_rank_reads_what_was_announced() {
    let call = |comm: &mut Communicator, x: &mut RegisteredBuffer<u32>, op: &Operation<u32>| {
        let mut block = comm.alloc::<u32>(COUNT / 2).unwrap();
        let ended = match comm.rank() {
            0 => comm.within(PATIENCE).reduce_scatter((x, &mut block), op),
            _ => comm.reduce_scatter((x, &mut block), op),
        };
        (ended, block)
    };
    LatePeer::new().run(call, |rank, (ended, block)| match ended {
        Ok(()) => assert!(rank == 1 && block.iter().all(|it| *it == 2), "a wrong sum is Ok"),
        Err(error) => assert!(rank == 1 || matches!(error, Error::TimedOut { .. }), "{error:?}"),
    });
}

/// Rank 1 kills itself in the middle of its part of a call, and the others continue with their
/// buffers and without rank 1.
pub(crate) fn rank_process(_: &str) {
    let mut comm = Communicator::from_env().unwrap();
    let dies = comm.rank() == 1;
    let blocks = std::sync::atomic::AtomicUsize::new(0);
    let op = Operation::new("sum", true, move |left: &[u32], right: &mut [u32]| {
        if dies && blocks.fetch_add(1, Ordering::Relaxed) == 20 {
            end_as_killed();
        }
        left.iter().zip(right).for_each(|(left, right)| *right += left);
    });
    let mut x = comm.alloc::<u32>(1 << 20).unwrap();
    let (call, other) = x.split_at_mut(1 << 19);
    call.fill(1);
    other.fill(5);
    let error = comm.all_reduce(&mut *call, &op).unwrap_err();
    call.fill(3);
    say("culprit", format!("{:?}", error.culprit()));
    let mut survivors = comm.shrink().unwrap();
    survivors.all_reduce(&mut x, ReduceOp::Sum).unwrap();
    let right = x[..1 << 19].iter().all(|it| *it == 6) && x[1 << 19..].iter().all(|it| *it == 10);
    let mut fresh = survivors.alloc::<u32>(1 << 20).unwrap();
    fresh.copy_from_slice(&x);
    survivors.all_reduce(&mut fresh, ReduceOp::Sum).unwrap();
    let again = fresh[0] == 12 && fresh[(1 << 20) - 1] == 20;
    let registered = survivors.counters().registered;
    say("right", format!("{right} {again} {registered}"));
}

/// Ends this process as SIGKILL does: nothing is cleaned up.
pub(crate) fn end_as_killed() -> ! {
    let pid = std::process::id().to_string();
    let _ = std::process::Command::new("kill").args(["-9", &pid]).status();
    std::process::abort();
}

#[test]
fn buffers_are_used_on_after_a_rank_was_killed() {
    let ended = World::new("killed in a call", 3).start().end();
    assert_eq!(ended[1].code, None, "rank 1 was killed: {ended:?}");
    for rank in [0, 2] {
        assert_eq!(ended[rank].said("culprit"), ["Some(1)"], "{ended:?}");
        assert_eq!(ended[rank].said("right"), ["true true 1"], "{ended:?}");
    }
}
