//! Results as a CSV table for other programs.

use crate::perf::benchmark::BufferPlacement;
use crate::perf::counts;
use crate::perf::measure::Measurement;
use crate::perf::measure::limits::MachineLimit;
use crate::perf::measure::overlap::Overlap;
use crate::perf::messages::row::MessageRow;
use crate::perf::output::header::RunHeader;
use crate::perf::output::row::PerfRow;
use serde::Serialize;

/// One line of the table. The names of the fields are the header; an unknown value is empty.
#[derive(Serialize)]
#[allow(non_snake_case, reason = "fields are column names, and GBps is a unit")]
struct CsvRecord {
    collective: &'static str,
    transport: String,
    encrypted: bool,
    ranks: usize,
    /// The requested algorithm: a name, or `auto`.
    requested: &'static str,
    algorithm: &'static str,
    path: &'static str,
    tuners_choice: Option<&'static str>,
    in_place: bool,
    bytes: usize,
    count: usize,
    r#type: &'static str,
    op: Option<&'static str>,
    root: Option<usize>,
    min_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    mean_us: f64,
    stdev_us: f64,
    algbw_GBps: f64,
    busbw_GBps: f64,
    predicted_us: Option<f64>,
    limit_us: Option<f64>,
    wrong: Option<u64>,
    calls: u64,
    batches: usize,
    /// The part of a request that computing hid.
    overlap: Option<f64>,
    /// Elements of each rank's block, if they differ.
    counts: Option<String>,
    off_cache_bytes: Option<usize>,
    streams: usize,
    buffers: usize,
    fused: bool,
    speedup: Option<f64>,
    registered: bool,
    slowest_rank: Option<usize>,
    arrival_skew_us: Option<f64>,
    /// What made the row noisy; empty if nothing did.
    noisy: Option<String>,
    host: String,
    date: String,
    version: &'static str,
    commit: Option<&'static str>,
}

/// One line of the table of messages.
#[derive(Serialize)]
#[allow(non_snake_case, reason = "fields are column names, and GBps is a unit")]
struct MessageRecord {
    test: &'static str,
    transport: String,
    encrypted: bool,
    ranks: usize,
    /// As `0-1 2-3`; empty for a ring of all ranks.
    pairs: String,
    bytes: usize,
    window: usize,
    off_cache_bytes: Option<usize>,
    min_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    mean_us: f64,
    stdev_us: f64,
    rate_GBps: f64,
    messages_per_us: f64,
    wrong: Option<u64>,
    batches: usize,
    noisy: Option<String>,
    host: String,
    date: String,
    version: &'static str,
    commit: Option<&'static str>,
}

/// The header, and one line for each row out of place and in place.
pub(crate) fn text(
    rows: &[PerfRow],
    limits: &[MachineLimit],
    header: &RunHeader,
) -> anyhow::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        for (placement, measurement) in row.measured() {
            writer.serialize(record(row, placement, measurement, limits, header))?;
        }
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

fn record(
    row: &PerfRow,
    placement: BufferPlacement,
    measurement: &Measurement,
    limits: &[MachineLimit],
    header: &RunHeader,
) -> CsvRecord {
    let collective = row.point.collective;
    let parameters = row.parameters;
    let time = measurement.time;
    let bandwidths = row.bandwidths(measurement);
    CsvRecord {
        collective: collective.name(),
        transport: row.transport.to_string(),
        encrypted: row.encryption.is_some(),
        ranks: parameters.world,
        requested: row.series_name(),
        algorithm: measurement.algorithm,
        path: measurement.path.name(),
        tuners_choice: row.prediction.map(|prediction| prediction.choice.name()),
        in_place: placement == BufferPlacement::InPlace,
        bytes: row.bytes(),
        count: row.point.count,
        r#type: parameters.kind.name(),
        op: collective.reduces().then(|| parameters.op.name()),
        root: collective.root(),
        min_us: time.min,
        p50_us: time.p50,
        p90_us: time.p90,
        p99_us: time.p99,
        mean_us: time.mean,
        stdev_us: time.stdev,
        algbw_GBps: bandwidths.algorithm,
        busbw_GBps: bandwidths.bus,
        predicted_us: row.prediction.map(|prediction| prediction.us),
        limit_us: row.limit_us(limits),
        wrong: measurement.wrong,
        calls: measurement.calls,
        batches: measurement.batches,
        registered: row.is_registered,
        overlap: row.overlap.as_ref().map(Overlap::part),
        counts: row.counts().as_deref().map(counts::listed),
        off_cache_bytes: parameters.off_cache,
        streams: row.streams,
        buffers: row.aggregate.map_or(1, |aggregate| aggregate.buffers),
        fused: row.aggregate.is_some_and(|aggregate| aggregate.is_fused),
        speedup: row.aggregate.and_then(|aggregate| aggregate.speedup),
        slowest_rank: measurement.ranks.spread().map(|spread| spread.slowest),
        arrival_skew_us: measurement.ranks.skew_us(),
        noisy: measurement.noise.words(&time),
        host: header.host.clone(),
        date: header.date.clone(),
        version: header.version,
        commit: header.commit,
    }
}

/// The header, and one line for each row of messages.
pub(crate) fn messages(rows: &[MessageRow], header: &RunHeader) -> anyhow::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(message(row, header))?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

fn message(row: &MessageRow, header: &RunHeader) -> MessageRecord {
    let measured = &row.measured;
    let time = measured.time;
    let pairs = row.pairs.iter().map(|(from, to)| format!("{from}-{to}"));
    MessageRecord {
        test: row.test.name(),
        transport: row.transport.to_string(),
        encrypted: row.is_encrypted,
        ranks: row.world,
        pairs: pairs.collect::<Vec<_>>().join(" "),
        bytes: row.bytes,
        window: row.test.window(row.bytes),
        off_cache_bytes: row.off_cache,
        min_us: time.min,
        p50_us: time.p50,
        p90_us: time.p90,
        p99_us: time.p99,
        mean_us: time.mean,
        stdev_us: time.stdev,
        rate_GBps: row.rate(),
        messages_per_us: row.messages_per_us(),
        wrong: measured.wrong,
        batches: measured.batches,
        noisy: measured.noise.words(&time),
        host: header.host.clone(),
        date: header.date.clone(),
        version: header.version,
        commit: header.commit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::measure::limits::tests::example as limit;
    use crate::perf::messages::row::tests::example as message_row;
    use crate::perf::output::row::tests::example as row;
    use std::collections::BTreeMap;

    #[test]
    fn every_line_has_every_field() {
        let text = text(&[row(), row()], &[limit()], &RunHeader::default()).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let lines: Vec<BTreeMap<String, String>> =
            reader.deserialize().collect::<Result<_, _>>().unwrap();
        assert_eq!(lines.len(), 4);
        for (name, value) in [
            ("p50_us", "100.0"),
            ("requested", "auto"),
            ("algorithm", "two-shot"),
            ("in_place", "false"),
            ("root", ""),
            ("encrypted", "false"),
            ("path", "staged"),
        ] {
            assert_eq!(lines[0][name], value, "{name}");
        }
    }
    #[test]
    fn every_line_of_messages_has_every_field() {
        let text = messages(&[message_row()], &RunHeader::default()).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let lines: Vec<BTreeMap<String, String>> =
            reader.deserialize().collect::<Result<_, _>>().unwrap();
        let [line] = &lines[..] else { panic!("{text}") };
        for (name, value) in [("test", "bandwidth"), ("pairs", "0-2 1-3"), ("window", "64")] {
            assert_eq!(line[name], value, "{name}");
        }
    }
}
