//! Calls by name, and which of them do not match.

use maypole::{Communicator, ReduceOp, Result};

/// Pairs of calls that differ in: collective, count, type, operation, root, class of slots, kind of
/// payload. Rank 1 makes the second call.
pub(crate) const PAIRS: [(&str, &str); 8] = [
    ("sum", "broadcast"),
    ("sum", "count"),
    ("sum", "type"),
    ("sum", "max"),
    ("broadcast", "broadcast from 1"),
    ("word", "large"),
    ("large", "word"),
    ("sum", "barrier"),
];

/// Pairs in which two ranks wait for one another and neither sends. No message shows the mismatch;
/// the ranks compare their calls by queries.
pub(crate) const WAITING: [(&str, &str); 2] = [("gather", "scatter"), ("reduce", "reduce to 1")];

/// Makes the call of this name.
pub(crate) fn make(name: &str, comm: &mut Communicator) -> Result<()> {
    let world = comm.world();
    match name {
        "sum" => comm.all_reduce(&mut [1f32; 100], ReduceOp::Sum),
        "max" => comm.all_reduce(&mut [1f32; 100], ReduceOp::Max),
        "count" => comm.all_reduce(&mut [1f32; 101], ReduceOp::Sum),
        "type" => comm.all_reduce(&mut [1i32; 100], ReduceOp::Sum),
        "broadcast" => comm.broadcast(&mut [1f32; 100], 0),
        "broadcast from 1" => comm.broadcast(&mut [1f32; 100], 1),
        "reduce" => comm.reduce(&mut [1f32; 100], ReduceOp::Sum, 0),
        "reduce to 1" => comm.reduce(&mut [1f32; 100], ReduceOp::Sum, 1),
        "word" => comm.all_reduce(&mut [1u64], ReduceOp::Sum),
        "large" => comm.all_reduce(&mut vec![1u64; 1 << 17], ReduceOp::Sum),
        "gather" => comm.gather((&[1f32; 100], &mut vec![0.0; 100 * world]), 0),
        "scatter" => comm.scatter((&vec![1f32; 100 * world], &mut [0.0; 100]), 0),
        "barrier" => comm.barrier(),
        other => panic!("there is no call {other}"),
    }
}
