//! Recursive doubling: in round `i`, exchange everything with the rank whose number differs in bit
//! `i`.
//!
//! ```text
//! recursive-doubling all_reduce, n = 4
//!      rank 0             rank 1              rank 2             rank 3
//! 0    in0 ->1            in0 ->0             in0 ->3            in0 ->2
//! 1    tmp0 =in0 +=1 ->2  tmp0 <-0 +=in0 ->3  tmp0 =in0 +=3 ->0  tmp0 <-2 +=in0 ->1
//! 2    out0 =tmp0 +=2     out0 =tmp0 +=3      out0 <-0 +=tmp0    out0 <-1 +=tmp0
//! ```
//!
//! After round `i`, 2^(i+1) neighbours hold the same. The two partners of an exchange send their
//! values and combine them, in the order of the ranks, in *another* place: a schedule's links hold
//! nothing, so a span that is being sent must not be overwritten before the partner has taken it,
//! and the partner waits in the same way.
//!
//! **Cost**: all-reduce lg n (a + S (b + g)). If n is no power of two, the
//! [extra ranks](super::power_of_two) take two steps more.
//!
//! **Why**: half as many steps as up and down a tree, and all ranks work in each step. For small
//! vectors in big worlds, where one-shot needs too many messages. The bits are the same on every
//! rank, because all combine in one order.
//!
//! # All-gather
//!
//! ```text
//! recursive-doubling all_gather, n = 4
//!      rank 0         rank 1         rank 2         rank 3
//! 0    out0 =in0 ->1  out1 =in1 ->0  out2 =in2 ->3  out3 =in3 ->2
//! 1    out1 <-1       out0 <-0       out3 <-3       out2 <-2
//!      out0,1 ->2     out1,0 ->3     out2,3 ->0     out3,2 ->1
//! 2    out2,3 <-2     out3,2 <-3     out0,1 <-0     out1,0 <-1
//! ```
//!
//! **Cost**: lg n a + (n-1)/n S b; two steps more if n is no power of two, and S b more for an
//! extra rank.
//!
//! **Why**: the fewest steps with the fewest bytes, between partners that stay partners.
//! [`bruck`](super::bruck) is as good for every n.
//!
//! **Source**: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication
//! operations in MPICH", IJHPCA 2005, sections 4.1 and 4.5.

use super::power_of_two::{CoreRanks, folded};
use super::scan;
use super::steps::{combine, other_scratch, receive, send};
use crate::schedule::collective::Collective;
use crate::schedule::{Schedule, Step, input, output, scratch};

pub(super) fn schedule(collective: Collective, world: usize, rank: usize) -> Option<Schedule> {
    match collective {
        Collective::AllReduce => Some(all_reduce(world, rank)),
        Collective::AllGather => Some(Schedule::new(world, all_gather(world, rank))),
        Collective::Scan => Some(scan::doubling(world, rank)),
        Collective::ExclusiveScan => Some(scan::exclusive_doubling(world, rank)),
        _ => None,
    }
}

fn all_reduce(world: usize, rank: usize) -> Schedule {
    let core_ranks = CoreRanks::new(world);
    let core = match core_ranks.find(rank) {
        Ok(core) => core,
        Err(partner) => return folded(partner, 1, [0]),
    };
    let mut steps: Vec<Step> = Vec::new();
    let mut held = input(0);
    if let Some(extra) = core.extra {
        steps.extend(combine(rank, extra, held, scratch(0)));
        held = scratch(0);
    }
    for level in 0..core_ranks.levels() {
        let peer = core_ranks.rank(core.index ^ 1 << level);
        // In place, the output is the input, so the sum must have gone through scratch.
        let last = level + 1 == core_ranks.levels() && held != input(0);
        let next = if last { output(0) } else { other_scratch(held) };
        steps.push(Step::Send { from: held, to: peer });
        steps.extend(combine(rank, peer, held, next));
        held = next;
    }
    steps.extend((held != output(0)).then_some(Step::Copy { from: held, into: output(0) }));
    steps.extend(core.extra.map(|to| Step::Send { from: output(0), to }));
    Schedule::new(1, steps)
}

fn all_gather(world: usize, rank: usize) -> Vec<Step> {
    let core_ranks = CoreRanks::new(world);
    let mut steps = vec![Step::Copy { from: input(rank), into: output(rank) }];
    let core = match core_ranks.find(rank) {
        Ok(core) => core,
        Err(partner) => {
            steps.push(Step::Send { from: input(rank), to: partner });
            steps.extend(receive(partner, (0..world).filter(|&block| block != rank)));
            return steps;
        }
    };
    steps.extend(core.extra.into_iter().flat_map(|extra| receive(extra, [extra])));
    for level in 0..core_ranks.levels() {
        // By the distance from `index`, so that ranks are symmetric.
        let group = |index: usize| {
            let of = move |other: usize| core_ranks.ranks(index ^ other..(index ^ other) + 1);
            (0..1 << level).flat_map(of)
        };
        let partner = core.index ^ 1 << level;
        steps.extend(send(core_ranks.rank(partner), group(core.index).map(output)));
        steps.extend(receive(core_ranks.rank(partner), group(partner)));
    }
    if let Some(extra) = core.extra {
        steps.extend(send(extra, (0..world).filter(|&block| block != extra).map(output)));
    }
    steps
}
