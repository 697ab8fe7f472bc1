//! Large vectors from and to a root: scatter and all-gather; reduce-scatter and gather.
//!
//! ```text
//! scatter-all-gather broadcast, n = 4
//!      rank 0         rank 1        rank 2        rank 3
//! 0    in2,3 ->2
//!      in1 ->1
//!      out0 =in0 ->3
//! 1                   out1 <-0 ->0  out2 <-0      out0 <-0
//!                                   tmp3 <-0 ->3
//!                                   out2 ->1
//! 2    out1 <-1       out2 <-2                    out3 <-2 ->2
//!      out0,1 ->2     out1,2 ->3                  out3,0 ->1
//! 3                   out3,0 <-3    out3 <-3      out1,2 <-1
//!                                   out2,3 ->0
//!                                   out0,1 <-0
//! 4    out2,3 <-2
//! ```
//!
//! The root scatters its vector ([`binomial`]), and an all-gather of the parts
//! follows ([`bruck`]).
//!
//! **Cost**: 2 ceil(lg n) a + 2 (n-1)/n S b, or less, because the root's own part needs no message.
//!
//! **Why**: lg n steps, in which no rank sends more than twice the vector. For large vectors
//! without windows, or where many windows cost too much. With windows, the chain and the double
//! tree send half as many bytes.
//!
//! # Reduce
//!
//! ```text
//! reduce-scatter-gather reduce, n = 4
//!      rank 0             rank 1              rank 2             rank 3
//! 0    in1,3 ->1          in0,2 ->0           in3,1 ->3          in2,0 ->2
//! 1    tmp0 =in0 +=1      tmp5 <-0 +=in1      tmp6 =in2 +=3      tmp7 <-2 +=in3
//!      tmp2 =in2 +=1 ->2  tmp7 <-0 +=in3 ->3  tmp4 =in0 +=3 ->0  tmp5 <-2 +=in1 ->1
//! 2    out0 =tmp0 +=2     tmp1 =tmp5 +=3 ->0  tmp2 <-0 +=tmp6    tmp3 <-1 +=tmp7 ->2
//! 3    out1 <-1                               tmp11 <-3
//!                                             tmp2,11 ->0
//! 4    out2,3 <-2
//! ```
//!
//! Broadcast backwards: every rank combines one part ([`halving`]; if n is no power
//! of two [`pairwise`], which needs no extra ranks), and the root gathers the
//! parts.
//!
//! **Cost**: 2 lg n a + 2 (n-1)/n S b + (n-1)/n S g for a power of two; else n-1 + ceil(lg n) steps
//! of the same bytes.
//!
//! **Why**: all ranks share the additions, which otherwise fall to the root or to the inner nodes
//! of a tree.
//!
//! **Source**: M. Barnett, S. Gupta, D. Payne, L. Shuler, R. van de Geijn, J. Watts,
//! "Interprocessor collective communication library (InterCom)", SHPCC 1994; R. Rabenseifner,
//! "Optimization of collective reduction operations", ICCS 2004.

use super::compose::{Composer, SubSchedule, WholeBuffer};
use super::{binomial, bruck, halving, pairwise};
use crate::schedule::Schedule;
use crate::schedule::collective::Collective;

pub(super) fn schedule(collective: Collective, world: usize, rank: usize) -> Option<Schedule> {
    match collective {
        Collective::Broadcast { root } => broadcast(world, rank, root),
        Collective::Reduce { root } => reduce(world, rank, root),
        _ => None,
    }
}

fn broadcast(world: usize, rank: usize, root: usize) -> Option<Schedule> {
    let mut whole = Composer::new(world);
    let scatter = binomial::schedule(Collective::Scatter { root }, world, rank)?;
    let all_gather = bruck::schedule(Collective::AllGather, world, rank)?;
    add(&mut whole, &scatter, WholeBuffer::Input, WholeBuffer::Output);
    add(&mut whole, &all_gather, WholeBuffer::Output, WholeBuffer::Output);
    Some(whole.end())
}

fn reduce(world: usize, rank: usize, root: usize) -> Option<Schedule> {
    let mut whole = Composer::new(world);
    let first = match world.is_power_of_two() {
        true => halving::schedule(Collective::ReduceScatter, world, rank)?,
        false => pairwise::schedule(Collective::ReduceScatter, world, rank)?,
    };
    let gather = binomial::schedule(Collective::Gather { root }, world, rank)?;
    let sums = if rank == root { WholeBuffer::Output } else { whole.row() };
    add(&mut whole, &first, WholeBuffer::Input, sums);
    add(&mut whole, &gather, sums, WholeBuffer::Output);
    Some(whole.end())
}

/// Adds a part among all ranks, with one block for each.
fn add(whole: &mut Composer, schedule: &Schedule, input: WholeBuffer, output: WholeBuffer) {
    let ranks: Vec<usize> = (0..schedule.chunks).collect();
    let chunks: Vec<Vec<usize>> = ranks.iter().map(|rank| vec![*rank]).collect();
    whole.then(&SubSchedule { schedule, ranks: &ranks, chunks: &chunks, input, output });
}
