//! Where results go: the table to standard output, JSON to a file or instead of the table, a page
//! with plots to a folder, progress to the terminal.

mod csv;
mod html;
mod json;
pub(crate) mod machine;
pub(crate) mod prediction;
pub(crate) mod row;
pub(crate) mod table;

use crate::perf::args::Settings;
use crate::perf::measure::limits::Limit;
use crate::perf::output::row::Row;
use anyhow::{Context, Result};
use html::Page;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fs::File;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::path::Path;
use table::Totals;

/// Whether results can go where they shall. Leaves what is there as it is.
pub(crate) fn can_write(settings: &Settings) -> Result<()> {
    settings.report.as_deref().map_or(Ok(()), html::make)?;
    let Some(path) = settings.json.as_deref().filter(|path| *path != Path::new("-")) else {
        return Ok(());
    };
    let opened = File::options().append(true).create(true).open(path);
    opened.map(drop).with_context(|| format!("cannot write --json {}", path.display()))
}

/// Rank 0's.
pub(crate) struct Report {
    bar: ProgressBar,
    table: bool,
    json: Option<Box<dyn Write>>,
    page: Option<Page>,
    section: String,
    pub(crate) totals: Totals,
}

impl Report {
    /// For `points` points. JSON for `-` goes to standard output instead of the table.
    pub(crate) fn new(points: usize, settings: &Settings) -> Result<Self> {
        let json = settings.json.as_deref();
        let alone = json == Some(Path::new("-"));
        let json: Option<Box<dyn Write>> = match json {
            None => None,
            Some(_) if alone => Some(Box::new(stdout())),
            Some(path) => Some(Box::new(
                File::create(path)
                    .with_context(|| format!("cannot write --json {}", path.display()))?,
            )),
        };
        let target = if stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} [{elapsed}]")
            .expect("a valid template");
        let bar = ProgressBar::with_draw_target(Some(points as u64), target).with_style(style);
        let page = settings.report.as_deref().map(Page::new).transpose()?;
        Ok(Self {
            bar,
            table: !alone,
            json,
            page,
            section: String::new(),
            totals: Totals::default(),
        })
    }

    /// Whether there is to be a page.
    pub(crate) fn has_page(&self) -> bool {
        self.page.is_some()
    }

    /// What the page says it was measured on.
    pub(crate) fn describe(&mut self, facts: impl FnOnce() -> Vec<(&'static str, String)>) {
        if let Some(page) = &mut self.page {
            page.describe(facts());
        }
    }

    /// What the page holds results against.
    pub(crate) fn limit(&mut self, limit: Limit) {
        if let Some(page) = &mut self.page {
            page.limit(limit);
        }
    }

    /// A line of text around the table.
    pub(crate) fn say(&self, text: &str) -> Result<()> {
        if !self.table {
            return Ok(());
        }
        self.bar.suspend(|| writeln!(stdout(), "{text}")).context("cannot write to standard output")
    }

    /// What is being measured now.
    pub(crate) fn begin(&self, what: String) {
        self.bar.set_message(what);
    }

    pub(crate) fn add(&mut self, row: &Row) -> Result<()> {
        self.bar.inc(1);
        if row.measured().next().is_none() {
            return Ok(());
        }
        let section = table::section(row);
        if section != self.section {
            self.say(&section)?;
            self.section = section;
        }
        self.say(&table::line(row))?;
        self.totals.add(row);
        if let Some(page) = &mut self.page {
            page.add(row);
        }
        if let Some(out) = &mut self.json {
            for object in json::objects(row) {
                writeln!(out, "{object}").context("cannot write JSON")?;
            }
            out.flush().context("cannot write JSON")?;
        }
        Ok(())
    }

    /// The last lines; `interrupted` if there would have been more.
    pub(crate) fn end(&self, one_clock: bool, interrupted: bool) -> Result<()> {
        self.bar.finish_and_clear();
        if interrupted {
            self.say("# interrupted: these are the results until then")?;
        }
        self.say(&self.totals.text(one_clock))?;
        match &self.page {
            Some(page) => self.say(&page.write()?),
            None => Ok(()),
        }
    }
}
