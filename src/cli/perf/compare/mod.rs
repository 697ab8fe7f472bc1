//! Comparisons: of a run with an earlier one (`--compare`), and of two programs or settings in turn
//! (`--alternate`).
//!
//! [`rows`] reads results, [`interval`] computes confidence intervals of ratios, [`change`] finds
//! the rows that changed beyond noise, and [`alternate`] starts two programs in turn.

pub(crate) mod alternate;
pub(crate) mod change;
pub(crate) mod interval;
pub(crate) mod rows;

use crate::{input, output};
use anyhow::{Context, Result, ensure};
use change::Comparison;
use rows::ResultRow;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The exit code after a row that is slower than `--fail-below` allows.
pub(crate) const SLOWER: u8 = 3;

/// The file in the folder of a report that holds its results as JSON, with samples.
pub(crate) const RESULTS: &str = "results.json";

/// An earlier run to compare with.
pub(crate) struct Baseline {
    path: PathBuf,
    objects: Vec<Value>,
    rows: Vec<ResultRow>,
}

impl Baseline {
    /// Reads the results that `--json` has written to the file `path` that `option` names, or those of
    /// the report in the folder `path`.
    ///
    /// # Errors
    ///
    /// If there are none, or they hold no samples.
    pub(crate) fn read(option: &str, path: &Path) -> Result<Self> {
        let name = path.display();
        let file = if path.is_dir() { path.join(RESULTS) } else { path.to_owned() };
        let text = input::text(option, &file, input::RESULTS)?;
        let objects = rows::objects(&text).with_context(|| format!("{option} {name}"))?;
        let rows: Vec<_> = objects.iter().filter_map(ResultRow::of).collect();
        ensure!(!rows.is_empty(), "{option} {name}: it holds no result of `maypole perf --json`");
        ensure!(
            rows.iter().all(|row| !row.samples.is_empty()),
            "{option} {name}: its rows hold no samples; measure it again with --json {name} \
             --samples"
        );
        Ok(Self { path: path.to_owned(), objects, rows })
    }

    /// Compares the objects of a later run.
    ///
    /// # Errors
    ///
    /// If the two runs have no row in common.
    pub(crate) fn compare(&self, later: &[Value]) -> Result<Comparison> {
        let rows: Vec<_> = later.iter().filter_map(ResultRow::of).collect();
        let mut comparison = Comparison::of(&self.rows, &rows);
        let name = self.path.display();
        let header = |objects: &[Value], key: &str| match objects
            .first()
            .map_or(&Value::Null, |object| &object["header"][key])
        {
            Value::Null => "unknown".to_owned(),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        ensure!(
            comparison.compared > 0,
            "--compare {name}: it has no row of the other run; measure with its options: {}",
            header(&self.objects, "command")
        );
        let date = header(&self.objects, "date");
        comparison.title = format!("first: {name} of {date}; second: {}", header(later, "date"));
        for key in ["host", "processor", "cores", "kernel", "variables"] {
            let [before, now] = [&self.objects, later].map(|objects| header(objects, key));
            if before != now {
                comparison.notes.push(format!("another {key}: {before}, then {now}"));
            }
        }
        Ok(comparison)
    }
}

/// Compares two files without measuring, and prints the rows that changed.
///
/// # Errors
///
/// If one of them cannot be read, or they have no row in common.
pub(crate) fn files(first: &Path, second: &Path, least: Option<f64>) -> Result<ExitCode> {
    let later = Baseline::read("--to", second)?;
    let comparison = Baseline::read("--compare", first)?.compare(&later.objects)?;
    output::print_line(comparison.text())?;
    Ok(code(&comparison, least))
}

/// The exit code after a comparison: [`SLOWER`] if a row has less than the part `least` of its speed.
fn code(comparison: &Comparison, least: Option<f64>) -> ExitCode {
    match least.map_or(0, |least| comparison.slower(least)) {
        0 => ExitCode::SUCCESS,
        _ => SLOWER.into(),
    }
}
