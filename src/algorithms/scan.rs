//! Scans: rank `r` gets the sum of the ranks before it, with its own part (scan) or without it
//! (exclusive scan).
//!
//! # The chain
//!
//! ```text
//! ring scan, n = 4
//!      rank 0         rank 1              rank 2              rank 3
//! 0    out0 =in0 ->1
//! 1                   out0 <-0 +=in0 ->2
//! 2                                       out0 <-1 +=in0 ->3
//! 3                                                           out0 <-2 +=in0
//! ```
//!
//! ```text
//! ring exclusive_scan, n = 4
//!      rank 0   rank 1                rank 2                rank 3
//! 0    in0 ->1
//! 1             out0 <-0
//!               tmp0 =out0 +=in0 ->2
//! 2                                   out0 <-1
//!                                     tmp0 =out0 +=in0 ->3
//! 3                                                         out0 <-2
//! ```
//!
//! **Cost**: n-1 steps and S bytes a rank; in k windows (n - 2 + k) (a + S/k (b + g)), where adding
//! is not overlapped.
//!
//! **Why**: no algorithm sends or adds less; x0 op x1 op x2 ..., left to right. For large vectors.
//!
//! # Recursive doubling
//!
//! In round `i`, each rank sends its value to the rank 2^i after it. After the round it holds the
//! sum of twice as many ranks, itself the last of them, until rank 0 is among them.
//!
//! ```text
//! recursive-doubling scan, n = 4
//!      rank 0     rank 1              rank 2           rank 3
//! 0    in0 ->1,2  in0 ->2             in0 ->3
//!      out0 =in0
//! 1               tmp0 <-0 +=in0 ->3  tmp0 <-1 +=in0   tmp0 <-2 +=in0
//!                 out0 =tmp0          out0 <-0 +=tmp0
//! 2                                                    out0 <-1 +=tmp0
//! ```
//!
//! An exclusive scan is a scan to which each rank brings the input of its left neighbour.
//!
//! ```text
//! recursive-doubling exclusive_scan, n = 4
//!      rank 0   rank 1          rank 2           rank 3
//! 0    in0 ->1  in0 ->2         in0 ->3
//! 1             out0 <-0 ->2,3  tmp0 <-1 ->3     tmp0 <-2
//! 2                             out0 <-1 +=tmp0  tmp1 <-2 +=tmp0
//!                                                out0 <-1 +=tmp1
//! ```
//!
//! **Cost**: ceil(lg n) (a + S (b + g)); exclusive a + S b + ceil(lg (n-1)) (a + S (b + g)).
//!
//! **Why**: the fewest steps, for small vectors. Everything is combined in the order of the ranks.
//!
//! **Source**: W. D. Hillis, G. L. Steele, "Data parallel algorithms", CACM 1986.

use super::steps::{combine, other_scratch};
use crate::schedule::{Schedule, Span, Step, input, output, scratch};

pub(super) fn chain(world: usize, rank: usize) -> Schedule {
    let mut steps = match rank.checked_sub(1) {
        None => vec![Step::Copy { from: input(0), into: output(0) }],
        Some(left) => combine(rank, left, input(0), output(0)).to_vec(),
    };
    steps.extend(right(world, rank).map(|to| Step::Send { from: output(0), to }));
    Schedule::new(1, steps)
}

pub(super) fn exclusive_chain(world: usize, rank: usize) -> Schedule {
    let mut steps = Vec::new();
    let mut sum = input(0);
    if let Some(from) = rank.checked_sub(1) {
        steps.push(Step::Recv { into: output(0), from });
        sum = scratch(0);
    }
    if let Some(to) = right(world, rank) {
        if sum == scratch(0) {
            steps.push(Step::Copy { from: output(0), into: sum });
            steps.push(Step::Reduce { from: input(0), into: sum });
        }
        steps.push(Step::Send { from: sum, to });
    }
    Schedule::new(1, steps)
}

fn right(world: usize, rank: usize) -> Option<usize> {
    (rank + 1 < world).then_some(rank + 1)
}

pub(super) fn doubling(world: usize, rank: usize) -> Schedule {
    let mut steps = Vec::new();
    let held = rounds(0..world, rank, input(0), &mut steps);
    if held != output(0) {
        steps.push(Step::Copy { from: held, into: output(0) });
    }
    Schedule::new(1, steps)
}

pub(super) fn exclusive_doubling(world: usize, rank: usize) -> Schedule {
    let mut steps: Vec<Step> =
        right(world, rank).map(|to| Step::Send { from: input(0), to }).into_iter().collect();
    if let Some(from) = rank.checked_sub(1) {
        let into = if rank == 1 { output(0) } else { scratch(0) };
        steps.push(Step::Recv { into, from });
        rounds(1..world, rank, into, &mut steps);
    }
    Schedule::new(1, steps)
}

/// The rounds of a scan of `ranks`, and where its result is. `held` is this rank's contribution.
fn rounds(
    ranks: std::ops::Range<usize>,
    rank: usize,
    mut held: Span,
    steps: &mut Vec<Step>,
) -> Span {
    let distances = std::iter::successors(Some(1), |distance| Some(distance * 2));
    for distance in distances.take_while(|distance| *distance < ranks.len()) {
        if rank + distance < ranks.end {
            steps.push(Step::Send { from: held, to: rank + distance });
        }
        if rank >= ranks.start + distance {
            let last = rank < ranks.start + 2 * distance;
            // In place, the output is the input, so the sum must have gone through scratch.
            let next = if last && held != input(0) { output(0) } else { other_scratch(held) };
            steps.extend(combine(rank, rank - distance, held, next));
            held = next;
        }
    }
    held
}
