//! Results as JSON: one object a line.

use crate::perf::benchmark::BufferPlacement;
use crate::perf::measure::Measurement;
use crate::perf::output::header::RunHeader;
use crate::perf::output::row::PerfRow;
use serde_json::{Value, json};

/// The version of the keys and their meanings, which `maypole perf --schema` prints. It grows when a
/// key changes its meaning or is gone, and not when one is added.
pub(crate) const SCHEMA: u32 = 3;

/// The objects of `row`, with every sample: one out of place, one in place.
pub(crate) fn objects(row: &PerfRow, header: &RunHeader) -> impl Iterator<Item = Value> {
    row.measured().map(move |(place, measured)| object(row, place, measured, header))
}

fn object(
    row: &PerfRow,
    place: BufferPlacement,
    measured: &Measurement,
    header: &RunHeader,
) -> Value {
    let collective = row.point.collective;
    let bandwidths = row.bandwidths(measured);
    let mut object = json!({
        "collective": collective.name(),
        "ranks": row.parameters.world,
        "transport": row.transport.to_string(),
        "requested": row.series_name(),
        "algorithm": measured.algorithm,
        "bytes": row.bytes(),
        "count": row.point.count,
        "type": row.parameters.kind.name(),
        "op": collective.reduces().then(|| row.parameters.op.name()),
        "root": collective.root(),
        "deterministic": row.deterministic,
        "encrypted": row.is_encrypted,
        "in_place": place == BufferPlacement::InPlace,
        "offset": row.parameters.offset.json(),
        "path": measured.path.name(),
        "registered": row.is_registered,
        "reuses_buffers": row.reuses_buffers,
        "algbw_GBps": bandwidths.algorithm,
        "busbw_GBps": bandwidths.bus,
        "overlapped": row.overlap.is_some(),
        "overlap": row.overlap.as_ref().map(|overlap| json!({
            "part": overlap.part(),
            "call_us": overlap.call.time.p50,
            "compute_us": overlap.compute.time.p50,
            "both_us": overlap.both.time.p50,
        })),
        "counts": row.counts(),
        "off_cache_bytes": row.parameters.off_cache,
        "tuners_choice": row.prediction.map(|prediction| prediction.choice.name()),
        "predicted_us": row.prediction.map(|prediction| prediction.us),
    });
    if row.together {
        add(&mut object, json!({ "together": true }));
    }
    add_measurement(&mut object, measured, header);
    object
}

/// Adds the times and their circumstances to `object`.
pub(crate) fn add_measurement(object: &mut Value, measured: &Measurement, header: &RunHeader) {
    let Measurement { time, noise, ranks, .. } = measured;
    let spread = ranks.spread();
    add(
        object,
        json!({
            "time_us": {
                "min": time.min,
                "p50": time.p50,
                "p90": time.p90,
                "p99": time.p99,
                "mean": time.mean,
                "stdev": time.stdev,
            },
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
                "involuntary_switches": noise.involuntary,
                "spread": time.spread(),
                "disturbed": noise.is_disturbance(),
            },
            "noisy": noise.words(time),
            "restarts": measured.restarts,
            "wrong": measured.wrong,
            "iterations": measured.calls,
            "batches": measured.batches,
        }),
    );
    add_run(object, header);
}

/// Adds the common keys of all objects of a run.
pub(crate) fn add_run(object: &mut Value, header: &RunHeader) {
    add(object, json!({ "schema": SCHEMA, "header": header }));
}

fn add(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::output::row::tests::example;

    fn lines(row: &PerfRow) -> [Value; 2] {
        let header = RunHeader::default();
        objects(row, &header).collect::<Vec<_>>().try_into().unwrap()
    }

    #[test]
    fn every_placement_is_an_object() {
        let [out_of_place, in_place] = lines(&example());
        assert_eq!(out_of_place["in_place"], json!(false));
        assert_eq!(in_place["in_place"], json!(true));
        assert_eq!(in_place["wrong"], json!(3));
        assert_eq!(out_of_place["op"], json!("sum"));
        assert_eq!(out_of_place["offset"], json!(16));
        assert_eq!(out_of_place["path"], json!("staged"));
        assert_eq!(out_of_place["root"], Value::Null);
        assert_eq!(out_of_place["algorithm"], json!("two-shot"));
        assert_eq!(out_of_place["time_us"]["p50"], json!(100.0));
        assert_eq!(out_of_place["time_us"]["stdev"], json!(12.0));
        assert_eq!(out_of_place["samples_us"], json!([90.0, 100.0, 150.0]));
        assert_eq!(out_of_place["schema"], json!(SCHEMA));
        assert_eq!(out_of_place["encrypted"], json!(false));
        let [sealed, _] = lines(&PerfRow { is_encrypted: true, ..example() });
        assert_eq!(sealed["encrypted"], json!(true));
    }
}
