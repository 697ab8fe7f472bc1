//! Reads the results of a run from the lines that `--json` writes.

use anyhow::{Context, Result};
use serde_json::{Map, Value};

/// The keys that distinguish rows of a run. Rows of two runs are compared if all of these agree.
/// Settings such as encryption are no part of them, because two settings can be compared.
const KEYS: &str = "collective test transport requested ranks pairs bytes count window type op root in_place offset \
    reuses_buffers together registered overlapped counts off_cache_bytes";

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ResultRow {
    /// The values of [`KEYS`] that the row has.
    pub(crate) key: Map<String, Value>,
    /// Microseconds of a call: the median.
    pub(crate) us: f64,
    /// Microseconds of a call in each batch; empty if the run kept none.
    pub(crate) samples: Vec<f64>,
    /// Other programs took much of the ranks' cores.
    pub(crate) is_disturbed: bool,
}

/// The objects of `text`, one a line.
///
/// # Errors
///
/// The number of the first line that is none.
pub(crate) fn objects(text: &str) -> Result<Vec<Value>> {
    let read = |(nth, line): (usize, &str)| {
        serde_json::from_str(line).with_context(|| format!("line {} is no JSON", nth + 1))
    };
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(read).collect()
}

impl ResultRow {
    /// The row that `object` holds; `None` if it is something else, as a matrix.
    pub(crate) fn of(object: &Value) -> Option<Self> {
        let us = object["time_us"]["p50"].as_f64().filter(|us| *us > 0.0)?;
        let value = |key: &str| Some((key.to_owned(), object.get(key)?.clone()));
        let samples = object["samples_us"].as_array();
        let samples = samples.map(|all| all.iter().filter_map(Value::as_f64).collect());
        let key = KEYS.split_whitespace().filter_map(value).collect();
        let is_disturbed = object["noise"]["disturbed"] == true;
        Some(Self { key, us, samples: samples.unwrap_or_default(), is_disturbed })
    }

    /// True if the two rows are of one point. A key that one of them lacks is not compared: programs
    /// of another version may not write it.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let agree =
            |(key, value): (&String, &Value)| other.key.get(key).is_none_or(|other| other == value);
        self.key.contains_key("collective") == other.key.contains_key("collective")
            && self.key.iter().all(agree)
    }

    /// The row in words.
    pub(crate) fn title(&self) -> String {
        let word = |key: &str| match self.key.get(key) {
            Some(Value::String(word)) => Some(word.replace('_', "-")),
            Some(Value::Number(number)) => Some(number.to_string()),
            _ => None,
        };
        let mut title = word("collective").or_else(|| word("test")).unwrap_or_default();
        for (key, before, after) in [
            ("bytes", " of ", " bytes"),
            ("transport", " over ", ""),
            ("requested", " by ", ""),
            ("type", ", ", ""),
            ("op", " ", ""),
        ] {
            if let Some(word) = word(key) {
                title += &format!("{before}{word}{after}");
            }
        }
        if let Some(pairs) = self.key.get("pairs") {
            title += &format!(", pairs {pairs}");
        }
        if let Some(counts @ Value::Array(_)) = self.key.get("counts") {
            title += &format!(", counts {counts}");
        }
        if self.key.get("off_cache_bytes").is_some_and(Value::is_number) {
            title += ", outside caches";
        }
        for (key, words) in [
            ("overlapped", ", beside computing"),
            ("registered", ", registered"),
            ("in_place", ", in place"),
        ] {
            title += if self.key.get(key) == Some(&Value::Bool(true)) { words } else { "" };
        }
        title
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(object: Value) -> ResultRow {
        ResultRow::of(&object).unwrap()
    }

    #[test]
    fn rows_are_told_apart_by_what_was_measured() {
        let one = json!({"collective": "all_reduce", "bytes": 8, "time_us": {"p50": 1.0}});
        let row_of = |key: &str, value: Value| {
            let mut object = one.clone();
            object[key] = value;
            row(object)
        };
        assert!(row(one.clone()).is_like(&row_of("algorithm", json!("ring"))));
        assert!(row(one.clone()).is_like(&row_of("requested", json!("auto"))), "it lacks the key");
        assert!(!row(one.clone()).is_like(&row_of("bytes", json!(16))));
        assert!(!row_of("in_place", json!(true)).is_like(&row_of("in_place", json!(false))));
        assert_eq!(row(one.clone()).title(), "all-reduce of 8 bytes");
        assert_eq!(row_of("samples_us", json!([1.0, 2.0])).samples, [1.0, 2.0]);
        assert_eq!(ResultRow::of(&json!({"matrix_us": []})), None);
    }

    #[test]
    fn lines_that_are_no_objects_are_named() {
        let error = objects("{}\n\nfalse start\n").unwrap_err().to_string();
        assert_eq!(error, "line 3 is no JSON");
    }
}
