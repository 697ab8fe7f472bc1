//! Bruck: rounds of doubling distance around a ring, for every number of ranks.
//!
//! ```text
//! bruck all_gather, n = 4
//!      rank 0         rank 1         rank 2         rank 3
//! 0    out0 =in0 ->3  out1 =in1 ->0  out2 =in2 ->1  out3 =in3 ->2
//! 1    out1 <-1       out2 <-2       out3 <-3       out0 <-0
//!      out0,1 ->2     out1,2 ->3     out2,3 ->0     out3,0 ->1
//! 2    out2,3 <-2     out3,0 <-3     out0,1 <-0     out1,2 <-1
//! ```
//!
//! In round `i`, each rank sends all its blocks, or as many as the receiver lacks, to the rank 2^i
//! before it. After the round it has twice as many blocks: its own and those of the ranks after it.
//!
//! **Cost**: ceil(lg n) a + (n-1)/n S b for every n: blocks that travel together are one message.
//!
//! **Why**: the fewest steps and the fewest bytes, for blocks of small and middle size in worlds of
//! any size. Steps name blocks by the ranks that own them, so no rotation is needed at the end.
//! Implementations that count blocks from the rank that holds them need one.
//!
//! # All-to-all
//!
//! A block for the rank `d` after its sender travels in round `i` if bit `i` of `d` is set. The
//! ranks between keep it in scratch.
//!
//! ```text
//! bruck all_to_all, n = 4
//!      rank 0      rank 1      rank 2      rank 3
//! 0    out0 =in0   out1 =in1   out2 =in2   out3 =in3
//!      in1,3 ->1   in2,0 ->2   in3,1 ->3   in0,2 ->0
//! 1    out3 <-3    out0 <-0    out1 <-1    out2 <-2
//!      tmp3 <-3    tmp3 <-0    tmp3 <-1    tmp3 <-2
//!      in2 ->2     in3 ->3     in0 ->0     in1 ->1
//!      tmp3 ->2    tmp3 ->3    tmp3 ->0    tmp3 ->1
//! 2    out2,1 <-2  out3,2 <-3  out0,3 <-0  out1,0 <-1
//! ```
//!
//! **Cost**: ceil(lg n) a + S/2 lg n b for a power of two (S: all blocks of a rank).
//!
//! **Why**: for tiny blocks in big worlds: lg n messages instead of n-1, but each byte travels lg n
//! / 2 times. All blocks must be equally long, because they share scratch.
//!
//! **Source**: J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby, "Efficient algorithms for
//! all-to-all communications in multiport message-passing systems", IEEE TPDS 1997.

use super::steps::{receive, send};
use crate::schedule::collective::Collective;
use crate::schedule::{Schedule, Span, Step, input, output, scratch};

pub(super) fn schedule(collective: Collective, world: usize, rank: usize) -> Option<Schedule> {
    match collective {
        Collective::AllGather => Some(all_gather(world, rank)),
        Collective::AllToAll => Some(all_to_all(world, rank)),
        _ => None,
    }
}

/// 1, 2, 4 ... below `world`.
fn distances(world: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1), |distance| Some(distance * 2))
        .take_while(move |&distance| distance < world)
}

fn all_gather(world: usize, rank: usize) -> Schedule {
    let mut steps = vec![Step::Copy { from: input(rank), into: output(rank) }];
    for distance in distances(world) {
        let to = (rank + world - distance) % world;
        let from = (rank + distance) % world;
        let blocks = 0..distance.min(world - distance);
        steps.extend(send(to, blocks.clone().map(|nth| output((rank + nth) % world))));
        steps.extend(receive(from, blocks.map(|nth| (from + nth) % world)));
    }
    Schedule::new(world, steps)
}

fn all_to_all(world: usize, rank: usize) -> Schedule {
    let mut steps = vec![Step::Copy { from: input(rank), into: output(rank) }];
    for distance in distances(world) {
        let to = (rank + distance) % world;
        let from = (rank + world - distance) % world;
        let moving = (1..world).filter(|way| way & distance != 0);
        steps.extend(
            moving
                .clone()
                .map(|way| Step::Send { from: place(world, rank, way, way & (distance - 1)), to }),
        );
        let arrived = |way: usize| place(world, rank, way, way & (2 * distance - 1));
        steps.extend(moving.map(|way| Step::Recv { into: arrived(way), from }));
    }
    Schedule::new(world, steps)
}

/// Where `rank` keeps the block that travels a distance of `way` in all and has travelled `gone` of
/// it. Two rows of scratch take turns, because a block that is being sent must not be overwritten
/// by a block that arrives in the same round.
fn place(world: usize, rank: usize, way: usize, gone: usize) -> Span {
    match gone.count_ones() as usize {
        0 => input((rank + way) % world),
        _ if gone == way => output((rank + world - way) % world),
        hops => scratch((hops - 1) % 2 * world + way),
    }
}
