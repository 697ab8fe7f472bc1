//! The tables of results for readers: columns of the objects that `--json` prints.

use serde_json::Value;

/// A column: its name, its unit, its width, and the place of its values in an object.
pub(crate) type Column = (&'static str, &'static str, usize, &'static str);

/// The most letters of a value that is as long as there are ranks.
const LONGEST: usize = 40;

/// The two lines above the rows.
pub(crate) fn head(columns: &[Column]) -> String {
    let of = |pick: fn(&Column) -> &'static str| {
        let cells = columns.iter().map(|column| format!("{:>1$}", pick(column), column.2));
        cells.collect::<Vec<_>>().join(" ")
    };
    // The first column has room for the mark of a line that is no result.
    format!("#{}\n#{}", &of(|column| column.0)[1..], of(|column| column.1)[1..].trim_end())
}

/// The row of a result.
pub(crate) fn line(columns: &[Column], object: &Value) -> String {
    let cells = columns.iter().map(|(.., width, place)| format!("{:>width$}", cell(object, place)));
    cells.collect::<Vec<_>>().join(" ")
}

fn cell(object: &Value, place: &str) -> String {
    let value = object.pointer(place).unwrap_or(&Value::Null);
    let mut text = match value {
        // A barrier has no bytes.
        Value::Number(_) if place.ends_with("bw_GBps") && object["bytes"] == 0 => String::new(),
        Value::Number(seconds) if place == "/seconds" => {
            format!("{:.2}", seconds.as_f64().unwrap_or(0.0) * 1e6)
        }
        Value::Number(number) if number.is_f64() => figure(number.as_f64().unwrap_or(0.0)),
        Value::Bool(is_in_place) => (if *is_in_place { "in" } else { "out" }).to_owned(),
        Value::Array(pairs) if pairs.is_empty() => "ring of all".to_owned(),
        // Of the rank with the most.
        Value::Array(ranks) if ranks[0].is_u64() => {
            ranks.iter().filter_map(Value::as_u64).max().unwrap_or(0).to_string()
        }
        Value::String(algorithm) if place == "/algorithm" => match object["path"].as_str() {
            Some("registered") => format!("{algorithm}/reg"),
            Some("copied") => format!("{algorithm}/copy"),
            _ => algorithm.clone(),
        },
        value => field(Some(value)),
    };
    if value.is_array() && text.len() > LONGEST {
        text.truncate(LONGEST - 3);
        text += "...";
    }
    if text.is_empty() { "-".to_owned() } else { text }
}

/// Three significant digits or more.
pub(crate) fn figure(value: f64) -> String {
    let digits = match value {
        ..0.01 => 6,
        ..10.0 => 3,
        ..1000.0 => 2,
        _ => 1,
    };
    format!("{value:.digits$}")
}

/// A value as a field: empty if unknown, shares as `3:1`, pairs as `0-1 2-3`.
pub(crate) fn field(value: Option<&Value>) -> String {
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
