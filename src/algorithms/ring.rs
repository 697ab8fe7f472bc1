//! Ring: every rank sends to its right and receives from its left, and nothing else.
//!
//! Chunk `c` starts after its owner, rank `c`, and goes once around; each rank adds its own part
//! and passes it on. When it arrives at rank `c` it is complete (reduce-scatter); once more around,
//! and all ranks have it (all-gather).
//!
//! ```text
//! ring all_reduce, n = 4
//!      rank 0             rank 1             rank 2             rank 3
//! 0    in3 ->1            in0 ->2            in1 ->3            in2 ->0
//! 1    out2 =in2 +=3 ->1  out3 =in3 +=0 ->2  out0 =in0 +=1 ->3  out1 =in1 +=2 ->0
//! 2    out1 =in1 +=3 ->1  out2 =in2 +=0 ->2  out3 =in3 +=1 ->3  out0 =in0 +=2 ->0
//! 3    out0 =in0 +=3 ->1  out1 =in1 +=0 ->2  out2 =in2 +=1 ->3  out3 =in3 +=2 ->0
//! 4    out3 <-3 ->1       out0 <-0 ->2       out1 <-1 ->3       out2 <-2 ->0
//! 5    out2 <-3 ->1       out3 <-0 ->2       out0 <-1 ->3       out1 <-2 ->0
//! 6    out1 <-3           out2 <-0           out3 <-1           out0 <-2
//! ```
//!
//! **Cost**: all-reduce 2 (n-1) steps and 2 (n-1)/n S bytes a rank: 2 (n-1) (a + S/n b).
//! Reduce-scatter and all-gather half of it.
//!
//! **Why**: no algorithm sends fewer bytes, every link carries the same, and each rank needs one
//! neighbour on each side only. Its price is latency, which grows with n: for large vectors in
//! worlds that are not too large.
//!
//! **Source**: P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
//! workstations", JPDC 2009.
//!
//! # The chain: broadcast and reduce
//!
//! A ring cut open at the root. Cut into `k` windows, a vector flows through it as through a
//! pipeline.
//!
//! ```text
//! ring broadcast, n = 4
//!      rank 0         rank 1        rank 2        rank 3
//! 0    out0 =in0 ->1
//! 1                   out0 <-0 ->2
//! 2                                 out0 <-1 ->3
//! 3                                               out0 <-2
//! ```
//!
//! **Cost**: n-1 steps, S bytes a rank; in k windows (n - 2 + k) (a + S/k b). Reduce is broadcast
//! backwards: each rank adds the message of its right neighbour after its own part, so at root 0
//! the ranks meet in their order.
//!
//! **Why**: the fewest bytes a rank, for large vectors; a tree needs fewer steps for small ones.

use super::scan;
use super::tree::TreeNode;
use crate::schedule::collective::Collective;
use crate::schedule::{Schedule, Span, Step, input, output, scratch};

pub(super) fn schedule(collective: Collective, world: usize, rank: usize) -> Option<Schedule> {
    let ring = RingPosition { world, rank };
    match collective {
        Collective::Broadcast { root } => Some(Schedule::new(1, ring.chain(root).broadcast())),
        Collective::Reduce { root } => Some(Schedule::new(1, ring.chain(root).reduce())),
        Collective::AllReduce => Some(ring.all_reduce()),
        Collective::AllGather => Some(ring.all_gather()),
        Collective::ReduceScatter => Some(ring.reduce_scatter()),
        Collective::Scan => Some(scan::chain(world, rank)),
        Collective::ExclusiveScan => Some(scan::exclusive_chain(world, rank)),
        _ => None,
    }
}

struct RingPosition {
    world: usize,
    rank: usize,
}

impl RingPosition {
    fn right(&self) -> usize {
        (self.rank + 1) % self.world
    }

    fn left(&self) -> usize {
        self.behind(1)
    }

    /// The rank, and so the chunk, `distance` before us.
    fn behind(&self, distance: usize) -> usize {
        (self.rank + self.world - distance) % self.world
    }

    fn all_reduce(&self) -> Schedule {
        let steps = [self.reduce_around(output), self.gather_around()].concat();
        Schedule::new(self.world, steps)
    }

    fn reduce_scatter(&self) -> Schedule {
        let room = |chunk| if chunk == self.rank { output(chunk) } else { scratch(chunk) };
        Schedule::new(self.world, self.reduce_around(room))
    }

    fn all_gather(&self) -> Schedule {
        let mut steps = vec![Step::Copy { from: input(self.rank), into: output(self.rank) }];
        steps.extend(self.gather_around());
        Schedule::new(self.world, steps)
    }

    /// Each chunk ends, complete, at the rank of its number. `room` is where a chunk is combined.
    fn reduce_around(&self, room: impl Fn(usize) -> Span) -> Vec<Step> {
        let mut steps = vec![Step::Send { from: input(self.behind(1)), to: self.right() }];
        for chunk in (2..=self.world).map(|distance| self.behind(distance)) {
            let into = room(chunk);
            steps.push(Step::Copy { from: input(chunk), into });
            steps.push(Step::RecvReduce { into, from: self.left() });
            if chunk != self.rank {
                steps.push(Step::Send { from: into, to: self.right() });
            }
        }
        steps
    }

    /// Each rank's own chunk of the output goes to all ranks.
    fn gather_around(&self) -> Vec<Step> {
        let mut steps = vec![Step::Send { from: output(self.rank), to: self.right() }];
        for distance in 1..self.world {
            let chunk = output(self.behind(distance));
            steps.push(Step::Recv { into: chunk, from: self.left() });
            if distance + 1 < self.world {
                steps.push(Step::Send { from: chunk, to: self.right() });
            }
        }
        steps
    }

    /// The place in the chain that begins at `root`: a tree in which no rank has two children.
    fn chain(&self, root: usize) -> TreeNode {
        let next = Some(self.right()).filter(|next| *next != root);
        let parent = (self.rank != root).then(|| self.left());
        TreeNode { parent, children: next.into_iter().collect() }
    }
}
