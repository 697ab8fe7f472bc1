//! Linear: the root exchanges messages with every rank itself.
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
//! **Cost**: gather and scatter n-1 messages and (n-1)/n S bytes at the root: a + (n-1)/n S b,
//! because no message waits for another; broadcast a + (n-1) S b.
//!
//! **Why**: no rank carries the bytes of others. For large blocks, and for blocks of any length,
//! because only sender and receiver need the length. Where ranks share memory, a broadcast is
//! written once.
//!
//! # Reduce
//!
//! The root combines the vectors of all ranks in the order of the ranks, at any root.
//!
//! ```text
//! linear reduce, n = 4
//!      rank 0                 rank 1   rank 2   rank 3
//! 0                           in0 ->0  in0 ->0  in0 ->0
//! 1    out0 =in0 +=1 +=2 +=3
//! ```
//!
//! **Cost**: a + (n-1) S (b + g), and the root's additions overlap what still arrives.
//!
//! **Why**: x0 op x1 op x2 ..., left to right, at every root: the plain loop over the ranks, bit by
//! bit. It is one combination of n sources, so each element is stored once.
//!
//! **Source**: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication
//! operations in MPICH", IJHPCA 2005 (the baseline of each section).

use super::steps::{fold_in_rank_order, others};
use super::tree::TreeNode;
use crate::schedule::collective::Collective;
use crate::schedule::{Schedule, Step, input, output};

pub(super) fn schedule(collective: Collective, world: usize, rank: usize) -> Option<Schedule> {
    match collective {
        Collective::Broadcast { root } => Some(broadcast(world, rank, root)),
        Collective::Reduce { root } => Some(reduce(world, rank, root)),
        Collective::Gather { root } => Some(gather(world, rank, root)),
        Collective::Scatter { root } => Some(scatter(world, rank, root)),
        _ => None,
    }
}

fn broadcast(world: usize, rank: usize, root: usize) -> Schedule {
    let node = match rank == root {
        true => TreeNode { parent: None, children: others(world, root).collect() },
        false => TreeNode { parent: Some(root), children: Vec::new() },
    };
    Schedule::new(1, node.broadcast())
}

fn reduce(world: usize, rank: usize, root: usize) -> Schedule {
    if rank != root {
        return Schedule::new(1, vec![Step::Send { from: input(0), to: root }]);
    }
    Schedule::new(1, fold_in_rank_order(world, root, input(0), output(0)).collect())
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
