//! Binomial tree: in every round, each rank that has the message sends it to a rank without it.
//!
//! Counted from the root, rank `v`'s parent is `v` without its lowest set bit, and the subtree of
//! `v` is the range that begins at `v` and is as long as that bit. Broadcast sends to the biggest
//! subtree first.
//!
//! ```text
//! binomial broadcast, n = 4
//!      rank 0           rank 1    rank 2        rank 3
//! 0    out0 =in0 ->2,1
//! 1                     out0 <-0  out0 <-0 ->3
//! 2                                             out0 <-2
//! ```
//!
//! **Cost**: ceil(lg n) steps. Broadcast and reduce take lg n (a + S b). The root sends, or
//! receives, lg n S bytes; every other rank moves fewer.
//!
//! **Why**: no algorithm needs fewer steps if a rank sends one message at a time. For small
//! vectors; for large vectors a chain ([`ring`](super::ring)) is better.
//!
//! Reduce is broadcast backwards. A rank adds its children's parts after its own part, the nearest
//! child first, so with root 0 the ranks are combined in their order.
//!
//! # Gather and scatter
//!
//! A subtree's blocks travel together: consecutive sends to one peer are one message.
//!
//! ```text
//! binomial gather, n = 4
//!      rank 0      rank 1   rank 2    rank 3
//! 0    out0 =in0   in1 ->0            in3 ->2
//! 1    out1 <-1             tmp3 <-3
//!                           in2 ->0
//!                           tmp3 ->0
//! 2    out2,3 <-2
//! ```
//!
//! **Cost**: lg n a + (n-1)/n S b.
//!
//! **Why**: for small blocks. For large blocks [`linear`](super::linear) is better, where no rank
//! carries the blocks of others.
//!
//! **Source**: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication
//! operations in MPICH", IJHPCA 2005, section 4.

mod blocks;

use super::tree::TreeNode;
use crate::schedule::collective::Collective;
use crate::schedule::{Schedule, Step};
use std::ops::Range;

pub(super) fn schedule(collective: Collective, world: usize, rank: usize) -> Option<Schedule> {
    let node = |root| BinomialNode { world, root, place: (rank + world - root) % world };
    match collective {
        Collective::Broadcast { root } => Some(Schedule::new(1, node(root).broadcast())),
        Collective::Reduce { root } => Some(Schedule::new(1, node(root).tree().reduce())),
        Collective::Gather { root } => Some(Schedule::new(world, node(root).gather())),
        Collective::Scatter { root } => Some(Schedule::new(world, node(root).scatter())),
        _ => None,
    }
}

struct BinomialNode {
    world: usize,
    root: usize,
    /// This rank, counted from the root.
    place: usize,
}

impl BinomialNode {
    /// The rank, and so the chunk, at `place`.
    fn rank(&self, place: usize) -> usize {
        (place + self.root) % self.world
    }

    fn is_root(&self) -> bool {
        self.place == 0
    }

    fn parent(&self) -> usize {
        self.rank(self.place & (self.place - 1))
    }

    /// The places of the subtree of `place`, itself first.
    fn subtree(&self, place: usize) -> Range<usize> {
        let len = if place == 0 { self.world } else { 1 << place.trailing_zeros() };
        place..self.world.min(place + len)
    }

    /// Places of the children, the nearest and smallest first.
    fn children(&self) -> impl DoubleEndedIterator<Item = usize> + Clone {
        let levels = self.subtree(self.place).len().next_power_of_two().ilog2();
        (0..levels).map(move |level| self.place + (1 << level))
    }

    /// This rank's place in the tree, the nearest child first.
    fn tree(&self) -> TreeNode {
        let parent = (!self.is_root()).then(|| self.parent());
        TreeNode { parent, children: self.children().map(|child| self.rank(child)).collect() }
    }

    fn broadcast(&self) -> Vec<Step> {
        let mut tree = self.tree();
        tree.children.reverse();
        tree.broadcast()
    }
}
