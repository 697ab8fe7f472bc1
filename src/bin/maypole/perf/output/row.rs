//! One row of results.

use crate::perf::benchmark::{Given, Place, Point, bus_factor};
use crate::perf::communicators::Joint;
use crate::perf::measure::Measured;
use crate::perf::output::prediction::Prediction;
use maypole::algorithms::Algorithm;

/// A point over one transport, in each of its places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) given: Given,
    pub(crate) transport: Joint,
    /// Floats were combined from left to right.
    pub(crate) deterministic: bool,
    pub(crate) point: Point,
    /// The one that ran.
    pub(crate) algorithm: Algorithm,
    /// What the tuner said of it, on rank 0 and if there is to be a page.
    pub(crate) prediction: Option<Prediction>,
    pub(crate) apart: Option<Measured>,
    pub(crate) same: Option<Measured>,
}

impl Row {
    /// What was measured, with its place.
    pub(crate) fn measured(&self) -> impl Iterator<Item = (Place, Measured)> {
        let places = [(Place::Apart, self.apart), (Place::Same, self.same)];
        places.into_iter().filter_map(|(place, measured)| Some((place, measured?)))
    }

    /// Bytes of the whole.
    pub(crate) fn bytes(&self) -> usize {
        self.point.whole(self.given.world) * self.given.kind.size()
    }

    /// True if `other` is the same point, maybe by another algorithm.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        let point = |row: &Self| (row.transport, row.point.collective, row.point.count);
        point(self) == point(other)
    }

    /// GB/s by the median sample: of the whole, and of a link (see [`bus_factor`]).
    pub(crate) fn bandwidths(&self, measured: &Measured) -> (f64, f64) {
        let algorithm = self.bytes() as f64 / measured.time.p50 / 1e3;
        (algorithm, algorithm * bus_factor(self.point.collective, self.given.world))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::perf::measure::summary::Summary;
    use maypole::schedule::collective::Collective;
    use maypole::{DataType, ReduceOp};

    /// An all-reduce of 4 ranks, 1 MiB in 100 us.
    pub(crate) fn example() -> Row {
        let time = Summary { min: 90.0, p50: 100.0, p90: 120.0, p99: 150.0, mean: 101.0 };
        Row {
            given: Given { kind: DataType::F32, op: ReduceOp::Sum, world: 4 },
            transport: Joint::Shm,
            deterministic: false,
            point: Point { collective: Collective::AllReduce, algorithm: None, count: 1 << 18 },
            algorithm: Algorithm::TwoShot,
            prediction: None,
            apart: Some(Measured { time, wrong: Some(0), calls: 40 }),
            same: Some(Measured { time, wrong: Some(3), calls: 40 }),
        }
    }

    #[test]
    fn bandwidth_is_size_by_time_and_the_factor() {
        let row = example();
        let (algorithm, bus) = row.bandwidths(&row.apart.unwrap());
        assert!((algorithm - 10.48576).abs() < 1e-9 && (bus - 15.72864).abs() < 1e-9);
    }
}
