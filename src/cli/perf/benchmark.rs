//! The points to measure: which collective, by which algorithm, at which size.

use maypole::algorithms::Algorithm;
use maypole::schedule::collective::{Collective, HeldChunks};
use maypole::{DataType, ReduceOp};
pub(crate) use maypole_cluster::predict::bus_factor;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// The parameters that are equal at every point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallParameters {
    pub(crate) kind: DataType,
    pub(crate) op: ReduceOp,
    pub(crate) world: usize,
    /// Bytes past a page boundary at which buffers begin: a multiple of the element size.
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
    /// The shares of the whole that each rank's block has; `None` for blocks of equal lengths.
    pub(crate) shares: Option<Arc<[usize]>>,
    pub(crate) parameters: CallParameters,
}

/// One row of the table: a collective by one algorithm at one size.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct BenchmarkPoint {
    pub(crate) collective: Collective,
    /// The requested algorithm; `None` is the tuner's choice.
    pub(crate) algorithm: Option<Algorithm>,
    /// Elements of the vector, or of one rank's block, or of a share.
    pub(crate) count: usize,
    /// The shares of each rank's block; `None` if it is one share each.
    pub(crate) shares: Option<Arc<[usize]>>,
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
                    let blocks = self.shares.as_ref().map(|shares| shares.iter().sum());
                    let count = self.parameters.count(collective, size, blocks);
                    if counts.insert(count) {
                        let shares = self.shares.clone();
                        points.push(BenchmarkPoint { collective, algorithm, count, shares });
                    }
                }
            }
        }
        points
    }
}

impl CallParameters {
    /// The elements of the vector, or of one of `blocks` blocks, one a rank if this is `None`, where the
    /// whole has about `bytes` bytes; at least one.
    fn count(&self, collective: Collective, bytes: usize, blocks: Option<usize>) -> usize {
        let elements = bytes / self.kind.size();
        match collective {
            Collective::Barrier => 0,
            _ if collective.is_blocked() => (elements / blocks.unwrap_or(self.world)).max(1),
            _ => elements.max(1),
        }
    }
}

impl BenchmarkPoint {
    /// Elements of the whole.
    pub(crate) fn whole(&self, world: usize) -> usize {
        if self.collective.is_blocked() { self.block(world).start } else { self.count }
    }

    /// The elements of the whole that are the block of `rank`.
    pub(crate) fn block(&self, rank: usize) -> Range<usize> {
        let end_of = |ranks: usize| match &self.shares {
            Some(shares) => shares[..ranks.min(shares.len())].iter().sum::<usize>() * self.count,
            None => ranks * self.count,
        };
        end_of(rank)..end_of(rank + 1)
    }

    /// The elements of the whole that the input of `rank` has.
    pub(crate) fn input(&self, rank: usize, world: usize) -> Range<usize> {
        self.part(self.collective.input(rank), world)
    }

    /// The elements of the whole that the output of `rank` has. That of an all-to-all has the block of
    /// this rank from each rank.
    pub(crate) fn output(&self, rank: usize, world: usize) -> Range<usize> {
        match self.collective {
            Collective::AllToAll => 0..self.block(rank).len() * world,
            _ => self.part(self.collective.output(rank), world),
        }
    }

    /// The part `held` of the whole, in elements.
    fn part(&self, held: HeldChunks, world: usize) -> Range<usize> {
        match held {
            HeldChunks::All => 0..self.whole(world),
            HeldChunks::One(rank) => self.block(rank),
            HeldChunks::Nothing => 0..0,
        }
    }

    /// The elements that `rank` sends to each rank, and that it receives from each, where blocks have
    /// unequal lengths. All but an all-to-all cut one buffer alone.
    pub(crate) fn counts(&self, rank: usize) -> Option<[Vec<usize>; 2]> {
        let world = self.shares.as_ref()?.len();
        let lengths: Vec<usize> = (0..world).map(|rank| self.block(rank).len()).collect();
        let received = match self.collective {
            Collective::AllToAll => vec![lengths[rank]; world],
            _ => lengths.clone(),
        };
        Some([lengths, received])
    }

    /// The placements to measure. A broadcast has one buffer, so it is in place only; a barrier
    /// has no buffer and is measured once. Blocks of unequal lengths are out of place.
    pub(crate) fn placements(&self) -> &'static [BufferPlacement] {
        match self.collective {
            _ if self.shares.is_some() => &[BufferPlacement::OutOfPlace],
            Collective::Broadcast { .. } => &[BufferPlacement::InPlace],
            Collective::Barrier => &[BufferPlacement::OutOfPlace],
            _ => &[BufferPlacement::OutOfPlace, BufferPlacement::InPlace],
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn benchmark(collectives: &[Collective], sizes: &[usize]) -> Benchmark {
        Benchmark {
            collectives: collectives.to_vec(),
            algorithms: vec![None],
            sizes: sizes.to_vec(),
            shares: None,
            parameters: parameters(DataType::F32, 4),
        }
    }

    /// A sum of `kind` over `world` ranks.
    pub(crate) fn parameters(kind: DataType, world: usize) -> CallParameters {
        CallParameters { kind, op: ReduceOp::Sum, world, offset: 16 }
    }

    /// A point of the tuner's choice, with blocks of equal lengths.
    pub(crate) fn point(collective: Collective, count: usize) -> BenchmarkPoint {
        BenchmarkPoint { collective, algorithm: None, count, shares: None }
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
        let point = point(Collective::AllGather, 3);
        assert_eq!((point.input(2, 4), point.output(2, 4)), (6..9, 0..12));
    }

    #[test]
    fn blocks_have_as_many_shares_as_their_ranks() {
        let mut all = benchmark(&[Collective::AllGather, Collective::AllToAll], &[70]);
        all.parameters.world = 3;
        all.shares = Some([2, 0, 3].into());
        let [gather, exchange] = &all.points()[..] else { panic!("{:?}", all.points()) };
        assert_eq!((gather.count, gather.whole(3)), (3, 15), "17 elements, in five shares");
        assert_eq!([0, 1, 2].map(|rank| gather.input(rank, 3)), [0..6, 6..6, 6..15]);
        assert_eq!(gather.counts(1), Some([vec![6, 0, 9], vec![6, 0, 9]]));
        assert_eq!(exchange.counts(2), Some([vec![6, 0, 9], vec![9, 9, 9]]));
        assert_eq!((exchange.input(2, 3), exchange.output(2, 3)), (0..15, 0..27));
        assert_eq!(gather.placements(), [BufferPlacement::OutOfPlace]);
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
