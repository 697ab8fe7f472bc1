//! Calls by name, and which of them do not match.

use maypole::{Communicator, Operation, ReduceOp, Result};

/// Pairs of calls that differ in: collective, count, type, operation, root, class of slots, kind of
/// payload. Rank 1 makes the second call. In two pairs ranks wait for one another and neither sends: no
/// message shows the mismatch; the ranks compare their calls by queries.
pub(crate) const PAIRS: [(&str, &str); 13] = [
    ("sum", "broadcast"),
    ("sum", "count"),
    ("sum", "type"),
    ("bytes", "bools"),
    ("sum", "max"),
    ("broadcast", "broadcast from 1"),
    ("word", "large"),
    ("large", "word"),
    ("sum", "barrier"),
    ("gather", "scatter"),
    ("reduce", "reduce to 1"),
    ("barrier", "split"),
    ("split", "duplicate"),
];

/// Makes the call of this name.
pub(crate) fn make(name: &str, comm: &mut Communicator) -> Result<()> {
    let world = comm.world();
    let numbers =
        |text: &str| text.split(' ').map(|it| it.parse().unwrap()).collect::<Vec<usize>>();
    if let Some(counts) = name.strip_prefix("counts ").map(numbers) {
        let mine = vec![1u64; counts[comm.rank()]];
        return comm.all_gather((&mine, &mut vec![0; counts.iter().sum()], &counts));
    }
    match name {
        "ring" | "one-shot" => {
            comm.set_algorithm(Some(name.parse().unwrap()));
            comm.all_reduce(&mut vec![1u64; 1000], ReduceOp::Sum)
        }
        "sum" => comm.all_reduce(&mut [1f32; 100], ReduceOp::Sum),
        "max" => comm.all_reduce(&mut [1f32; 100], ReduceOp::Max),
        "count" => comm.all_reduce(&mut [1f32; 101], ReduceOp::Sum),
        "type" => comm.all_reduce(&mut [1i32; 100], ReduceOp::Sum),
        "bytes" => comm.all_reduce(&mut [1u8; 100], ReduceOp::Or),
        "bools" => comm.all_reduce(&mut [true; 100], ReduceOp::Or),
        "broadcast" => comm.broadcast(&mut [1f32; 100], 0),
        "broadcast from 1" => comm.broadcast(&mut [1f32; 100], 1),
        "reduce" => comm.reduce(&mut [1f32; 100], ReduceOp::Sum, 0),
        "reduce to 1" => comm.reduce(&mut [1f32; 100], ReduceOp::Sum, 1),
        "word" => comm.all_reduce(&mut [1u64], ReduceOp::Sum),
        "large" => comm.all_reduce(&mut vec![1u64; 1 << 17], ReduceOp::Sum),
        "gather" => comm.gather((&[1f32; 100], &mut vec![0.0; 100 * world]), 0),
        "scatter" => comm.scatter((&vec![1f32; 100 * world], &mut [0.0; 100]), 0),
        "barrier" => comm.barrier(),
        "split" => comm.split(Some(0), 0).map(drop),
        "duplicate" => comm.duplicate().map(drop),
        "deterministic sum" => {
            comm.set_deterministic(true);
            comm.all_reduce(&mut [1f32; 100], ReduceOp::Sum)
        }
        "plus" | "times" => {
            let name = if name == "plus" { "plus" } else { "times" };
            let own = Operation::new(name, true, |_: &[f32], _: &mut [f32]| {});
            comm.all_reduce(&mut [1f32; 100], &own)
        }
        other => panic!("there is no call {other}"),
    }
}
