//! Direct: whoever needs it gets it from whoever has it, in one message.
//!
//! # One shot
//!
//! Everybody sends its whole vector to everybody, and everybody combines all of them in rank order.
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
//! **Why**: nothing waits twice. The fastest for small vectors, and where ranks share memory one publication serves all.
//!
//! # Two shots
//!
//! Reduce-scatter, then all-gather: rank `c` combines everybody's chunk `c` in rank order and sends it to everybody.
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
//! **Why**: as few bytes as a ring in two steps, wherever all pairs are equally near: a switch, or one host's memory.
//!
//! # Linear
//!
//! The root talks to everybody itself. In a reduce-scatter every rank is the root of its own block.
//!
//! ```text
//! linear gather, n = 4
//!      rank 0     rank 1   rank 2   rank 3
//! 0    out0 =in0  in1 ->0  in2 ->0  in3 ->0
//! 1    out1 <-1
//!      out2 <-2
//!      out3 <-3
//! ```
//!
//! **Cost**: gather, scatter and reduce-scatter n-1 messages and (n-1)/n S bytes at the root; broadcast and reduce
//! (n-1) S bytes.
//!
//! **Why**: nobody carries others' bytes: large blocks, and blocks of any length, because each pair knows its own. And
//! the root combines in rank order whichever rank it is: right for operations that do not commute.
//!
//! **Source**: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH",
//! IJHPCA 2005 (the direct forms as the baseline of each section); one and two shots by these names are what
//! shared-memory and switched-accelerator libraries call them.

use super::{Collective, fold_in_rank_order, others};
use crate::schedule::{Schedule, Step, input, output, scratch};

pub(super) fn one_shot(world: usize, rank: usize) -> Schedule {
    let sends = others(world, rank).map(|to| Step::Send { from: input(0), to });
    Schedule::new(1, sends.chain(fold_in_rank_order(world, rank, input(0), output(0))).collect())
}

pub(super) fn two_shot(world: usize, rank: usize) -> Schedule {
    let scatter = others(world, rank).map(|to| Step::Send { from: input(to), to });
    let reduce = fold_in_rank_order(world, rank, input(rank), output(rank));
    let gather = others(world, rank).map(|to| Step::Send { from: output(rank), to });
    let collect = others(world, rank).map(|from| Step::Recv { into: output(from), from });
    Schedule::new(world, scatter.chain(reduce).chain(gather).chain(collect).collect())
}

pub(super) fn linear(collective: Collective, world: usize, rank: usize) -> Option<Schedule> {
    match collective {
        Collective::Broadcast { root } => Some(broadcast(world, rank, root)),
        Collective::Gather { root } => Some(gather(world, rank, root)),
        Collective::Scatter { root } => Some(scatter(world, rank, root)),
        Collective::Reduce { root } => Some(reduce(world, rank, root)),
        Collective::ReduceScatter => Some(reduce_scatter(world, rank)),
        Collective::AllReduce | Collective::AllGather | Collective::AllToAll | Collective::Barrier => None,
    }
}

fn broadcast(world: usize, rank: usize, root: usize) -> Schedule {
    if rank != root {
        return Schedule::new(1, vec![Step::Recv { into: output(0), from: root }]);
    }
    let sends = others(world, root).map(|to| Step::Send { from: output(0), to });
    Schedule::new(1, std::iter::once(Step::Copy { from: input(0), into: output(0) }).chain(sends).collect())
}

fn gather(world: usize, rank: usize, root: usize) -> Schedule {
    if rank != root {
        return Schedule::new(world, vec![Step::Send { from: input(rank), to: root }]);
    }
    let own = Step::Copy { from: input(root), into: output(root) };
    let receives = others(world, root).map(|from| Step::Recv { into: output(from), from });
    Schedule::new(world, std::iter::once(own).chain(receives).collect())
}

fn scatter(world: usize, rank: usize, root: usize) -> Schedule {
    if rank != root {
        return Schedule::new(world, vec![Step::Recv { into: output(rank), from: root }]);
    }
    let own = Step::Copy { from: input(root), into: output(root) };
    let sends = others(world, root).map(|to| Step::Send { from: input(to), to });
    Schedule::new(world, sends.chain(std::iter::once(own)).collect())
}

fn reduce(world: usize, rank: usize, root: usize) -> Schedule {
    if rank != root {
        return Schedule::new(1, vec![Step::Send { from: input(0), to: root }]);
    }
    Schedule::new(1, combine(world, root, 0))
}

fn reduce_scatter(world: usize, rank: usize) -> Schedule {
    let sends = others(world, rank).map(|to| Step::Send { from: input(to), to });
    Schedule::new(world, sends.chain(combine(world, rank, rank)).collect())
}

/// Everybody's `chunk` in rank order. Where lower ranks come first, the output waits, for it may be our input still.
fn combine(world: usize, rank: usize, chunk: usize) -> Vec<Step> {
    if rank == 0 {
        return fold_in_rank_order(world, rank, input(chunk), output(chunk)).collect();
    }
    let sum = scratch(chunk);
    let own = Step::Copy { from: sum, into: output(chunk) };
    fold_in_rank_order(world, rank, input(chunk), sum).chain([own]).collect()
}
