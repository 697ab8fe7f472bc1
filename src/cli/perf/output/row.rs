//! One row of results.

use crate::perf::benchmark::{BenchmarkPoint, BufferPlacement, CallParameters, bus_factor};
use crate::perf::communicators::PerfTransport;
use crate::perf::measure::Measurement;
use crate::perf::measure::overlap::Overlap;
use crate::perf::output::prediction::TunerPrediction;
use maypole::CallPath;
use maypole::algorithms::Algorithm;

/// The results of a point over one transport.
#[derive(Clone, Debug)]
pub(crate) struct PerfRow {
    pub(crate) parameters: CallParameters,
    pub(crate) transport: PerfTransport,
    pub(crate) is_encrypted: bool,
    /// Floats were combined in the order of the ranks.
    pub(crate) deterministic: bool,
    /// Inputs were written once, and not before each sample.
    pub(crate) reuses_buffers: bool,
    /// Each sample was one call.
    pub(crate) together: bool,
    /// The measured point. Its algorithm is that of the command line; `None` is `auto`.
    pub(crate) point: BenchmarkPoint,
    /// The algorithm that runs on private memory.
    pub(crate) algorithm: Algorithm,
    /// The schedules of a file ran, and none of the library's.
    pub(crate) is_own: bool,
    /// The tuner's prediction; on rank 0 only, and only for a report, for the schedules of a file, or on GPUs.
    pub(crate) prediction: Option<TunerPrediction>,
    pub(crate) out_of_place: Option<Measurement>,
    pub(crate) in_place: Option<Measurement>,
    /// The buffers were registered memory.
    pub(crate) is_registered: bool,
    /// Of requests: the part that computing hid. The measurement is that of both together.
    pub(crate) overlap: Option<Overlap>,
}

/// Bandwidths in GB/s by the median sample; 1 GB/s is 10^9 bytes a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bandwidths {
    /// Bytes of the whole divided by the time.
    pub(crate) algorithm: f64,
    /// The algorithm bandwidth times [`bus_factor`]: comparable with the bandwidth of a link.
    pub(crate) bus: f64,
}

impl PerfRow {
    /// The measurements, each with its placement.
    pub(crate) fn measured(&self) -> impl Iterator<Item = (BufferPlacement, &Measurement)> {
        let both = [
            (BufferPlacement::OutOfPlace, &self.out_of_place),
            (BufferPlacement::InPlace, &self.in_place),
        ];
        both.into_iter()
            .filter_map(|(placement, measurement)| Some((placement, measurement.as_ref()?)))
    }

    /// Bytes of the whole.
    pub(crate) fn bytes(&self) -> usize {
        self.point.whole(self.parameters.world) * self.parameters.kind.size()
    }

    /// The entry of `--algorithm` that this row belongs to: the name of an algorithm, or `auto`.
    pub(crate) fn series_name(&self) -> &'static str {
        self.point.algorithm.map_or("auto", Algorithm::name)
    }

    /// The algorithms that ran, with the mark `/reg` where they ran on registered memory.
    pub(crate) fn ran(&self) -> String {
        let mut names = Vec::new();
        for (_, measured) in self.measured() {
            let mark = match measured.path {
                CallPath::Registered => "/reg",
                CallPath::Copied => "/copy",
                _ => "",
            };
            let name = format!("{}{mark}", measured.algorithm);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if names.is_empty() { self.algorithm.to_string() } else { names.join(" ") }
    }

    /// The elements of each rank's block, if these differ.
    pub(crate) fn counts(&self) -> Option<Vec<usize>> {
        let ranks = 0..self.point.shares.as_ref()?.len();
        Some(ranks.map(|rank| self.point.block(rank).len()).collect())
    }

    pub(crate) fn bandwidths(&self, measurement: &Measurement) -> Bandwidths {
        let algorithm = self.bytes() as f64 / measurement.time.p50 / 1e3;
        let bus = algorithm * bus_factor(self.point.collective, self.parameters.world);
        Bandwidths { algorithm, bus }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::perf::benchmark::tests::{parameters, point};
    use crate::perf::measure::noise::Noise;
    use crate::perf::measure::rank_times::RankTimes;
    use crate::perf::measure::summary;
    use maypole::DataType;
    use maypole::schedule::collective::Collective;

    /// An all-reduce of 4 ranks, 1 MiB in 100 us, where the tuner chose two-shot.
    pub(crate) fn example() -> PerfRow {
        let measured = |wrong| Measurement {
            time: summary::tests::example(),
            samples: vec![90.0, 100.0, 150.0],
            noise: Noise::default(),
            restarts: 0,
            ranks: RankTimes::default(),
            wrong: Some(wrong),
            calls: 40,
            batches: 100,
            algorithm: "two-shot",
            path: CallPath::Staged,
        };
        PerfRow {
            parameters: parameters(DataType::F32, 4),
            transport: PerfTransport::Shm,
            is_encrypted: false,
            deterministic: false,
            reuses_buffers: false,
            together: false,
            point: point(Collective::AllReduce, 1 << 18),
            algorithm: Algorithm::TwoShot,
            is_own: false,
            prediction: None,
            out_of_place: Some(measured(0)),
            in_place: Some(measured(3)),
            is_registered: false,
            overlap: None,
        }
    }

    #[test]
    fn a_row_names_what_ran_in_each_place() {
        let mut row = example();
        assert_eq!(row.ran(), "two-shot");
        row.out_of_place.as_mut().unwrap().path = CallPath::Registered;
        assert_eq!(row.ran(), "two-shot/reg two-shot");
        row.in_place = None;
        assert_eq!(row.ran(), "two-shot/reg");
        row.out_of_place = None;
        assert_eq!(row.ran(), "two-shot", "what was chosen");
    }

    #[test]
    fn bandwidth_is_size_by_time_and_the_factor() {
        let row = example();
        let bandwidths = row.bandwidths(row.out_of_place.as_ref().unwrap());
        assert!((bandwidths.algorithm - 10.48576).abs() < 1e-9);
        assert!((bandwidths.bus - 15.72864).abs() < 1e-9);
    }
}
