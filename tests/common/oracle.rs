//! What reductions must give, computed by one process in the plainest way.
//!
//! In which order an algorithm combines is read off its schedules, as a tree for each chunk. An algorithm that is proved
//! to go from left to right in the order of the ranks gets no tree: it is held to the plain loop.

use super::number::Number;
use maypole::ReduceOp;
use maypole::algorithms::Algorithm;
use maypole::collective::{Collective, Held};
use maypole::schedule::{Layout, Placement, Span, input, output};
use maypole::verify::verify;
use maypole::walk::{Meaning, walk};
use std::collections::HashMap;
use std::rc::Rc;

/// Who is combined with whom.
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

/// Walks schedules and remembers what each span is made of.
struct Making(HashMap<(usize, Span), Rc<Tree>>);

impl Making {
    fn put(&mut self, rank: usize, into: Span, tree: Rc<Tree>, reduce: bool) {
        let tree = if reduce { Rc::new(Tree::Both(Rc::clone(&self.0[&(rank, into)]), tree)) } else { tree };
        self.0.insert((rank, into), tree);
    }
}

impl Meaning for Making {
    type Message = Rc<Tree>;

    fn send(&mut self, rank: usize, _: usize, from: Span, _: usize) -> Rc<Tree> {
        Rc::clone(&self.0[&(rank, from)])
    }

    fn receive(&mut self, rank: usize, _: usize, into: Span, _: usize, message: Rc<Tree>, reduce: bool) {
        self.put(rank, into, message, reduce);
    }

    fn local(&mut self, rank: usize, _: usize, from: Span, into: Span, reduce: bool) {
        let tree = Rc::clone(&self.0[&(rank, from)]);
        self.put(rank, into, tree, reduce);
    }
}

/// In which order one rank's result is combined.
pub(crate) struct Order {
    /// By chunk.
    trees: Vec<Option<Rc<Tree>>>,
}

impl Order {
    /// `((x0 op x1) op x2) ...`
    pub(crate) fn plain(world: usize) -> Self {
        let chain = |tree, rank| Rc::new(Tree::Both(tree, Rc::new(Tree::Rank(rank))));
        Self { trees: vec![Some((1..world).fold(Rc::new(Tree::Rank(0)), chain))] }
    }

    /// As `algorithm` does it at `rank`.
    pub(crate) fn of(algorithm: Algorithm, collective: Collective, world: usize, rank: usize) -> Self {
        let schedules = algorithm.schedules(collective, world).unwrap();
        let proof = verify(collective, &schedules, Placement::Apart).unwrap();
        let everybody = !matches!(collective, Collective::Scan | Collective::ExclusiveScan);
        if proof.keeps_rank_order && proof.left_to_right && everybody && !collective.is_blocked() {
            return Self::plain(world);
        }
        let chunks = schedules[0].chunks;
        let own = |rank| (0..chunks).map(move |chunk| ((rank, input(chunk)), Rc::new(Tree::Rank(rank))));
        let mut making = Making((0..world).flat_map(own).collect());
        walk(&schedules, Placement::Apart, &mut making).unwrap();
        Self { trees: (0..chunks).map(|chunk| making.0.remove(&(rank, output(chunk)))).collect() }
    }

    /// Elements `wanted` of the whole of `count`; `of(rank, index)` are the contributions.
    pub(crate) fn combine<T: Number>(
        &self,
        count: usize,
        wanted: std::ops::Range<usize>,
        op: ReduceOp,
        of: impl Fn(usize, usize) -> T,
        world: usize,
    ) -> Vec<T> {
        let layout = Layout::even(count, self.trees.len());
        let mut result = Vec::with_capacity(wanted.len());
        for (chunk, tree) in self.trees.iter().enumerate() {
            let range = layout.range(chunk);
            for index in range.start.max(wanted.start)..range.end.min(wanted.end) {
                let tree = tree.as_ref().expect("only what this rank holds is asked for");
                let combined = tree.evaluate(op, &|rank| of(rank, index));
                result.push(if op == ReduceOp::Avg { combined.divide(world) } else { combined });
            }
        }
        result
    }
}

/// The elements of the whole that `held` holds at `rank`, in blocks of `count`, or as one vector.
pub(crate) fn elements(held: Held, collective: Collective, count: usize, world: usize) -> std::ops::Range<usize> {
    match held {
        Held::Nothing => 0..0,
        Held::One(rank) => rank * count..(rank + 1) * count,
        Held::All if collective.is_blocked() => 0..world * count,
        Held::All => 0..count,
    }
}
