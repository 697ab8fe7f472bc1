//! The expected results of reductions, computed by one process in the plainest way.
//!
//! The order in which an algorithm combines follows from its schedules, as a tree for each chunk.
//! An algorithm that is proved to combine from left to right gets no tree: its results are compared
//! with the plain loop.

use super::number::Number;
use crate::common::walked::walked;
use maypole::ReduceOp;
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::schedule::verify::verify;
use maypole::schedule::{Placement, input, output};
use std::ops::Range;
use std::rc::Rc;

/// An order of combination.
enum Tree {
    Rank(usize),
    Both(Rc<Tree>, Rc<Tree>),
}

impl Tree {
    fn evaluate<T: Number>(&self, op: ReduceOp, of: &impl Fn(usize) -> T) -> T {
        match self {
            Self::Rank(rank) => of(*rank),
            Self::Both(left, right) => left.evaluate(op, of).combine(right.evaluate(op, of), op),
        }
    }
}

/// The order in which the result of one rank is combined.
pub struct Order {
    /// By chunk.
    trees: Vec<Option<Rc<Tree>>>,
}

impl Order {
    /// `((x0 op x1) op x2) ...`
    pub fn plain(world: usize) -> Self {
        let chain = |tree, rank| Rc::new(Tree::Both(tree, Rc::new(Tree::Rank(rank))));
        Self { trees: vec![Some((1..world).fold(Rc::new(Tree::Rank(0)), chain))] }
    }

    /// The order of `algorithm` at `rank`, where ranks are on `hosts`.
    pub fn of(algorithm: Algorithm, collective: Collective, hosts: &[usize], rank: usize) -> Self {
        let world = hosts.len();
        let schedules = algorithm.schedules_on(collective, hosts).unwrap();
        let proof = verify(collective, &schedules, Placement::Apart).unwrap();
        let everybody = !matches!(collective, Collective::Scan | Collective::ExclusiveScan);
        if proof.keeps_rank_order && proof.left_to_right && everybody && !collective.is_blocked() {
            return Self::plain(world);
        }
        let chunks = schedules[0].chunks;
        let own =
            |rank| (0..chunks).map(move |chunk| ((rank, input(chunk)), Rc::new(Tree::Rank(rank))));
        let combine = |left: &Rc<Tree>, right| Rc::new(Tree::Both(Rc::clone(left), right));
        let own = (0..world).flat_map(own);
        let mut trees = walked(&schedules, Placement::Apart, own, combine).unwrap();
        Self { trees: (0..chunks).map(|chunk| trees.remove(&(rank, output(chunk)))).collect() }
    }

    /// Elements `wanted` of the whole, whose blocks begin at `starts`; `of(rank, index)` are the
    /// contributions as they are combined.
    pub fn combine<T: Number>(
        &self,
        starts: &[usize],
        wanted: Range<usize>,
        op: ReduceOp,
        of: impl Fn(usize, usize) -> T,
        world: usize,
    ) -> Vec<T> {
        // One order for all elements, or one for each block, or one for each chunk into which the
        // algorithm cuts a vector.
        let layout = match self.trees.len() {
            chunks if chunks + 1 == starts.len() => {
                starts.windows(2).map(|pair| pair[0]..pair[1]).collect()
            }
            chunks => even(starts[starts.len() - 1], chunks),
        };
        let mut result = Vec::with_capacity(wanted.len());
        for (chunk, tree) in self.trees.iter().enumerate() {
            let range: &Range<usize> = &layout[chunk];
            for index in range.start.max(wanted.start)..range.end.min(wanted.end) {
                let tree = tree.as_ref().expect("only what this rank holds is asked for");
                let combined = || tree.evaluate(op, &|rank| of(rank, index)).finished(op, world);
                let average = |_| T::average((0..world).map(|rank| of(rank, index)));
                let average = Some(op).filter(|op| *op == ReduceOp::Avg).and_then(average);
                result.push(average.unwrap_or_else(combined));
            }
        }
        result
    }
}

/// `count` elements in parts whose lengths differ by at most one, the longer ones first.
fn even(count: usize, parts: usize) -> Vec<Range<usize>> {
    let longer = count % parts;
    let start = |part: usize| part * (count / parts) + part.min(longer);
    (0..parts).map(|part| start(part)..start(part + 1)).collect()
}
