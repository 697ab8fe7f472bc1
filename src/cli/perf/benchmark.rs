//! The points to measure: which collective, by which algorithm, at which size.

use maypole::algorithms::Algorithm;
use maypole::schedule::collective::{Collective, HeldChunks};
use maypole::{DataType, ReduceOp};
pub(crate) use maypole_cluster::predict::bus_factor;
use std::collections::HashSet;
use std::ops::Range;

/// The parameters that are equal at every point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallParameters {
    pub(crate) kind: DataType,
    pub(crate) op: ReduceOp,
    pub(crate) world: usize,
    /// Bytes behind a page at which every buffer begins: a multiple of the element size.
    pub(crate) offset: usize,
}

/// Everything that is measured over each transport.
#[derive(Clone, Debug)]
pub(crate) struct Benchmark {
    pub(crate) collectives: Vec<Collective>,
    /// `None` is the tuner's choice, `auto` on the command line.
    pub(crate) algorithms: Vec<Option<Algorithm>>,
    /// Bytes of the whole.
    pub(crate) sizes: Vec<usize>,
    pub(crate) parameters: CallParameters,
}

/// One row of the table: a collective by one algorithm at one size.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct BenchmarkPoint {
    pub(crate) collective: Collective,
    /// The algorithm that was asked for; `None` is the tuner's choice.
    pub(crate) algorithm: Option<Algorithm>,
    /// Elements of the vector, or of one rank's block.
    pub(crate) count: usize,
}

/// Whether a call has one buffer for input and output, or two.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BufferPlacement {
    OutOfPlace,
    InPlace,
}

impl Benchmark {
    /// The points, each once, sizes innermost. Sizes that round to the same number of elements are
    /// one point.
    pub(crate) fn points(&self) -> Vec<BenchmarkPoint> {
        let mut points = Vec::new();
        for &collective in &self.collectives {
            for &algorithm in &self.algorithms {
                if algorithm.is_some_and(|algorithm| !algorithm.supports(collective)) {
                    continue;
                }
                let mut counts = HashSet::new();
                for &size in &self.sizes {
                    let count = self.parameters.count(collective, size);
                    if counts.insert(count) {
                        points.push(BenchmarkPoint { collective, algorithm, count });
                    }
                }
            }
        }
        points
    }

    /// True if none of the algorithms implements any of the collectives.
    pub(crate) fn is_empty(&self) -> bool {
        self.points().is_empty()
    }
}

impl CallParameters {
    /// The elements of the vector, or of one block, where the whole has about `bytes` bytes; at
    /// least one.
    fn count(&self, collective: Collective, bytes: usize) -> usize {
        let elements = bytes / self.kind.size();
        match collective {
            Collective::Barrier => 0,
            _ if collective.is_blocked() => (elements / self.world).max(1),
            _ => elements.max(1),
        }
    }
}

impl BenchmarkPoint {
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

    /// The placements to measure. A broadcast has one buffer, so it is in place only; a barrier
    /// has no buffer and is measured once.
    pub(crate) fn placements(&self) -> &'static [BufferPlacement] {
        match self.collective {
            Collective::Broadcast { .. } => &[BufferPlacement::InPlace],
            Collective::Barrier => &[BufferPlacement::OutOfPlace],
            _ => &[BufferPlacement::OutOfPlace, BufferPlacement::InPlace],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn benchmark(collectives: &[Collective], sizes: &[usize]) -> Benchmark {
        let parameters =
            CallParameters { kind: DataType::F32, op: ReduceOp::Sum, world: 4, offset: 16 };
        Benchmark {
            collectives: collectives.to_vec(),
            algorithms: vec![None],
            sizes: sizes.to_vec(),
            parameters,
        }
    }

    #[test]
    fn sizes_are_rounded_to_whole_blocks() {
        let counts = |collective| {
            benchmark(&[collective], &[1, 8, 100])
                .points()
                .iter()
                .map(|p| p.count)
                .collect::<Vec<_>>()
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
    fn a_size_that_is_named_twice_is_one_point() {
        let points = benchmark(&[Collective::AllReduce], &[8, 4096, 8]).points();
        assert_eq!(points.iter().map(|point| point.count).collect::<Vec<_>>(), [2, 1024]);
    }

    #[test]
    fn parts_are_those_of_the_collective() {
        let point = BenchmarkPoint { collective: Collective::AllGather, algorithm: None, count: 3 };
        assert_eq!(point.part(point.collective.input(2), 4), 6..9);
        assert_eq!(point.part(point.collective.output(2), 4), 0..12);
    }

    #[test]
    fn an_algorithm_is_measured_only_on_collectives_that_it_implements() {
        let mut benchmark = benchmark(&Collective::all(0), &[8]);
        benchmark.algorithms = vec![Some(Algorithm::Ring)];
        assert_eq!(benchmark.points().len(), Algorithm::Ring.collectives().len());
    }

    #[test]
    fn bus_factors_are_those_of_nccl_tests() {
        let factors = Collective::all(0).map(|collective| bus_factor(collective, 4));
        assert_eq!(factors, [1.0, 1.0, 1.5, 0.75, 0.75, 0.75, 0.75, 0.75, 1.0, 1.0, 1.0]);
    }
}
