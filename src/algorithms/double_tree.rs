//! Double binary tree: two trees, each with half of the vector; an inner node of one tree is a leaf
//! of the other.
//!
//! ```text
//! double-tree all_reduce, n = 4
//!      rank 0         rank 1             rank 2                  rank 3
//! 0                   in0 ->2            in1 ->3                 in0 ->2
//! 1                                      tmp0 <-1 +=in0 +=3 ->0  tmp1 <-2 +=in1 ->1
//! 2    out0 =in0 +=2  tmp1 =in1 +=3 ->0
//!      out0 ->2
//! 3    out1 =in1 +=1                     out0 <-0 ->1,3
//!      out1 ->1
//! 4                   out0 <-2                                   out0 <-2
//!                     out1 <-0 ->3
//! 5                                                              out1 <-1 ->2
//! 6                                      out1 <-3
//! ```
//!
//! The root is above both trees. They hold the other ranks, counted from the root, in order: a left
//! subtree has the ranks before its parent, a right subtree the ranks after it. In the first tree,
//! inner nodes are even and leaves odd. If the number of ranks below the root is even, the second
//! tree is the mirror image of the first. If it is odd, rank 1 is on top of the second tree, and
//! below rank 1 is the first tree of the ranks after it. With seven ranks:
//!
//! ```text
//!        0                0
//!        |                |
//!        4                3
//!      /   \            /   \
//!     2     6          1     5
//!    / \   /            \   / \
//!   1   3 5              2 4   6
//! ```
//!
//! Parents add left subtree, own part and right subtree in this order, so with root 0 the ranks are
//! combined in their order.
//!
//! **Cost**, from n = 3: h steps up and h down, where h is floor(lg (n-1)) + 1 for odd n, and
//! floor(lg (n-2)) + 2 for even n. No rank receives or sends more than S bytes in each direction.
//! In k windows, where every link has its own port, broadcast or reduce takes (h + k - 1) (a + S/2k
//! b), all-reduce (2 h + k - 1) (a + S/2k b) and up to S/2 b for links that go up in one tree and
//! down in the other; where a rank's bytes leave one after another, it is near S b a direction.
//!
//! **Why**: in a single tree a leaf only receives (or only sends), so half of the links carry
//! nothing. Here every rank is a leaf in one tree and an inner node in the other, and all links
//! carry data. The bandwidth is that of a ring and the latency that of a tree: for large vectors in
//! big worlds.
//!
//! **Source**: P. Sanders, J. Speck, J. L. Traff, "Two-tree algorithms for full bandwidth
//! broadcast, reduction and scan", Parallel Computing 2009. (There, the second tree of an odd
//! number of ranks is the first one shifted around; that would save a step and lose the order of
//! the ranks.)

use super::in_order_tree::{first, second};
use crate::schedule::collective::Collective;
use crate::schedule::{Schedule, Span, Step, input, output, scratch};

pub(super) fn schedule(collective: Collective, world: usize, rank: usize) -> Option<Schedule> {
    let nodes = |root| [0, 1].map(|chunk| DoubleTreeNode::new(chunk, world, rank, root));
    let steps: Vec<Step> = match collective {
        Collective::Broadcast { root } => {
            nodes(root).iter().flat_map(DoubleTreeNode::down).collect()
        }
        Collective::Reduce { root } => nodes(root).iter().flat_map(DoubleTreeNode::up).collect(),
        Collective::AllReduce => {
            let nodes = nodes(0);
            let down = nodes
                .iter()
                .flat_map(|node| node.down().into_iter().skip(usize::from(node.parent.is_none())));
            nodes.iter().flat_map(DoubleTreeNode::up).chain(down).collect()
        }
        _ => return None,
    };
    Some(Schedule::new(2, steps))
}

/// A rank's place in one of the trees.
struct DoubleTreeNode {
    chunk: usize,
    parent: Option<usize>,
    /// The children before and after this rank in the order of the tree.
    left: Vec<usize>,
    right: Vec<usize>,
}

impl DoubleTreeNode {
    /// Trees count places from the root.
    fn new(chunk: usize, world: usize, rank: usize, root: usize) -> Self {
        let place = (rank + world - root) % world;
        let (parent, children) =
            if chunk == 0 { first(world - 1, place) } else { second(world - 1, place) };
        let ranks =
            |places: Vec<usize>| places.into_iter().map(|place| (place + root) % world).collect();
        let (left, right) = children.into_iter().partition(|child| *child < place);
        Self {
            chunk,
            parent: parent.map(|place| (place + root) % world),
            left: ranks(left),
            right: ranks(right),
        }
    }

    /// The steps of the way up: the subtree's sum goes to the parent, or stays in the output of the
    /// root. A leaf sends its input directly.
    fn up(&self) -> Vec<Step> {
        let own = input(self.chunk);
        if self.left.is_empty() && self.right.is_empty() {
            return self.parent.map(|to| Step::Send { from: own, to }).into_iter().collect();
        }
        let into = self.parent.map_or(output(self.chunk), |_| scratch(self.chunk));
        let mut steps: Vec<Step> =
            self.left.iter().map(|&from| Step::Recv { into, from }).collect();
        steps.push(if self.left.is_empty() {
            Step::Copy { from: own, into }
        } else {
            Step::Reduce { from: own, into }
        });
        steps.extend(self.right.iter().map(|&from| Step::RecvReduce { into, from }));
        steps.extend(self.parent.map(|to| Step::Send { from: into, to }));
        steps
    }

    /// The steps of the way down: the output is received from the parent, or copied from the input
    /// at the root, and sent to the children.
    fn down(&self) -> Vec<Step> {
        let all: Span = output(self.chunk);
        let own = Step::Copy { from: input(self.chunk), into: all };
        let first = self.parent.map_or(own, |from| Step::Recv { into: all, from });
        let children = self.left.iter().chain(&self.right);
        std::iter::once(first).chain(children.map(|&to| Step::Send { from: all, to })).collect()
    }
}
