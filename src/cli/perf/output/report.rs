//! The report: one HTML page that draws the results and loads nothing, and the results in the same
//! folder as CSV and as JSON, for comparison with a later report.
//!
//! The page has the objects of `--json` as data, and a script that draws them: plots, tables, and
//! heat maps of all pairs of ranks.

use super::csv;
use super::header::RunHeader;
use crate::output;
use crate::perf::compare::RESULTS;
use crate::perf::compare::change::Comparison;
use crate::perf::messages::MessageTest;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::path::Path;

const FRAME: &str = include_str!("report/page.html");
const STYLE: &str = include_str!("report/page.css");
const SCRIPT: &str = include_str!("report/page.js");

/// Makes the folder of a report.
pub(crate) fn make_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder of --report {}", folder.display()))
}

/// Writes `index.html`, the figures of collectives (`results.csv`) and of messages
/// (`messages.csv`), and all results with their samples (`results.json`). Returns the line with
/// their place.
pub(crate) fn write(
    folder: &Path,
    header: &RunHeader,
    objects: &[Value],
    comparison: Option<&Comparison>,
) -> Result<String> {
    let lines = objects.iter().map(|object| format!("{object}\n")).collect();
    let mut files: Vec<(&str, String)> = Vec::new();
    for table in [csv::COLLECTIVES, csv::MESSAGES].iter().filter(|table| table.has_any(objects)) {
        files.push((table.file, table.text(objects)?));
    }
    files.push((RESULTS, lines));
    let rows: Vec<Value> = objects.iter().map(shown).collect();
    let data = json!({
        "rows": rows,
        "header": header,
        "definitions": MessageTest::ALL
            .map(|test| (test.name().to_owned(), test.definition().into()))
            .into_iter()
            .collect::<serde_json::Map<_, _>>(),
        "changes": comparison.map(|it| json!({ "head": it.head(), "rows": it.changes })),
        "files": files.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
    });
    files.push(("index.html", page(&data)));
    for (name, text) in files {
        output::save("--report", &folder.join(name), text)?;
    }
    Ok(format!("# report: {}", folder.join("index.html").display()))
}

fn page(data: &Value) -> String {
    // A script ends at `</`, also within a text. In JSON, only a text can have the sign.
    let data = data.to_string().replace('<', "\\u003c");
    FRAME.replace("{{style}}", STYLE).replace("{{script}}", SCRIPT).replace("{{data}}", &data)
}

/// The part of an object that the page shows.
fn shown(object: &Value) -> Value {
    let mut object = object.clone();
    if let Value::Object(keys) = &mut object {
        keys.retain(|key, _| !["header", "samples_us"].contains(&key.as_str()));
    }
    object
}
