//! Writes the results: a table to standard output, JSON to a file or instead of the table, a
//! report with plots and CSV to a folder, and a progress bar to the terminal.

mod csv;
pub(crate) mod date;
pub(crate) mod header;
mod html;
pub(crate) mod json;
pub(crate) mod machine;
pub(crate) mod prediction;
pub(crate) mod row;
pub(crate) mod table;

use crate::output::{self, Output, OutputError};
use crate::perf::compare::Baseline;
use crate::perf::compare::change::Comparison;
use crate::perf::measure::Measurement;
use crate::perf::measure::limits::MachineLimit;
use crate::perf::messages::row::{MatrixRow, MessageRow};
use crate::perf::output::header::RunHeader;
use crate::perf::output::json::JsonOptions;
use crate::perf::output::row::PerfRow;
use crate::perf::settings::PerfSettings;
use anyhow::{Context, Result};
use html::{HtmlReport, ReportContents};
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
    settings.report.as_deref().map_or(Ok(()), html::make_folder)?;
    settings.baseline()?;
    for (option, path) in [("--json", &settings.json), ("--csv", &settings.csv)] {
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
    /// With `samples`, objects of JSON hold every sample.
    samples: bool,
    per_rank: bool,
    csv: Option<Output>,
    report: Option<HtmlReport>,
    baseline: Option<Baseline>,
    fail_below: Option<f64>,
    header: RunHeader,
    rows: Vec<PerfRow>,
    messages: Vec<MessageRow>,
    matrices: Vec<MatrixRow>,
    limits: Vec<MachineLimit>,
    /// The last heading of the table.
    section: String,
    pub(crate) totals: Totals,
}

impl<'a> PerfOutput<'a> {
    /// Outputs for `points` rows. With `--json -`, JSON goes to standard output instead of the
    /// table; CSV likewise.
    pub(crate) fn new(
        points: usize,
        settings: &PerfSettings,
        stop: &'a AtomicBool,
    ) -> Result<Self> {
        let file = |option: &str, path: &Option<PathBuf>| {
            path.as_deref().map(|path| Output::create(option, path)).transpose()
        };
        let is_dash = |path: &Option<PathBuf>| path.as_deref() == Some(Path::new("-"));
        let takes_output = [&settings.json, &settings.csv].into_iter().any(is_dash);
        let json = file("--json", &settings.json)?;
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
            table: !takes_output,
            json,
            samples: settings.samples,
            per_rank: settings.per_rank,
            csv: file("--csv", &settings.csv)?,
            report,
            baseline: settings.baseline()?,
            fail_below: settings.fail_below,
            header: RunHeader::default(),
            rows: Vec::new(),
            messages: Vec::new(),
            matrices: Vec::new(),
            limits: Vec::new(),
            section: String::new(),
            totals: Totals::default(),
        })
    }

    /// True with `--report`.
    pub(crate) fn has_report(&self) -> bool {
        self.report.is_some()
    }

    /// Passes the facts about the machine and the settings to all outputs.
    pub(crate) fn describe(
        &mut self,
        header: RunHeader,
        facts: impl FnOnce(&RunHeader) -> Vec<(&'static str, String)>,
    ) {
        if let Some(report) = &mut self.report {
            report.describe(facts(&header));
        }
        self.header = header;
    }

    /// Passes the machine's limit to the report.
    pub(crate) fn limit(&mut self, limit: MachineLimit) {
        self.limits.push(limit);
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
        let lines = json::objects(row, self.json_options(self.samples))
            .map(|object| format!("{object}\n"))
            .collect();
        self.write_json(lines);
        self.rows.push(row.clone());
    }

    /// Prints below a row the times of all ranks, if requested, the causes of noise, and whether
    /// its samples were taken again.
    fn say_circumstances(&mut self, measured: &[&Measurement]) {
        let ranks = measured.first().filter(|_| self.per_rank).and_then(|it| table::ranks(it));
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

    fn write_json(&mut self, lines: String) {
        if let Some(out) = &mut self.json {
            let written = out.write(lines);
            self.note(written);
        }
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
        let line = format!("{}\n", row.json(&self.json_options(self.samples)));
        self.write_json(line);
        self.messages.push(row.clone());
    }

    /// Adds the figures of all pairs to every output.
    pub(crate) fn add_matrix(&mut self, row: MatrixRow) {
        self.bar.inc(1);
        self.say(&row.text());
        let line = format!("{}\n", row.json(&self.json_options(self.samples)));
        self.write_json(line);
        self.matrices.push(row);
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
        self.write_files()?;
        let objects = self.objects();
        let compared = self.baseline.as_ref().map(|baseline| baseline.compare(&objects));
        let comparison = compared.as_ref().and_then(|compared| compared.as_ref().ok());
        if let Some(line) = self.write_report(&objects, comparison)? {
            self.say(&line);
        }
        let slower = compared.transpose()?.map_or(0, |comparison| {
            self.say(&comparison.text());
            self.fail_below.map_or(0, |least| comparison.slower(least))
        });
        self.failure.take().map_or(Ok(slower), |error| Err(error.into()))
    }

    fn json_options(&self, samples: bool) -> JsonOptions<'_> {
        JsonOptions { header: &self.header, limits: &self.limits, samples }
    }

    /// All results with their samples, as `--json` writes them; none without a reader.
    fn objects(&self) -> Vec<Value> {
        if self.baseline.is_none() && self.report.is_none() {
            return Vec::new();
        }
        let options = self.json_options(true);
        let rows = self.rows.iter().flat_map(|row| json::objects(row, options));
        let messages = self.messages.iter().map(|row| row.json(&options));
        rows.chain(messages).chain(self.matrices.iter().map(|row| row.json(&options))).collect()
    }

    /// Writes the report, if there is one; returns the line with its place.
    fn write_report(
        &self,
        objects: &[Value],
        comparison: Option<&Comparison>,
    ) -> Result<Option<String>> {
        let contents = ReportContents {
            rows: &self.rows,
            messages: &self.messages,
            matrices: &self.matrices,
            limits: &self.limits,
            comparison,
            header: &self.header,
            objects,
        };
        self.report.as_ref().map(|report| report.write(&contents)).transpose()
    }

    fn write_files(&mut self) -> Result<()> {
        let options = self.json_options(false);
        let text = match self.rows.is_empty() && !self.messages.is_empty() {
            true => csv::messages(&self.messages, options)?,
            false => csv::text(&self.rows, options)?,
        };
        if let Some(out) = &mut self.csv {
            out.write(text)?;
        }
        Ok(())
    }
}
