//! Direct: every rank sends each block straight to the ranks that need it, in one message.
//!
//! # One shot
//!
//! Every rank sends its whole vector to all others, and every rank combines all of them in rank
//! order.
//!
//! ```text
//! one-shot all_reduce, n = 4
//!      rank 0                 rank 1                  rank 2                  rank 3
//! 0    in0 ->all              in0 ->all               in0 ->all               in0 ->all
//! 1    out0 =in0 +=1 +=2 +=3  out0 <-0 +=in0 +=2 +=3  out0 <-0 +=1 +=in0 +=3  out0 <-0 +=1 +=2 +=in0
//! ```
//!
//! **Cost**: one step, (n-1) S bytes a rank: a + (n-1) S b.
//!
//! **Why**: one message latency. The fastest for small vectors; where ranks share memory, one
//! publication serves all readers. Without bytes it is a barrier of one latency, in place of dissemination's
//! ceil(lg n): the faster one where a message's time is that of the network.
//!
//! # Two shots
//!
//! Reduce-scatter, then all-gather: rank `c` combines chunk `c` of all ranks in rank order and
//! sends the result to all.
//!
//! ```text
//! two-shot all_reduce, n = 4
//!      rank 0                       rank 1                        rank 2                        rank 3
//! 0    in1 ->1                      in2 ->2                       in3 ->3                       in0 ->0
//!      in2 ->2                      in3 ->3                       in0 ->0                       in1 ->1
//!      in3 ->3                      in0 ->0                       in1 ->1                       in2 ->2
//! 1    out0 =in0 +=1 +=2 +=3 ->all  out1 <-0 +=in1 +=2 +=3 ->all  out2 <-0 +=1 +=in2 +=3 ->all  out3 <-0 +=1 +=2 +=in3 ->all
//! 2    out1 <-1                     out2 <-2                      out3 <-3                      out0 <-0
//!      out2 <-2                     out3 <-3                      out0 <-0                      out1 <-1
//!      out3 <-3                     out0 <-0                      out1 <-1                      out2 <-2
//! ```
//!
//! **Cost**: two steps, 2 (n-1)/n S bytes a rank: 2 a + 2 (n-1)/n S b.
//!
//! **Why**: as few bytes as a ring in two steps, wherever all pairs are equally near: a switch, or
//! one host's memory.
//!
//! # Blocks
//!
//! The two halves of two-shot, each as a collective of its own, and all-to-all.
//!
//! ```text
//! direct reduce_scatter, n = 4
//!      rank 0                 rank 1                  rank 2                  rank 3
//! 0    in1 ->1                in2 ->2                 in3 ->3                 in0 ->0
//!      in2 ->2                in3 ->3                 in0 ->0                 in1 ->1
//!      in3 ->3                in0 ->0                 in1 ->1                 in2 ->2
//! 1    out0 =in0 +=1 +=2 +=3  out1 <-0 +=in1 +=2 +=3  out2 <-0 +=1 +=in2 +=3  out3 <-0 +=1 +=2 +=in3
//! ```
//!
//! ```text
//! direct all_gather, n = 4
//!      rank 0     rank 1     rank 2     rank 3
//! 0    out0 =in0  out1 =in1  out2 =in2  out3 =in3
//!      in0 ->all  in1 ->all  in2 ->all  in3 ->all
//! 1    out1 <-1   out2 <-2   out3 <-3   out0 <-0
//!      out2 <-2   out3 <-3   out0 <-0   out1 <-1
//!      out3 <-3   out0 <-0   out1 <-1   out2 <-2
//! ```
//!
//! **Cost**: n-1 messages and (n-1)/n S bytes a rank. No message waits for another: a + (n-1)/n S
//! b.
//!
//! **Why**: the fewest steps and the fewest bytes, if all links can be fed concurrently. The result
//! of the reduce-scatter is the plain loop over the ranks, bit by bit, and blocks may have any
//! lengths.
//!
//! **Source**: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication
//! operations in MPICH", IJHPCA 2005 (the direct forms as the baseline of each section); libraries
//! for shared memory and for switched accelerators use the names one-shot and two-shot.

use super::steps::{fold_in_rank_order, others};
use crate::schedule::collective::Collective;
use crate::schedule::{Schedule, Step, input, output};

pub(super) fn one_shot(world: usize, rank: usize) -> Schedule {
    let sends = others(world, rank).map(|to| Step::Send { from: input(0), to });
    Schedule::new(1, sends.chain(fold_in_rank_order(world, rank, input(0), output(0))).collect())
}

pub(super) fn two_shot(world: usize, rank: usize) -> Schedule {
    let gather = others(world, rank).map(|to| Step::Send { from: output(rank), to });
    let steps = reduce_blocks(world, rank).chain(gather).chain(receive_blocks(world, rank));
    Schedule::new(world, steps.collect())
}

pub(super) fn schedule(collective: Collective, world: usize, rank: usize) -> Option<Schedule> {
    let steps = match collective {
        Collective::ReduceScatter => reduce_blocks(world, rank).collect(),
        Collective::AllGather => {
            let sends = others(world, rank).map(|to| Step::Send { from: input(rank), to });
            std::iter::once(own(rank)).chain(sends).chain(receive_blocks(world, rank)).collect()
        }
        Collective::AllToAll => {
            let sends = others(world, rank).map(|to| Step::Send { from: input(to), to });
            sends.chain([own(rank)]).chain(receive_blocks(world, rank)).collect()
        }
        _ => return None,
    };
    Some(Schedule::new(world, steps))
}

/// Every rank receives its block from all other ranks and combines the blocks in rank order.
fn reduce_blocks(world: usize, rank: usize) -> impl Iterator<Item = Step> {
    let sends = others(world, rank).map(|to| Step::Send { from: input(to), to });
    sends.chain(fold_in_rank_order(world, rank, input(rank), output(rank)))
}

fn receive_blocks(world: usize, rank: usize) -> impl Iterator<Item = Step> {
    others(world, rank).map(|from| Step::Recv { into: output(from), from })
}

fn own(rank: usize) -> Step {
    Step::Copy { from: input(rank), into: output(rank) }
}
