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

/// One call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    Sum,
    Max,
    Count,
    Type,
    Broadcast(usize),
    Reduce(usize),
    Word,
    Large,
    Gather,
    Scatter,
    Barrier,
}

impl Call {
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "sum" => Self::Sum,
            "max" => Self::Max,
            "count" => Self::Count,
            "type" => Self::Type,
            "broadcast" => Self::Broadcast(0),
            "broadcast from 1" => Self::Broadcast(1),
            "reduce" => Self::Reduce(0),
            "reduce to 1" => Self::Reduce(1),
            "word" => Self::Word,
            "large" => Self::Large,
            "gather" => Self::Gather,
            "scatter" => Self::Scatter,
            "barrier" => Self::Barrier,
            other => panic!("there is no call {other}"),
        }
    }

    pub(crate) fn make(self, comm: &mut Communicator) -> Result<()> {
        let world = comm.world();
        match self {
            Self::Sum => comm.all_reduce(&mut [1f32; 100], ReduceOp::Sum),
            Self::Max => comm.all_reduce(&mut [1f32; 100], ReduceOp::Max),
            Self::Count => comm.all_reduce(&mut [1f32; 101], ReduceOp::Sum),
            Self::Type => comm.all_reduce(&mut [1i32; 100], ReduceOp::Sum),
            Self::Broadcast(root) => comm.broadcast(&mut [1f32; 100], root),
            Self::Reduce(root) => comm.reduce(&mut [1f32; 100], ReduceOp::Sum, root),
            Self::Word => comm.all_reduce(&mut [1u64], ReduceOp::Sum),
            Self::Large => comm.all_reduce(&mut vec![1u64; 1 << 17], ReduceOp::Sum),
            Self::Gather => comm.gather((&[1f32; 100], &mut vec![0.0; 100 * world]), 0),
            Self::Scatter => comm.scatter((&vec![1f32; 100 * world], &mut [0.0; 100]), 0),
            Self::Barrier => comm.barrier(),
        }
    }
}
