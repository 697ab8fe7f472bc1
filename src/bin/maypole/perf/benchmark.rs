//! What is measured, one after the other.

use maypole::algorithms::Algorithm;
use maypole::schedule::collective::{Collective, HeldChunks};
pub(crate) use maypole::topology::predict::bus_factor;
use maypole::{DataType, ReduceOp};
use std::ops::Range;

/// What is the same at every point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    pub(crate) kind: DataType,
    pub(crate) op: ReduceOp,
    pub(crate) world: usize,
}

/// Everything that is measured over each transport.
#[derive(Clone, Debug)]
pub(crate) struct What {
    pub(crate) collectives: Vec<Collective>,
    /// `None` is the tuner's choice.
    pub(crate) algorithms: Vec<Option<Algorithm>>,
    pub(crate) sizes: Vec<usize>,
    pub(crate) given: Given,
}

/// One row of the table: a collective at a size.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Point {
    pub(crate) collective: Collective,
    pub(crate) algorithm: Option<Algorithm>,
    /// Elements of the vector, or of one rank's block.
    pub(crate) count: usize,
}

/// Where input and output lie.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    Apart,
    Same,
}

impl What {
    /// The points, sizes innermost. Sizes that come to the same number of elements are measured
    /// once.
    pub(crate) fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        for collective in &self.collectives {
            for algorithm in
                self.algorithms.iter().filter(|one| one.is_none_or(|one| one.supports(*collective)))
            {
                let at = |count| Point { collective: *collective, algorithm: *algorithm, count };
                let mut row: Vec<Point> = self
                    .sizes
                    .iter()
                    .map(|size| at(self.given.count(*collective, *size)))
                    .collect();
                row.dedup();
                points.extend(row);
            }
        }
        points
    }

    /// True if no algorithm has an answer to any collective.
    pub(crate) fn is_nothing(&self) -> bool {
        self.points().is_empty()
    }
}

impl Given {
    /// Elements for a whole of about `bytes`, at least one; with blocks, at least one in each.
    fn count(&self, collective: Collective, bytes: usize) -> usize {
        let elements = bytes / self.kind.size();
        match collective {
            Collective::Barrier => 0,
            _ if collective.is_blocked() => (elements / self.world).max(1),
            _ => elements.max(1),
        }
    }
}

impl Point {
    /// Elements of the whole.
    pub(crate) fn whole(&self, world: usize) -> usize {
        if self.collective.is_blocked() { self.count * world } else { self.count }
    }

    /// The part of the whole that `held` says, in elements.
    pub(crate) fn part(&self, held: HeldChunks, world: usize) -> Range<usize> {
        match held {
            HeldChunks::All => 0..self.whole(world),
            HeldChunks::One(rank) => rank * self.count..(rank + 1) * self.count,
            HeldChunks::Nothing => 0..0,
        }
    }

    /// The places it can be measured in: a broadcast's buffer is always both, and a barrier has
    /// none.
    pub(crate) fn places(&self) -> &'static [Place] {
        match self.collective {
            Collective::Broadcast { .. } => &[Place::Same],
            Collective::Barrier => &[Place::Apart],
            _ => &[Place::Apart, Place::Same],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(collectives: &[Collective], sizes: &[usize]) -> What {
        let given = Given { kind: DataType::F32, op: ReduceOp::Sum, world: 4 };
        What {
            collectives: collectives.to_vec(),
            algorithms: vec![None],
            sizes: sizes.to_vec(),
            given,
        }
    }

    #[test]
    fn wholes_are_made_of_whole_blocks() {
        let counts = |collective| {
            what(&[collective], &[1, 8, 100]).points().iter().map(|p| p.count).collect::<Vec<_>>()
        };
        assert_eq!(counts(Collective::AllReduce), [1, 2, 25]);
        assert_eq!(
            counts(Collective::AllGather),
            [1, 6],
            "1 and 8 bytes both come to one element a rank"
        );
        assert_eq!(counts(Collective::Barrier), [0]);
    }

    #[test]
    fn parts_are_those_of_the_collective() {
        let point = Point { collective: Collective::AllGather, algorithm: None, count: 3 };
        assert_eq!(point.part(point.collective.input(2), 4), 6..9);
        assert_eq!(point.part(point.collective.output(2), 4), 0..12);
    }

    #[test]
    fn algorithms_are_tried_where_they_can_be() {
        let mut what = what(&Collective::all(0), &[8]);
        what.algorithms = vec![Some(Algorithm::Ring)];
        assert_eq!(what.points().len(), Algorithm::Ring.collectives().len());
    }

    #[test]
    fn bus_factors_are_those_of_nccl_tests() {
        let factors = Collective::all(0).map(|collective| bus_factor(collective, 4));
        assert_eq!(factors, [1.0, 1.0, 1.5, 0.75, 0.75, 0.75, 0.75, 0.75, 1.0, 1.0, 1.0]);
    }
}
