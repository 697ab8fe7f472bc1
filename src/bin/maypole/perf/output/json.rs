//! Results as JSON, one object a line.

use crate::perf::benchmark::Place;
use crate::perf::measure::Measured;
use crate::perf::output::row::Row;
use serde_json::{Value, json};

/// An object for each place of `row`.
pub(crate) fn objects(row: &Row) -> impl Iterator<Item = Value> + '_ {
    row.measured().map(|(place, measured)| object(row, place, &measured))
}

fn object(row: &Row, place: Place, measured: &Measured) -> Value {
    let (collective, time) = (row.point.collective, measured.time);
    let (algorithm_bandwidth, bus_bandwidth) = row.bandwidths(measured);
    json!({
        "collective": collective.name(),
        "ranks": row.given.world,
        "transport": row.transport.to_string(),
        "algorithm": row.algorithm.name(),
        "bytes": row.bytes(),
        "count": row.point.count,
        "type": row.given.kind.name(),
        "op": collective.reduces().then(|| row.given.op.name()),
        "root": collective.root(),
        "deterministic": row.deterministic,
        "in_place": place == Place::Same,
        "time_us": {
            "min": time.min,
            "p50": time.p50,
            "p90": time.p90,
            "p99": time.p99,
            "mean": time.mean,
        },
        "algbw_GBps": algorithm_bandwidth,
        "busbw_GBps": bus_bandwidth,
        "wrong": measured.wrong,
        "iterations": measured.calls,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::output::row::tests::example;

    #[test]
    fn every_place_is_a_line() {
        let [apart, same] = objects(&example()).collect::<Vec<_>>().try_into().unwrap();
        assert_eq!(
            (&apart["in_place"], &same["in_place"], &same["wrong"]),
            (&json!(false), &json!(true), &json!(3))
        );
        assert_eq!(
            (&apart["op"], &apart["root"], &apart["algorithm"]),
            (&json!("sum"), &Value::Null, &json!("two-shot"))
        );
        assert_eq!(apart["time_us"]["p50"], json!(100.0));
    }
}
