//! Writes the results: a table to standard output, JSON to a file or instead of the table, a
//! report with plots and CSV to a folder, and a progress bar to the terminal.

mod csv;
mod html;
mod json;
pub(crate) mod machine;
pub(crate) mod prediction;
pub(crate) mod row;
pub(crate) mod table;

use crate::output::{self, Output, OutputError};
use crate::perf::measure::limits::MachineLimit;
use crate::perf::output::row::PerfRow;
use crate::perf::settings::PerfSettings;
use anyhow::{Context, Result};
use html::HtmlReport;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fs::File;
use std::io::{IsTerminal, stderr};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use table::Totals;

/// Checks that the files of `--json` and `--report` can be written. Keeps the contents of existing
/// files.
///
/// # Errors
///
/// Names the option and the path that cannot be written.
pub(crate) fn can_write(settings: &PerfSettings) -> Result<()> {
    settings.report.as_deref().map_or(Ok(()), html::make_folder)?;
    let Some(path) = settings.json.as_deref().filter(|path| *path != Path::new("-")) else {
        return Ok(());
    };
    let opened = File::options().append(true).create(true).open(path);
    opened.map(drop).with_context(|| format!("cannot write --json {}", path.display()))
}

/// All outputs of a run; rank 0 has one. The first output that cannot be written ends the run: it
/// sets `stop`, so that all ranks end after the same sample and none blames another.
pub(crate) struct PerfOutput<'a> {
    stop: &'a AtomicBool,
    failure: Option<OutputError>,
    bar: ProgressBar,
    table: bool,
    json: Option<Output>,
    report: Option<HtmlReport>,
    /// The last heading of the table.
    section: String,
    pub(crate) totals: Totals,
}

impl<'a> PerfOutput<'a> {
    /// Outputs for `points` rows. With `--json -`, JSON goes to standard output instead of the
    /// table.
    pub(crate) fn new(
        points: usize,
        settings: &PerfSettings,
        stop: &'a AtomicBool,
    ) -> Result<Self> {
        let path = settings.json.as_deref();
        let json_only = path == Some(Path::new("-"));
        let json = path.map(|path| Output::create("--json", path)).transpose()?;
        let target = if stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} [{elapsed}]")
            .expect("a valid template");
        let bar = ProgressBar::with_draw_target(Some(points as u64), target).with_style(style);
        let report = settings.report.as_deref().map(HtmlReport::new).transpose()?;
        Ok(Self {
            stop,
            failure: None,
            bar,
            table: !json_only,
            json,
            report,
            section: String::new(),
            totals: Totals::default(),
        })
    }

    /// True with `--report`.
    pub(crate) fn has_report(&self) -> bool {
        self.report.is_some()
    }

    /// Passes the facts about the machine and the settings to the report.
    pub(crate) fn describe(&mut self, facts: impl FnOnce() -> Vec<(&'static str, String)>) {
        if let Some(report) = &mut self.report {
            report.describe(facts());
        }
    }

    /// Passes the machine's limit to the report.
    pub(crate) fn limit(&mut self, limit: MachineLimit) {
        if let Some(report) = &mut self.report {
            report.limit(limit);
        }
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
        if let Some(line) = table::prediction(row) {
            self.say(&line);
        }
        self.totals.add(row);
        if let Some(report) = &mut self.report {
            report.add(row);
        }
        if let Some(out) = &mut self.json {
            let lines: String = json::objects(row).map(|object| format!("{object}\n")).collect();
            let written = out.write(lines);
            self.note(written);
        }
    }

    /// Prints the lines below the table and writes the report. `interrupted` says that points are
    /// missing.
    ///
    /// # Errors
    ///
    /// The first output that could not be written.
    pub(crate) fn end(&mut self, one_clock: bool, interrupted: bool) -> Result<()> {
        self.bar.finish_and_clear();
        if interrupted {
            self.say("# interrupted: later points were not measured");
        }
        self.say(&self.totals.text(one_clock));
        if let Some(report) = &self.report {
            let line = report.write()?;
            self.say(&line);
        }
        self.failure.take().map_or(Ok(()), |error| Err(error.into()))
    }
}
