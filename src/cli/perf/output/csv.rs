//! Results as a CSV table for other programs: some keys of the JSON objects, as columns.

use crate::table::field;
use serde_json::Value;

/// A table, as a file of a report or that of `--csv`.
pub(crate) struct CsvTable {
    /// Its name in the folder of a report.
    pub(crate) file: &'static str,
    /// The key that its objects have and those of other tables lack.
    key: &'static str,
    /// The columns: keys of an object, or names with the place of the value in it.
    columns: &'static str,
}

pub(crate) const COLLECTIVES: CsvTable = CsvTable {
    file: "results.csv",
    key: "collective",
    columns: "collective transport encrypted ranks requested algorithm path tuners_choice in_place bytes count type op \
        root min_us=/time_us/min p50_us=/time_us/p50 p90_us=/time_us/p90 p99_us=/time_us/p99 mean_us=/time_us/mean \
        stdev_us=/time_us/stdev algbw_GBps busbw_GBps predicted_us wrong calls=/iterations batches overlap=/overlap/part \
        counts off_cache_bytes registered slowest_rank=/rank_us/slowest arrival_skew_us noisy \
        host=/header/host date=/header/date version=/header/version commit=/header/commit",
};

pub(crate) const MESSAGES: CsvTable = CsvTable {
    file: "messages.csv",
    key: "window",
    columns: "test transport encrypted ranks pairs bytes window min_us=/time_us/min \
        p50_us=/time_us/p50 p90_us=/time_us/p90 p99_us=/time_us/p99 mean_us=/time_us/mean stdev_us=/time_us/stdev \
        rate_GBps messages_per_us wrong batches noisy host=/header/host date=/header/date version=/header/version \
        commit=/header/commit",
};

impl CsvTable {
    /// The objects that the table shows.
    fn rows<'a>(&self, objects: &'a [Value]) -> impl Iterator<Item = &'a Value> {
        let key = self.key;
        objects.iter().filter(move |object| object.get(key).is_some())
    }

    pub(crate) fn has_any(&self, objects: &[Value]) -> bool {
        self.rows(objects).next().is_some()
    }

    /// The header, and one line for each of the table's objects.
    pub(crate) fn text(&self, objects: &[Value]) -> anyhow::Result<String> {
        let place = |column: &str| match column.split_once('=') {
            Some((name, place)) => (name.to_owned(), place.to_owned()),
            None => (column.to_owned(), format!("/{column}")),
        };
        let columns: Vec<(String, String)> = self.columns.split_whitespace().map(place).collect();
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(columns.iter().map(|(name, _)| name))?;
        for object in self.rows(objects) {
            writer.write_record(columns.iter().map(|(_, place)| field(object.pointer(place))))?;
        }
        Ok(String::from_utf8(writer.into_inner()?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::messages::row::tests::example as message_row;
    use crate::perf::output::json::tests::example;
    use std::collections::BTreeMap;

    fn lines(table: &CsvTable, objects: &[Value]) -> Vec<BTreeMap<String, String>> {
        let text = table.text(objects).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        reader.deserialize().collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn every_line_has_every_field() {
        let mut objects = example().to_vec();
        objects.push(message_row());
        let found = lines(&COLLECTIVES, &objects);
        assert_eq!(found.len(), 2);
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
            assert_eq!(found[0][name], value, "{name}");
        }
        let [line] = &lines(&MESSAGES, &objects)[..] else { panic!("{objects:?}") };
        for (name, value) in [("test", "bandwidth"), ("pairs", "0-2 1-3"), ("window", "64")] {
            assert_eq!(line[name], value, "{name}");
        }
    }
}
