//! Times as lines: the time of a call of no bytes, the time of a byte, and the errors of the fit.

use super::{median_us, percent_of_limit, three_digits};
use crate::fit::fit_line;
use crate::perf::communicators::PerfTransport;
use crate::perf::measure::limits::MachineLimit;
use crate::perf::messages::row::MessageRow;
use crate::perf::output::row::PerfRow;
use crate::{names, sizes, statistics};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Through fewer points any line fits.
const FEWEST: usize = 3;

/// The line `alpha + bytes * beta` that fits the times of several sizes best.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SizeFit {
    /// Microseconds.
    pub(super) alpha: f64,
    /// Microseconds a byte.
    pub(super) beta: f64,
    /// How far the line is off where it is off most, relative to the time there.
    pub(super) off: f64,
}

impl SizeFit {
    /// The line through times in microseconds by bytes; `None` for fewer than three sizes.
    pub(super) fn of(times: &BTreeMap<usize, f64>) -> Option<Self> {
        if times.len() < FEWEST {
            return None;
        }
        let points: Vec<_> = times.iter().map(|(bytes, us)| (*bytes as f64, *us)).collect();
        let line = fit_line(&points);
        let errors = points.iter().map(|(bytes, us)| (line.at(*bytes) / us - 1.0).abs());
        Some(Self { alpha: line.start, beta: line.slope, off: errors.fold(0.0, f64::max) })
    }

    /// Three cells of a table: alpha, the bytes that a second adds, and the greatest error.
    fn cells(&self) -> String {
        let bandwidth = match self.beta {
            0.0 => "not to be seen".to_owned(),
            beta => three_digits(1e-3 / beta),
        };
        let (alpha, percent) = (three_digits(self.alpha), self.off * 100.0);
        format!("<td>{alpha}</td><td>{bandwidth}</td><td>{percent:.0} %</td>")
    }
}

const HEAD: &str = "<th>alpha (\u{b5}s)</th><th>1 / beta (GB/s)</th><th>off by up to</th>";

/// The lines of each series of `rows`, which are of one collective and one transport. Empty for fewer than three
/// sizes.
pub(super) fn of_series(rows: &[&PerfRow]) -> String {
    let mut names = Vec::new();
    for row in rows {
        if !names.contains(&row.series_name()) {
            names.push(row.series_name());
        }
    }
    let line = |name: &&str| {
        let of = rows.iter().filter(|row| row.series_name() == *name);
        let times = of.filter_map(|row| Some((row.bytes(), median_us(row)?))).collect();
        Some(format!("<tr><th>{name}</th>{}</tr>\n", SizeFit::of(&times)?.cells()))
    };
    let lines: String = names.iter().filter_map(line).collect();
    if lines.is_empty() {
        return lines;
    }
    format!(
        "<div class=\"wide\"><table class=\"fits\">\n<tr><th>time = alpha + bytes \u{b7} beta</th>\
         {HEAD}</tr>\n{lines}</table></div>\n"
    )
}

/// The line of each collective and each test of messages over each transport, and the ratio of its
/// largest size to the machine's limit.
pub(super) fn overview(
    rows: &[PerfRow],
    messages: &[MessageRow],
    limits: &[MachineLimit],
) -> String {
    let mut lines = String::new();
    for (name, transport, times) in fastest(rows).into_iter().chain(of_messages(messages)) {
        let fit = SizeFit::of(&times).map_or_else(|| "<td></td>".repeat(3), |fit| fit.cells());
        let Some((bytes, us)) = times.last_key_value() else { continue };
        let limit = rows
            .iter()
            .find(|row| {
                names::dashed(row.point.collective) == name
                    && row.transport == transport
                    && row.bytes() == *bytes
            })
            .and_then(|row| percent_of_limit(row, *us, limits))
            .unwrap_or_default();
        let (size, us) = (sizes::name(*bytes), three_digits(*us));
        let _ = writeln!(
            lines,
            "<tr><th><a href=\"#{name}\">{name}</a></th><td>{transport}</td>{fit}<td>{size}</td>\
             <td>{us}</td><td>{limit}</td></tr>"
        );
    }
    if lines.is_empty() {
        return lines;
    }
    format!(
        "<section id=\"overview\">\n<h2>Overview</h2>\n<div class=\"wide\">\
         <table class=\"overview\">\n<tr><th></th><th>over</th>{HEAD}<th>largest</th>\
         <th>time (\u{b5}s)</th><th>% of limit</th></tr>\n{lines}</table></div>\n\
         <p class=\"small\">Of the fastest algorithm at each size, or of the median pair \
         of ranks. <b>alpha</b> is what a call takes before its bytes count, <b>1 / \
         beta</b> how many bytes a longer call moves in the time that it takes longer. The line is \
         fitted to all sizes, relative to their times; the greatest error says how far to trust \
         it.</p>\n</section>\n"
    )
}

/// A name, a transport, and microseconds by bytes.
type TimesBySize = (String, PerfTransport, BTreeMap<usize, f64>);

/// The least time of all algorithms at each size.
fn fastest(rows: &[PerfRow]) -> Vec<TimesBySize> {
    let mut all: Vec<TimesBySize> = Vec::new();
    for row in rows {
        let Some(us) = median_us(row) else { continue };
        let least = entry(&mut all, names::dashed(row.point.collective), row.transport)
            .entry(row.bytes())
            .or_insert(us);
        *least = least.min(us);
    }
    all
}

/// The median of all pairs at each size.
pub(super) fn of_messages(rows: &[MessageRow]) -> Vec<TimesBySize> {
    let mut all: Vec<TimesBySize> = Vec::new();
    for row in rows {
        let alike = rows.iter().filter(|it| {
            it.test == row.test && it.transport == row.transport && it.bytes == row.bytes
        });
        let middle = statistics::median(alike.map(|it| it.measured.time.p50).collect());
        let times = entry(&mut all, row.test.name().to_owned(), row.transport);
        times.insert(row.bytes, middle.unwrap_or(row.measured.time.p50));
    }
    all
}

fn entry(
    all: &mut Vec<TimesBySize>,
    name: String,
    transport: PerfTransport,
) -> &mut BTreeMap<usize, f64> {
    let found = all.iter().position(|it| it.0 == name && it.1 == transport);
    let at = found.unwrap_or_else(|| {
        all.push((name, transport, BTreeMap::new()));
        all.len() - 1
    });
    &mut all[at].2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::output::row::tests::example;
    use maypole::algorithms::Algorithm;

    #[test]
    fn a_planted_line_is_found_and_few_sizes_have_none() {
        let times = |sizes: &[usize]| -> BTreeMap<usize, f64> {
            sizes.iter().map(|bytes| (*bytes, 2.0 + *bytes as f64 / 4e3)).collect()
        };
        let fit = SizeFit::of(&times(&[8, 4096, 1 << 20])).unwrap();
        assert!((fit.alpha - 2.0).abs() < 1e-9 && fit.off < 1e-9, "{fit:?}");
        assert_eq!(fit.cells(), "<td>2.00</td><td>4.00</td><td>0 %</td>");
        assert_eq!(SizeFit::of(&times(&[8, 4096])), None);
        let mut bent = times(&[8, 4096, 1 << 20]);
        bent.insert(1 << 22, 5000.0);
        assert!(SizeFit::of(&bent).unwrap().off > 0.3);
    }

    #[test]
    fn the_overview_is_of_the_fastest_algorithm_at_each_size() {
        let row = |algorithm, count, us| {
            let mut row = example();
            (row.point.algorithm, row.point.count) = (Some(algorithm), count);
            row.out_of_place.as_mut().unwrap().time.p50 = us;
            row
        };
        let rows = [
            row(Algorithm::Ring, 2, 9.0),
            row(Algorithm::TwoShot, 2, 1.0),
            row(Algorithm::Ring, 1 << 10, 4.0),
            row(Algorithm::TwoShot, 1 << 10, 6.0),
        ];
        let [(name, _, times)] = &fastest(&rows)[..] else { panic!() };
        assert_eq!(name, "all-reduce");
        assert_eq!(times.iter().collect::<Vec<_>>(), [(&8, &1.0), (&4096, &4.0)]);
        let html = overview(&rows, &[], &[]);
        assert!(html.contains("<td>4K</td><td>4.00</td>"), "{html}");
        assert_eq!(overview(&[], &[], &[]), "");
    }
}
