//! Results as a CSV table for other programs: some keys of the JSON objects, as columns.

use crate::perf::messages::row::MessageRow;
use crate::perf::output::json::{self, JsonOptions};
use crate::perf::output::row::PerfRow;
use serde_json::Value;

/// The columns: keys of an object, or names with the place of the value in it.
const COLUMNS: &str = "collective transport encrypted ranks requested algorithm path tuners_choice in_place bytes count type op \
    root min_us=/time_us/min p50_us=/time_us/p50 p90_us=/time_us/p90 p99_us=/time_us/p99 mean_us=/time_us/mean \
    stdev_us=/time_us/stdev algbw_GBps busbw_GBps predicted_us limit_us wrong calls=/iterations batches overlap=/overlap/part \
    counts off_cache_bytes registered slowest_rank=/rank_us/slowest arrival_skew_us noisy \
    host=/header/host date=/header/date version=/header/version commit=/header/commit";

/// The columns of messages.
const MESSAGES: &str = "test transport encrypted ranks pairs bytes window off_cache_bytes min_us=/time_us/min \
    p50_us=/time_us/p50 p90_us=/time_us/p90 p99_us=/time_us/p99 mean_us=/time_us/mean stdev_us=/time_us/stdev rate_GBps \
    messages_per_us wrong batches noisy host=/header/host date=/header/date version=/header/version commit=/header/commit";

/// The header, and one line for each row out of place and in place.
pub(crate) fn text(rows: &[PerfRow], options: JsonOptions<'_>) -> anyhow::Result<String> {
    table(COLUMNS, rows.iter().flat_map(|row| json::objects(row, options)))
}

/// The header, and one line for each row of messages.
pub(crate) fn messages(rows: &[MessageRow], options: JsonOptions<'_>) -> anyhow::Result<String> {
    table(MESSAGES, rows.iter().map(|row| row.json(&options)))
}

fn table(columns: &str, objects: impl Iterator<Item = Value>) -> anyhow::Result<String> {
    let place = |column: &str| match column.split_once('=') {
        Some((name, place)) => (name.to_owned(), place.to_owned()),
        None => (column.to_owned(), format!("/{column}")),
    };
    let columns: Vec<(String, String)> = columns.split_whitespace().map(place).collect();
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(columns.iter().map(|(name, _)| name))?;
    for object in objects {
        writer.write_record(columns.iter().map(|(_, place)| field(object.pointer(place))))?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

/// A value as a field: empty if unknown, shares as `3:1`, pairs as `0-1 2-3`.
fn field(value: Option<&Value>) -> String {
    let joined = |values: &[Value], between: &str| {
        values.iter().map(|value| field(Some(value))).collect::<Vec<_>>().join(between)
    };
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(all)) if all.iter().any(Value::is_array) => {
            let pairs = all.iter().filter_map(Value::as_array).map(|pair| joined(pair, "-"));
            pairs.collect::<Vec<_>>().join(" ")
        }
        Some(Value::Array(all)) => joined(all, ":"),
        Some(value) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::measure::limits::MachineLimit;
    use crate::perf::measure::limits::tests::example as limit;
    use crate::perf::messages::row::tests::example as message_row;
    use crate::perf::output::header::RunHeader;
    use crate::perf::output::row::tests::example as row;
    use std::collections::BTreeMap;

    fn options<'a>(header: &'a RunHeader, limits: &'a [MachineLimit]) -> JsonOptions<'a> {
        JsonOptions { header, limits, samples: false }
    }

    #[test]
    fn every_line_has_every_field() {
        let text = text(&[row(), row()], options(&RunHeader::default(), &[limit()])).unwrap();
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
            ("version", ""),
        ] {
            assert_eq!(lines[0][name], value, "{name}");
        }
    }
    #[test]
    fn every_line_of_messages_has_every_field() {
        let text = messages(&[message_row()], options(&RunHeader::default(), &[])).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let lines: Vec<BTreeMap<String, String>> =
            reader.deserialize().collect::<Result<_, _>>().unwrap();
        let [line] = &lines[..] else { panic!("{text}") };
        for (name, value) in [("test", "bandwidth"), ("pairs", "0-2 1-3"), ("window", "64")] {
            assert_eq!(line[name], value, "{name}");
        }
    }
}
