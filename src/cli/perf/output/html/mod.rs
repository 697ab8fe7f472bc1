//! The report: one HTML page with plots and tables that loads nothing, and its figures in the same
//! folder as CSV and as JSON, for comparison with a later report.
//!
//! The plots are drawn by [`plot`] and not by a plotting library, because the page's style sheet
//! gives them more than a picture alone: classes that follow the reader's dark mode, boxes that
//! hide a series, and a tooltip on each mark, all without a script.

mod changes;
mod fits;
mod messages;
mod percentiles;
mod plot;
mod section;
mod tables;

use crate::perf::compare::RESULTS;
use crate::perf::compare::change::Comparison;
use crate::perf::measure::limits::MachineLimit;
use crate::perf::messages::row::{MatrixRow, MessageRow};
use crate::perf::output::csv;
use crate::perf::output::header::RunHeader;
use crate::perf::output::json::JsonOptions;
use crate::perf::output::row::PerfRow;
use crate::perf::settings::distinct;
use crate::{names, output};
use anyhow::{Context, Result};
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole_pictures::writer::escaped;
use section::CollectiveSection;
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const STYLE: &str = include_str!("style.css");
/// The figures of collectives, in the folder of a report.
const CSV: &str = "results.csv";
/// The figures of messages.
const MESSAGES_CSV: &str = "messages.csv";

/// All that a run has found.
pub(crate) struct ReportContents<'a> {
    pub(crate) rows: &'a [PerfRow],
    pub(crate) messages: &'a [MessageRow],
    pub(crate) matrices: &'a [MatrixRow],
    pub(crate) limits: &'a [MachineLimit],
    /// With an earlier run.
    pub(crate) comparison: Option<&'a Comparison>,
    pub(crate) header: &'a RunHeader,
    /// The results as JSON, with samples.
    pub(crate) objects: &'a [Value],
}

/// Writes the results of a run to a folder.
pub(crate) struct HtmlReport {
    folder: PathBuf,
    /// The machine and the settings, as pairs of name and value.
    facts: Vec<(&'static str, String)>,
}

impl HtmlReport {
    /// Makes the folder.
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        make_folder(folder)?;
        Ok(Self { folder: folder.to_owned(), facts: Vec::new() })
    }

    /// Sets the facts about the machine and the settings.
    pub(crate) fn describe(&mut self, facts: Vec<(&'static str, String)>) {
        self.facts = facts;
    }

    /// Writes `index.html`, the figures of collectives (`results.csv`) and of messages
    /// (`messages.csv`), and both with their samples (`results.json`). Returns the line with their
    /// place.
    pub(crate) fn write(&self, contents: &ReportContents<'_>) -> Result<String> {
        let ReportContents { rows, messages, limits, header, objects, .. } = *contents;
        let page = self.folder.join("index.html");
        let lines: String = objects.iter().map(|object| format!("{object}\n")).collect();
        let options = JsonOptions { header, limits, samples: false };
        let mut files = vec![("index.html", self.html(contents)), (RESULTS, lines)];
        if !rows.is_empty() {
            files.push((CSV, csv::text(rows, options)?));
        }
        if !messages.is_empty() {
            files.push((MESSAGES_CSV, csv::messages(messages, options)?));
        }
        for (name, text) in files {
            output::save("--report", &self.folder.join(name), text)?;
        }
        Ok(format!("# report: {}", page.display()))
    }

    fn html(&self, contents: &ReportContents<'_>) -> String {
        let ReportContents { rows, messages, matrices, limits, comparison, .. } = *contents;
        let collectives = distinct(rows.iter().map(|row| row.point.collective).collect());
        let sections = [
            ("changes", comparison.map_or_else(String::new, changes::section)),
            ("overview", fits::overview(rows, messages, limits)),
            ("pairs", messages::pairs(matrices)),
        ];
        let tests = messages::sections(messages);
        let of = |collective: &Collective| {
            let html = CollectiveSection::new(rows, limits, *collective).html();
            (names::dashed(*collective), html)
        };
        let sections = sections.map(|(name, html)| (name.to_owned(), html)).into_iter();
        let sections = sections.chain(tests).chain(collectives.iter().map(of));
        let sections: Vec<_> = sections.filter(|(_, html)| !html.is_empty()).collect();
        let links = sections.iter().map(|(name, _)| format!("<a href=\"#{name}\">{name}</a>"));
        let links = links.collect::<Vec<_>>().join(" ");
        let rules: String = (0..section::COLOURS).map(hiding_rule).collect();
        let mut html = format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n\
             <title>maypole perf</title>\n<style>\n{STYLE}{rules}</style>\n\
             <header>\n<h1>maypole perf</h1>\n<nav>{links}</nav>\n</header>\n<main>\n"
        );
        html += &self.summary(rows);
        html.extend(sections.into_iter().map(|(_, html)| html));
        html + &notes(contents) + "</main>\n</html>\n"
    }

    fn summary(&self, rows: &[PerfRow]) -> String {
        let mut text = "<section>\n<dl class=\"facts\">\n".to_owned();
        for (name, value) in &self.facts {
            let _ = writeln!(text, "<dt>{name}</dt><dd>{}</dd>", escaped(value));
        }
        text + "</dl>\n" + &tables::summary(rows) + "</section>\n"
    }
}

fn notes(contents: &ReportContents<'_>) -> String {
    let mut text = "<section class=\"notes\">\n<h2>How to read this</h2>\n<ul>\n".to_owned();
    for note in NOTES {
        let _ = writeln!(text, "<li>{note}</li>");
    }
    let tables = [(CSV, contents.rows.is_empty()), (MESSAGES_CSV, contents.messages.is_empty())];
    let files = tables.iter().filter(|(_, is_empty)| !is_empty).map(|(name, _)| *name);
    let files = files.chain([RESULTS]).map(|name| format!("<a href=\"{name}\">{name}</a>"));
    let files = names::listed(files);
    let _ = writeln!(text, "<li>All figures are in these files beside this page: {files}.</li>");
    text + "</ul>\n</section>\n"
}

const NOTES: [&str; 8] = [
    "<b>Time</b> is the time of one call: from the first rank's start to the last rank's end, \
     averaged over a batch of back-to-back calls. The median of the batches is shown. Lines show \
     calls out of place, or in place where the collective has no other calls.",
    "<b>Size</b> is the size of the whole: of the vector, or of all ranks' blocks together.",
    "<b>Bus bandwidth</b> is size divided by time, times a factor: the part of the whole that each \
     rank must send or receive, as in nccl-tests. It can be compared with the bandwidth of a link, \
     whatever the collective and the number of ranks.",
    "<b>auto</b> is the algorithm that the tuner chooses at each size. Its line therefore changes \
     the algorithm from size to size; the marks name it.",
    "<b>Predicted</b> is the time that the tuner's model computes before anything runs. The tuner \
     chooses the algorithm with the least predicted time. The model does not know the other load \
     of the machine. A prediction that is faster than the machine's limit is too low: it is not \
     drawn, and marked with &lt; in the figures. <code>maypole tune</code> measures what it is \
     computed from.",
    "<b>The machine's limit</b> was measured in this run by the same ranks, all at once. Over \
     shared memory each rank copies as many bytes as a collective brings it from memory that its \
     neighbour has just written. Over TCP each rank exchanges these bytes with its neighbours \
     through plain sockets. Nothing is combined.",
    "<b>% of limit</b> is the machine's limit divided by the median time: 100 if a call \
     takes as long as moving its bytes alone, and more where fewer ranks move bytes at once than \
     when the limit was measured, as in a broadcast. <b>p50, p90 and p99</b> are the times that \
     half, nine tenths and 99 of a hundred batches stay below.",
    "Hover over a mark for its figures, and over a line to fade the others. The boxes hide and \
     show lines.",
];

/// The style rule by which the box of the `nth` colour hides its lines.
fn hiding_rule(nth: usize) -> String {
    format!("section:has(.pick-s{nth}:not(:checked)) svg .s{nth}{{display:none}}\n")
}

/// The name of a series: that of its algorithm, or `auto` for the tuner's choice.
fn series_name(series: Option<Algorithm>) -> &'static str {
    series.map_or("auto", Algorithm::name)
}

/// The machine's limit in microseconds for what `row` measures.
fn ceiling_us(row: &PerfRow, limit: &MachineLimit) -> Option<f64> {
    row.limit_us(std::slice::from_ref(limit))
}

/// The machine's limit as a part of `us`, in percent; `None` without a limit.
fn percent_of_limit(row: &PerfRow, us: f64, limits: &[MachineLimit]) -> Option<String> {
    Some(format!("{:.0}", row.limit_us(limits)? / us * 100.0))
}

/// The figure that lines and tables show: the median in microseconds, out of place if there is
/// one.
fn median_us(row: &PerfRow) -> Option<f64> {
    row.measured().next().map(|(_, measurement)| measurement.time.p50)
}

/// Three significant digits or more.
fn three_digits(us: f64) -> String {
    let digits = [1.0, 10.0, 100.0].iter().filter(|bound| us < **bound).count();
    format!("{us:.digits$}")
}

pub(crate) fn make_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder of --report {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::measure::limits::tests::example as limit;
    use crate::perf::messages::row::tests::example as message;
    use crate::perf::output::row::tests::example as row;

    #[test]
    fn the_page_holds_every_figure_and_loads_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut page = HtmlReport::new(&folder.path().join("new/folder")).unwrap();
        let mut small = row();
        small.point.count = 2;
        page.describe(vec![("command", "perf <b> & co".to_owned())]);
        let contents = ReportContents {
            rows: &[small, row()],
            messages: &[message()],
            matrices: &[],
            limits: &[limit()],
            comparison: None,
            header: &RunHeader::default(),
            objects: &[],
        };
        assert!(page.write(&contents).unwrap().ends_with("new/folder/index.html"));
        let html = std::fs::read_to_string(folder.path().join("new/folder/index.html")).unwrap();
        for part in [
            "perf &lt;b&gt; &amp; co",
            "<h3>over shm</h3>",
            "auto (two-shot), 1M",
            "predicted",
            "plain copy",
            "<svg",
            "messages.csv",
            "<th>1M</th><th>0-2, 1-3</th>",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        for part in ["http:", "https:", "<script", "NaN", "src="] {
            assert!(!html.contains(part), "{part}: {html}");
        }
        assert!(folder.path().join("new/folder/results.csv").is_file());
    }
}
