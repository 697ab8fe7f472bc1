//! Results as JSON: one object a line.

use crate::perf::benchmark::BufferPlacement;
use crate::perf::measure::Measurement;
use crate::perf::output::row::PerfRow;
use serde_json::{Value, json};

/// The objects of `row`: one out of place, one in place.
pub(crate) fn objects(row: &PerfRow) -> impl Iterator<Item = Value> + '_ {
    row.measured().map(|(place, measured)| object(row, place, &measured))
}

fn object(row: &PerfRow, place: BufferPlacement, measured: &Measurement) -> Value {
    let collective = row.point.collective;
    let time = measured.time;
    let bandwidths = row.bandwidths(measured);
    json!({
        "collective": collective.name(),
        "ranks": row.parameters.world,
        "transport": row.transport.to_string(),
        "algorithm": measured.algorithm,
        "bytes": row.bytes(),
        "count": row.point.count,
        "type": row.parameters.kind.name(),
        "op": collective.reduces().then(|| row.parameters.op.name()),
        "root": collective.root(),
        "deterministic": row.deterministic,
        "encrypted": row.encryption.is_some(),
        "encryption_GBps": row.encryption.map(|rate| rate.sealing / 1e9),
        "decryption_GBps": row.encryption.map(|rate| rate.opening / 1e9),
        "in_place": place == BufferPlacement::InPlace,
        "offset": row.parameters.offset,
        "path": measured.path.name(),
        "reuses_buffers": row.reuses_buffers,
        "time_us": {
            "min": time.min,
            "p50": time.p50,
            "p90": time.p90,
            "p99": time.p99,
            "mean": time.mean,
        },
        "algbw_GBps": bandwidths.algorithm,
        "busbw_GBps": bandwidths.bus,
        "predicted_us": row.prediction.map(|prediction| prediction.us),
        "wrong": measured.wrong,
        "iterations": measured.calls,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::output::row::tests::example;
    use maypole_transports::secure::{CipherSuite, EncryptionRate};

    #[test]
    fn every_placement_is_an_object() {
        let [out_of_place, in_place] = objects(&example()).collect::<Vec<_>>().try_into().unwrap();
        assert_eq!(out_of_place["in_place"], json!(false));
        assert_eq!(in_place["in_place"], json!(true));
        assert_eq!(in_place["wrong"], json!(3));
        assert_eq!(out_of_place["op"], json!("sum"));
        assert_eq!(out_of_place["offset"], json!(16));
        assert_eq!(out_of_place["path"], json!("staged"));
        assert_eq!(out_of_place["root"], Value::Null);
        assert_eq!(out_of_place["algorithm"], json!("two-shot"));
        assert_eq!(out_of_place["time_us"]["p50"], json!(100.0));
    }

    #[test]
    fn objects_say_whether_bytes_were_encrypted_and_how_fast() {
        let [plain, _] = objects(&example()).collect::<Vec<_>>().try_into().unwrap();
        assert_eq!(plain["encrypted"], json!(false));
        assert_eq!(plain["encryption_GBps"], Value::Null);
        let suite = CipherSuite::ChaCha20Poly1305;
        let rate = EncryptionRate { suite, sealing: 1.5e9, opening: 0.5e9 };
        let row = PerfRow { encryption: Some(rate), ..example() };
        let [sealed, _] = objects(&row).collect::<Vec<_>>().try_into().unwrap();
        assert_eq!(sealed["encrypted"], json!(true));
        assert_eq!(sealed["encryption_GBps"], json!(1.5));
        assert_eq!(sealed["decryption_GBps"], json!(0.5));
    }
}
