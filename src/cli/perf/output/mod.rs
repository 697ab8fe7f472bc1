//! Writes the results: a table to standard output, JSON to a file or instead of the table, a
//! report with plots and CSV to a folder, and a progress bar to the terminal.

mod csv;
pub(crate) mod date;
pub(crate) mod header;
pub(crate) mod json;
pub(crate) mod machine;
pub(crate) mod prediction;
mod report;
pub(crate) mod row;
pub(crate) mod table;

use crate::output::{self, Output, OutputError};
use crate::perf::args::PerfArgs;
use crate::perf::compare::Baseline;
use crate::perf::measure::Measurement;
use crate::perf::messages::row::{MatrixRow, MessageRow};
use crate::perf::output::header::RunHeader;
use crate::perf::output::row::PerfRow;
use crate::perf::settings::PerfSettings;
use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;
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
    bar: ProgressBar,
    table: bool,
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
    /// Outputs for `points` rows. With `--json -`, JSON goes to standard output instead of the
    /// table; CSV likewise.
    pub(crate) fn new(
        points: usize,
        settings: &'a PerfSettings,
        stop: &'a AtomicBool,
    ) -> Result<Self> {
        let options = &settings.options;
        let file = |option: &str, path: &Option<PathBuf>| {
            path.as_deref().map(|path| Output::create(option, path)).transpose()
        };
        let is_dash = |path: &Option<PathBuf>| path.as_deref() == Some(Path::new("-"));
        let takes_output = [&options.json, &options.csv].into_iter().any(is_dash);
        let json = file("--json", &options.json)?;
        let target = if stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} [{elapsed}]")
            .expect("a valid template");
        let bar = ProgressBar::with_draw_target(Some(points as u64), target).with_style(style);
        options.report.as_deref().map_or(Ok(()), report::make_folder)?;
        Ok(Self {
            stop,
            failure: None,
            bar,
            table: !takes_output,
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

    /// Prints lines above, between or below the rows of the table.
    pub(crate) fn say(&mut self, text: &str) {
        if self.table && self.failure.is_none() {
            let written = self.bar.suspend(|| output::print_line(text));
            self.note(written);
        }
    }

    /// Remembers the first failure, and ends the run.
    fn note(&mut self, written: Result<(), OutputError>) {
        if let Err(error) = written {
            self.stop.store(true, Relaxed);
            self.failure.get_or_insert(error);
        }
    }

    /// Shows the current point in the progress bar.
    pub(crate) fn begin(&self, what: String) {
        self.bar.set_message(what);
    }

    pub(crate) fn add(&mut self, row: &PerfRow) {
        self.bar.inc(1);
        if row.measured().next().is_none() {
            return;
        }
        let section = table::section(row);
        if section != self.section {
            self.say(&section);
            self.section = section;
        }
        self.say(&table::line(row));
        let below = [table::prediction(row), table::overlap(row)];
        below.iter().flatten().for_each(|line| self.say(line));
        let measured = row.measured().map(|(_, measured)| measured).collect::<Vec<_>>();
        self.say_circumstances(&measured);
        self.totals.add(row);
        let objects: Vec<Value> = json::objects(row, &self.header).collect();
        objects.into_iter().for_each(|object| self.record(object));
    }

    /// Prints below a row the times of all ranks, if requested, the causes of noise, and whether
    /// its samples were taken again.
    fn say_circumstances(&mut self, measured: &[&Measurement]) {
        let ranks =
            measured.first().filter(|_| self.options.per_rank).and_then(|it| table::ranks(it));
        if let Some(ranks) = ranks {
            self.say(&ranks);
        }
        let again = measured.iter().map(|it| it.restarts).sum::<u32>();
        if again > 0 {
            let times = if again == 1 { "once".to_owned() } else { format!("{again} times") };
            self.say(&format!("#  not warm at first: measured again {times}"));
        }
        if let Some(words) = measured.iter().find_map(|it| it.noise.words(&it.time)) {
            self.say(&format!("#  noisy: {words}"));
        }
    }

    /// Keeps an object, and writes it as a line of JSON.
    fn record(&mut self, object: Value) {
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

    pub(crate) fn add_message(&mut self, row: &MessageRow) {
        self.bar.inc(1);
        let section = row.section();
        if section != self.section {
            self.say(&section);
            self.section = section;
        }
        self.say(&row.line());
        self.say_circumstances(&[&row.measured]);
        self.note_message(row);
    }

    /// Adds a row of messages to every output but the table.
    pub(crate) fn note_message(&mut self, row: &MessageRow) {
        self.totals.count(row.measured.wrong);
        self.record(row.json(&self.header));
    }

    /// Adds the figures of all pairs to every output.
    pub(crate) fn add_matrix(&mut self, row: &MatrixRow) {
        self.bar.inc(1);
        self.say(&row.text());
        self.record(row.json(&self.header));
    }

    /// Prints the lines below the table and writes the files. `legend` explains the columns;
    /// `interrupted` means that points are missing. Returns the number of rows that are slower than
    /// the settings allow.
    ///
    /// # Errors
    ///
    /// The first output that could not be written.
    pub(crate) fn end(&mut self, legend: &str, interrupted: bool) -> Result<usize> {
        self.bar.finish_and_clear();
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
