//! Pairwise exchange: the `i`-th message of a rank goes to the rank `i` after it, and its `i`-th
//! receive is from the rank `i` before it.
//!
//! ```text
//! pairwise all_to_all, n = 4
//!      rank 0     rank 1     rank 2     rank 3
//! 0    out0 =in0  out1 =in1  out2 =in2  out3 =in3
//!      in1 ->1    in2 ->2    in3 ->3    in0 ->0
//!      in2 ->2    in3 ->3    in0 ->0    in1 ->1
//!      in3 ->3    in0 ->0    in1 ->1    in2 ->2
//! 1    out3 <-3   out0 <-0   out1 <-1   out2 <-2
//!      out2 <-2   out3 <-3   out0 <-0   out1 <-1
//!      out1 <-1   out2 <-2   out3 <-3   out0 <-0
//! ```
//!
//! **Cost**: n-1 messages and (n-1)/n S bytes a rank. The messages do not depend on one another, so
//! an executor in conflict order needs a + (n-1)/n S b. One that takes the list step by step needs
//! (n-1) (a + S/n b).
//!
//! **Why**: every block travels once, straight to its place, and the i-th message of every rank
//! goes to another receiver. For tiny blocks in big worlds an algorithm with fewer messages is
//! faster.
//!
//! # Reduce-scatter
//!
//! ```text
//! pairwise reduce_scatter, n = 4
//!      rank 0     rank 1     rank 2     rank 3
//! 0    out0 =in0  out1 =in1  out2 =in2  out3 =in3
//!      in1 ->1    in2 ->2    in3 ->3    in0 ->0
//!      in2 ->2    in3 ->3    in0 ->0    in1 ->1
//!      in3 ->3    in0 ->0    in1 ->1    in2 ->2
//! 1    out0 +=3   out1 +=0   out2 +=1   out3 +=2
//!      out0 +=2   out1 +=3   out2 +=0   out3 +=1
//!      out0 +=1   out1 +=2   out2 +=3   out3 +=0
//! ```
//!
//! **Cost**: the same messages, and (n-1)/n S bytes to add: a + (n-1)/n S (b + g) where adding
//! does not overlap with receiving.
//!
//! **Why**: as few bytes as a ring, but no partial sums travel, so no message waits for another. A
//! rank adds the parts of the ranks before it, the nearest first. For operations that do not
//! commute, use [`direct`](super::direct).
//!
//! **Source**: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication
//! operations in MPICH", IJHPCA 2005, section 4.

use super::steps::others;
use crate::schedule::collective::Collective;
use crate::schedule::{Schedule, Step, input, output};

pub(super) fn schedule(collective: Collective, world: usize, rank: usize) -> Option<Schedule> {
    let receive: fn(usize, usize) -> Step = match collective {
        Collective::AllToAll => |_, from| Step::Recv { into: output(from), from },
        Collective::ReduceScatter => |rank, from| Step::RecvReduce { into: output(rank), from },
        _ => return None,
    };
    let mut steps = vec![Step::Copy { from: input(rank), into: output(rank) }];
    for to in others(world, rank) {
        let from = (2 * rank + world - to) % world;
        steps.push(Step::Send { from: input(to), to });
        steps.push(receive(rank, from));
    }
    Some(Schedule::new(world, steps))
}
