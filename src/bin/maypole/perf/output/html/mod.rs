//! The report as one page that needs nothing else: plots, tables, and what they were measured on.

mod plot;
mod tables;

use crate::perf::benchmark::bus_factor;
use crate::perf::communicators::Joint;
use crate::perf::measure::limits::Limit;
use crate::perf::output::row::Row;
use crate::{names, sizes};
use anyhow::{Context, Result};
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use plot::{Axis, Dot, Plot, Scale, Series};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const STYLE: &str = include_str!("style.css");

/// Collects what a run comes to, and writes it to a folder.
pub(crate) struct Page {
    folder: PathBuf,
    rows: Vec<Row>,
    limits: Vec<Limit>,
    /// What it was measured on, as lines of name and value.
    facts: Vec<(&'static str, String)>,
}

impl Page {
    /// Makes the folder.
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        make(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            rows: Vec::new(),
            limits: Vec::new(),
            facts: Vec::new(),
        })
    }

    /// Says what it is measured on.
    pub(crate) fn describe(&mut self, facts: Vec<(&'static str, String)>) {
        self.facts = facts;
    }

    pub(crate) fn add(&mut self, row: &Row) {
        self.rows.push(*row);
    }

    pub(crate) fn limit(&mut self, limit: Limit) {
        self.limits.push(limit);
    }

    /// Writes `index.html` and `results.csv`; what is said of it.
    pub(crate) fn write(&self) -> Result<String> {
        let page = self.folder.join("index.html");
        for (path, text) in [
            (&page, self.html()),
            (&self.folder.join("results.csv"), super::csv::text(&self.rows, &self.limits)),
        ] {
            std::fs::write(path, text)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(format!("# report: {}", page.display()))
    }

    fn html(&self) -> String {
        let mut collectives: Vec<Collective> = Vec::new();
        for row in &self.rows {
            if !collectives.contains(&row.point.collective) {
                collectives.push(row.point.collective);
            }
        }
        let sections: Vec<Section> =
            collectives.into_iter().map(|collective| Section::new(self, collective)).collect();
        let links = sections
            .iter()
            .map(|it| format!("<a href=\"#{0}\">{0}</a>", names::dashed(it.collective)));
        let links = links.collect::<Vec<_>>().join(" ");
        let rules: String = (0..COLOURS).map(hidden).collect();
        let mut html = format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
             content=\"width=device-width\">\n<title>maypole perf</title>\n<style>\n{STYLE}{rules}</style>\n<header>\n<h1>maypole \
             perf</h1>\n<nav>{links}</nav>\n</header>\n<main>\n"
        );
        html += &self.summary();
        sections.iter().for_each(|section| html += &section.html());
        html + &self.foot() + "</main>\n</html>\n"
    }

    fn summary(&self) -> String {
        let mut text = "<section>\n<dl class=\"facts\">\n".to_owned();
        for (name, value) in &self.facts {
            let _ = writeln!(text, "<dt>{name}</dt><dd>{}</dd>", escaped(value));
        }
        text + "</dl>\n" + &tables::verdict(&self.rows) + "</section>\n"
    }

    fn foot(&self) -> String {
        let mut text = "<section class=\"notes\">\n<h2>How to read this</h2>\n<ul>\n".to_owned();
        for note in NOTES {
            let _ = writeln!(text, "<li>{note}</li>");
        }
        text + "</ul>\n</section>\n"
    }
}

const NOTES: [&str; 6] = [
    "<b>Time</b> is that of one call, from the first rank's start to the last rank's end, averaged over a batch of \
     back-to-back calls; the median of the batches. Lines show calls out of place, or in place where there is nothing else.",
    "<b>Size</b> is that of the whole: of the vector, or of all ranks' blocks together.",
    "<b>Bus bandwidth</b> is size by time, times the part of the whole that each rank must send or receive, as in \
     nccl-tests. So it can be compared with what a link carries, whatever the collective and the number of ranks.",
    "<b>Predicted</b> is what the tuner's model says before anything runs; it chooses the least of these. The model knows \
     nothing of what else this machine was doing.",
    "<b>The limit</b> was measured in this run by the same ranks, all at once: over shared memory each copies as many \
     bytes as it has to get from what its neighbour has just written, over TCP it exchanges them with its neighbours through \
     raw sockets. Nothing is combined, and nobody waits for anything but bytes.",
    "Hover over a mark for its figures, over a line to see it alone; the boxes hide and show. All figures are in \
     <a href=\"results.csv\">results.csv</a>.",
];

/// How many algorithms of one collective have colours of their own.
const COLOURS: usize = 10;

/// Unticking a box hides its lines.
fn hidden(nth: usize) -> String {
    format!("section:has(.pick-s{nth}:not(:checked)) svg .s{nth}{{display:none}}\n")
}

/// One collective.
struct Section<'a> {
    collective: Collective,
    rows: Vec<&'a Row>,
    limits: &'a [Limit],
    /// In order of first appearance; their places are their colours and marks.
    algorithms: Vec<Algorithm>,
    transports: Vec<Joint>,
}

impl<'a> Section<'a> {
    fn new(page: &'a Page, collective: Collective) -> Self {
        let rows: Vec<&Row> =
            page.rows.iter().filter(|row| row.point.collective == collective).collect();
        let (mut algorithms, mut transports) = (Vec::new(), Vec::new());
        for row in &rows {
            if !algorithms.contains(&row.algorithm) {
                algorithms.push(row.algorithm);
            }
            if !transports.contains(&row.transport) {
                transports.push(row.transport);
            }
        }
        Self { collective, rows, limits: &page.limits, algorithms, transports }
    }

    fn html(&self) -> String {
        let name = names::dashed(self.collective);
        let mut html = format!("<section id=\"{name}\">\n<h2>{name}</h2>\n");
        // A line needs two ends: barriers have no sizes.
        let drawn = self.rows.iter().any(|row| row.bytes() != self.rows[0].bytes());
        if drawn {
            html += &self.legend();
        }
        for transport in &self.transports {
            let rows: Vec<&Row> =
                self.rows.iter().filter(|row| row.transport == *transport).copied().collect();
            let _ = writeln!(html, "<h3>over {transport}</h3>");
            if drawn {
                let id = format!("{name}-{transport}").replace('+', "-");
                let (time, bus) =
                    (self.plot(*transport, Shown::Time), self.plot(*transport, Shown::Bus));
                let _ = write!(
                    html,
                    "<div class=\"plots\">\n<figure>\n{}</figure>\n",
                    time.svg(&format!("{id}-time"))
                );
                let _ =
                    write!(html, "<figure>\n{}</figure>\n</div>\n", bus.svg(&format!("{id}-bus")));
            }
            html += &tables::table(&rows, &self.algorithms, self.limit(*transport));
        }
        html + "</section>\n"
    }

    fn limit(&self, transport: Joint) -> Option<&'a Limit> {
        self.limits.iter().find(|limit| limit.transport == transport)
    }

    fn legend(&self) -> String {
        let pick = |class: &str, mark: &str, name: &str| {
            format!(
                "<label class=\"{class}\"><input type=\"checkbox\" class=\"pick-{class}\" checked><svg viewBox=\"-12 -5 24 10\" \
                 class=\"swatch\"><path class=\"line\" d=\"M-12 0H12\"/><g class=\"mark\"><path d=\"{mark}\"/></g></svg>{name}\
                 </label>\n"
            )
        };
        let mut html = "<div class=\"legend\">\n".to_owned();
        for (nth, algorithm) in self.algorithms.iter().enumerate() {
            html += &pick(&format!("s{}", nth % COLOURS), plot::outline(nth), algorithm.name());
        }
        html += &pick("predicted", "", "predicted");
        if self.limits.iter().any(|limit| self.transports.contains(&limit.transport)) {
            html += &pick("limit", "", "the machine's limit");
        }
        html + "</div>\n"
    }

    fn plot(&self, transport: Joint, shown: Shown) -> Plot {
        let rows = |algorithm| {
            let of = move |row: &&&Row| (row.transport, row.algorithm) == (transport, algorithm);
            self.rows.iter().filter(of).copied()
        };
        let mut series: Vec<Series> = self
            .limit(transport)
            .map(|limit| self.ceiling(limit, transport, shown))
            .into_iter()
            .collect();
        for (nth, algorithm) in self.algorithms.iter().enumerate() {
            let dots =
                rows(*algorithm).filter_map(|row| Some(shown.dot(row, row.prediction?.us, None)));
            series.push(Series {
                class: format!("s{} predicted", nth % COLOURS),
                points: dots.collect(),
                mark: nth,
                cut: false,
            });
        }
        for (nth, algorithm) in self.algorithms.iter().enumerate() {
            let dots =
                rows(*algorithm).filter_map(|row| Some(shown.dot(row, us(row)?, Some(note(row)))));
            series.push(Series {
                class: format!("s{} measured", nth % COLOURS),
                points: dots.collect(),
                mark: nth,
                cut: false,
            });
        }
        let (label, scale, tick): (_, _, fn(f64) -> String) = match shown {
            Shown::Time => ("time of a call", Scale::Log(10.0), duration),
            Shown::Bus => ("bus bandwidth (GB/s)", Scale::Linear, |value| value.to_string()),
        };
        Plot {
            title: format!("{} over {transport}: {label} by size", names::dashed(self.collective)),
            x: Axis {
                label: "size (bytes)",
                scale: Scale::Log(2.0),
                tick: |bytes| sizes::name(bytes.round() as usize),
            },
            y: Axis { label, scale, tick },
            series,
        }
    }

    fn ceiling(&self, limit: &Limit, transport: Joint, shown: Shown) -> Series {
        let rows = self.rows.iter().filter(|row| row.transport == transport);
        let mut dots: Vec<Dot> =
            rows.filter_map(|row| Some(shown.dot(row, ceiling(row, limit)?, None))).collect();
        dots.sort_by(|a, b| a.x.total_cmp(&b.x));
        dots.dedup_by(|a, b| a.x == b.x);
        Series { class: "limit".to_owned(), points: dots, mark: 0, cut: true }
    }
}

/// Microseconds that the machine needs at best.
fn ceiling(row: &Row, limit: &Limit) -> Option<f64> {
    limit.us(row.bytes(), bus_factor(row.point.collective, row.given.world))
}

/// The figure that lines show.
fn us(row: &Row) -> Option<f64> {
    row.measured().next().map(|(_, measured)| measured.time.p50)
}

/// What a mark has to say.
fn note(row: &Row) -> String {
    let mut text = format!("{}, {}", row.algorithm, sizes::name(row.bytes()));
    for (place, measured) in row.measured() {
        let (_, bus) = row.bandwidths(&measured);
        let place =
            if place == crate::perf::benchmark::Place::Same { "in place" } else { "out of place" };
        let _ = write!(
            text,
            "\n{place}: {} µs ({} to {}), {bus:.3} GB/s",
            three(measured.time.p50),
            three(measured.time.min),
            three(measured.time.p99)
        );
    }
    if let Some(prediction) = row.prediction {
        let _ = write!(text, "\npredicted: {} µs", three(prediction.us));
    }
    text
}

/// Three digits or more.
fn three(us: f64) -> String {
    let digits = if us < 10.0 { 2 } else { usize::from(us < 100.0) };
    format!("{us:.digits$}")
}

/// A power of ten, of microseconds, in the unit that suits it.
fn duration(us: f64) -> String {
    match us {
        ..0.9 => format!("{} ns", (us * 1e3).round()),
        ..900.0 => format!("{} µs", us.round()),
        ..900e3 => format!("{} ms", (us / 1e3).round()),
        _ => format!("{} s", (us / 1e6).round()),
    }
}

/// What a plot shows of a time.
#[derive(Clone, Copy)]
enum Shown {
    Time,
    Bus,
}

impl Shown {
    fn dot(self, row: &Row, us: f64, note: Option<String>) -> Dot {
        let y = match self {
            Self::Time => us,
            Self::Bus => {
                row.bytes() as f64 / us / 1e3 * bus_factor(row.point.collective, row.given.world)
            }
        };
        Dot { x: row.bytes() as f64, y, note }
    }
}

/// Makes the folder of a report.
pub(crate) fn make(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make --report {}", folder.display()))
}

/// Text, in a page.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::measure::limits::tests::example as limit;
    use crate::perf::output::row::tests::example as row;

    #[test]
    fn the_page_holds_every_figure_and_loads_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut page = Page::new(&folder.path().join("new/folder")).unwrap();
        let mut small = row();
        small.point.count = 2;
        [small, row()].iter().for_each(|row| page.add(row));
        page.limit(limit());
        page.describe(vec![("command", "perf <b> & co".to_owned())]);
        assert!(page.write().unwrap().ends_with("new/folder/index.html"));
        let html = std::fs::read_to_string(folder.path().join("new/folder/index.html")).unwrap();
        for part in [
            "perf &lt;b&gt; &amp; co",
            "<h3>over shm</h3>",
            "two-shot, 1M",
            "predicted",
            "plain copy",
            "<svg",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        for part in ["http:", "https:", "<script", "NaN", "src="] {
            assert!(!html.contains(part), "{part}: {html}");
        }
        assert!(folder.path().join("new/folder/results.csv").is_file());
    }
}
