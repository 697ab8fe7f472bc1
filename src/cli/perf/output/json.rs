//! Results as JSON: one object a line. The table, CSV and the page are made of these objects.

use crate::perf::benchmark::{BenchmarkPoint, BufferPlacement, bus_factor};
use crate::perf::measure::Measurement;
use crate::perf::measure::overlap::Overlap;
use serde_json::{Value, json};

/// The version of the keys and their meanings, which `maypole perf --schema` prints. It grows when a
/// key changes its meaning or is gone, and not when one is added.
pub(crate) const SCHEMA: u32 = 4;

/// The object of one placement of `point` among `world` ranks, with every sample. `about` has what is
/// equal for all placements.
pub(crate) fn of_point(
    about: &Value,
    (point, world): (&BenchmarkPoint, usize),
    place: BufferPlacement,
    measured: &Measurement,
    overlap: Option<Overlap>,
) -> Value {
    let mut object = about.clone();
    let bandwidth = about["bytes"].as_f64().unwrap_or(0.0) / measured.time.p50 / 1e3;
    let more = json!({
        "algorithm": measured.algorithm,
        "in_place": place == BufferPlacement::InPlace,
        "path": measured.path.name(),
        "algbw_GBps": bandwidth,
        "busbw_GBps": bandwidth * bus_factor(point.collective, world),
        "overlapped": overlap.is_some(),
        "overlap": overlap,
    });
    add(&mut object, more);
    add_measurement(&mut object, measured);
    object
}

/// Adds the times and their circumstances to `object`.
pub(crate) fn add_measurement(object: &mut Value, measured: &Measurement) {
    let Measurement { time, noise, ranks, .. } = measured;
    let spread = ranks.spread();
    add(
        object,
        json!({
            "time_us": time,
            "rank_us": {
                "min": spread.map(|spread| spread.min),
                "mean": spread.map(|spread| spread.mean),
                "max": spread.map(|spread| spread.max),
                "slowest": spread.map(|spread| spread.slowest),
                "each": ranks.us(),
            },
            "arrival_skew_us": ranks.skew_us(),
            "samples_us": measured.samples,
            "noise": {
                "others_cores": noise.others,
                "stolen_cores": noise.stolen,
                "spread": time.spread(),
                "disturbed": noise.is_disturbance(),
            },
            "noisy": noise.words(time),
            "wrong": measured.wrong,
            "iterations": measured.calls,
            "batches": measured.batches,
        }),
    );
}

/// Adds the keys of `more` to `object`.
pub(crate) fn add(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::perf::benchmark::tests::point;
    use crate::perf::measure::noise::Noise;
    use crate::perf::measure::rank_times::RankTimes;
    use crate::perf::measure::summary;
    use maypole::CallPath;
    use maypole::schedule::collective::Collective;

    /// A median of 100 us.
    pub(crate) fn measured(wrong: u64) -> Measurement {
        Measurement {
            time: summary::tests::example(),
            samples: vec![90.0, 100.0, 150.0],
            noise: Noise::default(),
            ranks: RankTimes::default(),
            wrong: Some(wrong),
            calls: 40,
            batches: 100,
            algorithm: "two-shot",
            path: CallPath::Staged,
        }
    }

    /// An all-reduce of 4 ranks, 1 MiB in 100 us, out of place and with 3 wrong elements in place.
    pub(crate) fn example() -> [Value; 2] {
        let about = json!({
            "collective": "all_reduce", "transport": "shm", "bytes": 1 << 20, "count": 1 << 18,
            "type": "f32", "op": "sum", "root": null, "requested": "auto", "encrypted": false,
        });
        let point = point(Collective::AllReduce, 1 << 18);
        let of = |place, wrong| of_point(&about, (&point, 4), place, &measured(wrong), None);
        [of(BufferPlacement::OutOfPlace, 0), of(BufferPlacement::InPlace, 3)]
    }

    #[test]
    fn bandwidth_is_size_by_time_and_the_factor() {
        let [out_of_place, in_place] = example();
        let of = |key: &str| out_of_place[key].as_f64().unwrap();
        assert!((of("algbw_GBps") - 10.48576).abs() < 1e-9);
        assert!((of("busbw_GBps") - 15.72864).abs() < 1e-9);
        assert_eq!(
            (&out_of_place["in_place"], &in_place["in_place"]),
            (&json!(false), &json!(true))
        );
        assert_eq!((&out_of_place["wrong"], &in_place["wrong"]), (&json!(0), &json!(3)));
        assert_eq!(out_of_place["samples_us"], json!([90.0, 100.0, 150.0]));
        assert_eq!(out_of_place["path"], json!("staged"));
    }
}
