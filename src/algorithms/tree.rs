//! Binary tree: contributions go up to the root, and the result comes down again.
//!
//! ```text
//! tree all_reduce, n = 4
//!      rank 0                   rank 1             rank 2    rank 3
//! 0                                                in0 ->1   in0 ->0
//! 1                             out0 =in0 +=2 ->0
//! 2    out0 =in0 +=1 +=3 ->1,3
//! 3                             out0 <-0 ->2                 out0 <-0
//! 4                                                out0 <-1
//! ```
//!
//! Ranks are numbered in this order: a parent, then all of its left subtree, then all of its right
//! subtree. With seven ranks:
//!
//! ```text
//!          0
//!        /   \
//!       1     4
//!      / \   / \
//!     2   3 5   6
//! ```
//!
//! A parent adds its left child's sum after its own part, and then its right child's sum. So with
//! root 0 the ranks are combined in their order. A subtree is a range of ranks, which usually share
//! a host.
//!
//! **Cost**: h = ceil(lg (n+1)) - 1 steps up and h down. Every rank receives from at most two
//! children and sends to at most two; S bytes a link each way. In k windows, where every link has
//! its own port, all-reduce takes 2 h + k - 1 units of a + S/k b; where a rank's bytes leave one
//! after another, about twice as many, because a parent sends each byte twice.
//!
//! **Why**: latency grows with lg n only, and in windows the bandwidth does not depend on n: the
//! choice for vectors of middle size in big worlds.
//!
//! **Source**: P. Sanders, J. Speck, J. L. Traff, "Two-tree algorithms for full bandwidth
//! broadcast, reduction and scan", Parallel Computing 2009, section 2 (one pipelined binary tree;
//! two of them are in the same paper).

use crate::schedule::collective::Collective;
use crate::schedule::{Schedule, Span, Step, input, output, scratch};

pub(super) fn schedule(collective: Collective, world: usize, rank: usize) -> Option<Schedule> {
    let node = |root| TreeNode::new(world, rank, root);
    let steps = match collective {
        Collective::Broadcast { root } => node(root).broadcast(),
        Collective::Reduce { root } => node(root).reduce(),
        Collective::AllReduce => node(0).all_reduce(),
        _ => return None,
    };
    Some(Schedule::new(1, steps))
}

/// A rank's place in a tree, of this algorithm or of another.
pub(super) struct TreeNode {
    pub(super) parent: Option<usize>,
    /// In the order in which their sums are added, and in which they receive.
    pub(super) children: Vec<usize>,
}

impl TreeNode {
    /// Walks down from `root`; at each node the rest of its range is halved, the left half being
    /// the longer one.
    fn new(world: usize, rank: usize, root: usize) -> Self {
        let me = (rank + world - root) % world;
        let mut first = 0;
        let mut len = world;
        let mut parent = None;
        while me != first {
            parent = Some((first + root) % world);
            let left = len / 2;
            (first, len) = if me <= first + left {
                (first + 1, left)
            } else {
                (first + 1 + left, len - 1 - left)
            };
        }
        let left = (len > 1).then_some(first + 1);
        let right = (len > 2).then_some(first + 1 + len / 2);
        let children =
            [left, right].into_iter().flatten().map(|child| (child + root) % world).collect();
        Self { parent, children }
    }

    /// The steps of the way up: this rank's part and its children's sums, combined in `sum`, go to
    /// the parent. A leaf sends its input directly.
    fn up(&self, sum: Span) -> Vec<Step> {
        let mut steps = Vec::new();
        if !self.children.is_empty() {
            steps.push(Step::Copy { from: input(0), into: sum });
        }
        steps.extend(self.children.iter().map(|&from| Step::RecvReduce { into: sum, from }));
        let result = if self.children.is_empty() { input(0) } else { sum };
        steps.extend(self.parent.map(|to| Step::Send { from: result, to }));
        steps
    }

    /// The subtree's sum goes to the parent, or stays in the output of the root.
    pub(super) fn reduce(&self) -> Vec<Step> {
        self.up(if self.parent.is_none() { output(0) } else { scratch(0) })
    }

    /// The output is received from the parent, or copied from the input at the root, and sent to
    /// the children.
    pub(super) fn broadcast(&self) -> Vec<Step> {
        let own = Step::Copy { from: input(0), into: output(0) };
        let first = self.parent.map_or(own, |from| Step::Recv { into: output(0), from });
        let sends = self.children.iter().map(|&to| Step::Send { from: output(0), to });
        std::iter::once(first).chain(sends).collect()
    }

    /// The root has the sum in its output already.
    fn all_reduce(&self) -> Vec<Step> {
        let down = self.broadcast().into_iter().skip(usize::from(self.parent.is_none()));
        self.up(output(0)).into_iter().chain(down).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_of_seven_is_the_one_drawn_above() {
        let children = |rank| TreeNode::new(7, rank, 0).children;
        assert_eq!([0, 1, 4].map(children), [[1, 4], [2, 3], [5, 6]]);
        assert!([2, 3, 5, 6].map(children).iter().all(Vec::is_empty));
    }

    #[test]
    fn it_is_as_low_as_a_binary_tree_can_be() {
        for world in 2..200_usize {
            let depth = |mut rank| {
                let mut hops = 0;
                while let Some(parent) = TreeNode::new(world, rank, 3 % world).parent {
                    rank = parent;
                    hops += 1;
                }
                hops
            };
            assert_eq!((0..world).map(depth).max(), Some(world.ilog2()), "world {world}");
        }
    }
}
