//! Writes the results: a table to standard output, JSON to a file or instead of the table, a
//! report with plots and CSV to a folder, and progress to the terminal.

mod csv;
pub(crate) mod date;
pub(crate) mod header;
pub(crate) mod json;
pub(crate) mod machine;
pub(crate) mod prediction;
mod report;
pub(crate) mod table;

use crate::output::{self, Output, OutputError};
use crate::perf::args::PerfArgs;
use crate::perf::compare::Baseline;
use crate::perf::messages::row::MatrixRow;
use crate::perf::output::header::RunHeader;
use crate::perf::settings::PerfSettings;
use crate::progress::Progress;
use crate::table::{Column, head, line};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use table::Totals;

/// The schema of the objects of `--json`, as JSON Schema.
pub(crate) const SCHEMA: &str = include_str!("schema.json");

/// Checks that the files of `--json`, `--csv` and `--report` can be written, and that of
/// `--compare` read. Keeps the contents of existing
/// files.
///
/// # Errors
///
/// Names the option and the path that cannot be written.
pub(crate) fn can_write(settings: &PerfSettings) -> Result<()> {
    let options = &settings.options;
    options.report.as_deref().map_or(Ok(()), report::make_folder)?;
    settings.baseline()?;
    for (option, path) in [("--json", &options.json), ("--csv", &options.csv)] {
        let Some(path) = path.as_deref().filter(|path| *path != Path::new("-")) else { continue };
        let opened = File::options().append(true).create(true).open(path);
        opened.with_context(|| format!("cannot write {option} {}", path.display()))?;
    }
    Ok(())
}

/// All outputs of a run; rank 0 has one. The first output that cannot be written ends the run: it
/// sets `stop`, so that all ranks end after the same sample and none blames another.
pub(crate) struct PerfOutput<'a> {
    stop: &'a AtomicBool,
    failure: Option<OutputError>,
    /// On a terminal.
    progress: Option<Progress>,
    table: bool,
    columns: &'static [Column],
    json: Option<Output>,
    csv: Option<Output>,
    baseline: Option<Baseline>,
    options: &'a PerfArgs,
    header: RunHeader,
    /// All results with their samples, of which every file is made.
    objects: Vec<Value>,
    /// The last heading of the table.
    section: String,
    pub(crate) totals: Totals,
}

impl<'a> PerfOutput<'a> {
    /// With `--json -`, JSON goes to standard output instead of the table; CSV likewise.
    pub(crate) fn new(settings: &'a PerfSettings, stop: &'a AtomicBool) -> Result<Self> {
        let options = &settings.options;
        let file = |option: &str, path: &Option<PathBuf>| {
            path.as_deref().map(|path| Output::create(option, path)).transpose()
        };
        let is_dash = |path: &Option<PathBuf>| path.as_deref() == Some(Path::new("-"));
        let takes_output = [&options.json, &options.csv].into_iter().any(is_dash);
        let json = file("--json", &options.json)?;
        options.report.as_deref().map_or(Ok(()), report::make_folder)?;
        Ok(Self {
            stop,
            failure: None,
            progress: stderr().is_terminal().then(|| Progress::start("measuring")),
            table: !takes_output,
            columns: match &settings.messages {
                Some(_) => table::MESSAGES,
                None => table::COLLECTIVES,
            },
            json,
            csv: file("--csv", &options.csv)?,
            baseline: settings.baseline()?,
            options,
            header: RunHeader::default(),
            objects: Vec::new(),
            section: String::new(),
            totals: Totals::default(),
        })
    }

    /// True with `--report`.
    pub(crate) fn has_report(&self) -> bool {
        self.options.report.is_some()
    }

    /// Sets the conditions of the run, which are part of every object.
    pub(crate) fn describe(&mut self, header: RunHeader) {
        self.header = header;
    }

    /// The lines above the rows.
    pub(crate) fn head(&self) -> String {
        head(self.columns)
    }

    /// Prints lines above, between or below the rows of the table.
    pub(crate) fn say(&mut self, text: &str) {
        if self.table && self.failure.is_none() {
            self.note(output::print_line(text));
        }
    }

    /// Remembers the first failure, and ends the run.
    fn note(&mut self, written: Result<(), OutputError>) {
        if let Err(error) = written {
            self.stop.store(true, Relaxed);
            self.failure.get_or_insert(error);
        }
    }

    /// Notes the current point, for the progress.
    pub(crate) fn begin(&self, what: String) {
        if let Some(progress) = &self.progress {
            progress.at(what);
        }
    }

    /// Adds the row of a result to every output.
    pub(crate) fn add(&mut self, object: Value) {
        let section = table::section(&object);
        if section != self.section {
            self.say(&section);
            self.section = section;
        }
        self.say(&line(self.columns, &object));
        let notes = table::notes(&object, self.options.per_rank);
        notes.iter().for_each(|line| self.say(line));
        self.note_result(object);
    }

    /// Adds a result to every output but the table.
    pub(crate) fn note_result(&mut self, object: Value) {
        self.totals.add(&object);
        self.record(object);
    }

    /// Keeps an object, and writes it as a line of JSON.
    fn record(&mut self, mut object: Value) {
        json::add(&mut object, json!({ "schema": json::SCHEMA, "header": self.header }));
        if let Some(out) = &mut self.json {
            let mut line = object.clone();
            if let Some(samples) = line.get_mut("samples_us").filter(|_| !self.options.samples) {
                *samples = Value::Null;
            }
            let written = out.write(format_args!("{line}\n"));
            self.note(written);
        }
        self.objects.push(object);
    }

    /// Adds the figures of all pairs to every output.
    pub(crate) fn add_matrix(&mut self, row: &MatrixRow) {
        self.say(&row.text());
        self.record(row.json());
    }

    /// Prints the lines below the table and writes the files. `legend` explains the columns;
    /// `interrupted` means that points are missing. Returns the number of rows that are slower than
    /// the settings allow.
    ///
    /// # Errors
    ///
    /// The first output that could not be written.
    pub(crate) fn end(&mut self, legend: &str, interrupted: bool) -> Result<usize> {
        self.progress = None;
        if interrupted {
            self.say("# interrupted: later points were not measured");
        }
        self.say(&format!("{legend}\n# #wrong total: {}", self.totals.judgement()));
        if let Some(out) = &mut self.csv {
            let tables = [csv::COLLECTIVES, csv::MESSAGES];
            let table = tables.iter().find(|table| table.has_any(&self.objects));
            out.write(table.unwrap_or(&csv::COLLECTIVES).text(&self.objects)?)?;
        }
        let compared = self.baseline.as_ref().map(|baseline| baseline.compare(&self.objects));
        let comparison = compared.as_ref().and_then(|compared| compared.as_ref().ok());
        if let Some(folder) = &self.options.report {
            let line = report::write(folder, &self.header, &self.objects, comparison)?;
            self.say(&line);
        }
        let slower = compared.transpose()?.map_or(0, |comparison| {
            self.say(&comparison.text());
            self.options.fail_below.map_or(0, |least| comparison.slower(least))
        });
        self.failure.take().map_or(Ok(slower), |error| Err(error.into()))
    }
}
