//! The parts of the page about messages between ranks: matrices of all pairs, and times by size.

use super::plot::{AxisScale, Plot, PlotAxis, PlotPoint, Series};
use super::section::duration;
use super::{fits, percentiles, three_digits};
use crate::perf::messages::MessageTest;
use crate::perf::messages::heat;
use crate::perf::messages::row::{MatrixRow, MessageRow};
use crate::perf::settings::distinct;
use crate::sizes;
use maypole_pictures::writer::escaped;
use std::fmt::Write;

/// The heat maps of all pairs, each with its outliers. Empty if no pairs were measured.
pub(super) fn pairs(matrices: &[MatrixRow]) -> String {
    if matrices.is_empty() {
        return String::new();
    }
    let mut html = format!(
        "<section id=\"pairs\">\n<h2>All pairs of ranks</h2>\n<p class=\"small\">The lower \
         quartile of a message between two ranks, each pair alone: the darker, the slower. \
         {}.</p>\n\
         <div class=\"maps\">\n",
        heat::AXES
    );
    for row in matrices {
        let (title, picture) = (row.title(), heat::inline(row));
        let _ = write!(
            html,
            "<figure>\n<h3>{title}</h3>\n<div class=\"wide\">{picture}</div>\n<figcaption>"
        );
        for line in row.verdict.text().lines() {
            let _ = writeln!(html, "<p>{}</p>", escaped(line));
        }
        html += "</figcaption>\n</figure>\n";
    }
    html + "</div>\n</section>\n"
}

/// A section for each test: its name, and its HTML.
pub(super) fn sections(rows: &[MessageRow]) -> Vec<(String, String)> {
    let tests = distinct(rows.iter().map(|row| row.test).collect());
    tests.into_iter().map(|test| (test.name().to_owned(), section(rows, test))).collect()
}

fn section(all: &[MessageRow], test: MessageTest) -> String {
    let rows: Vec<_> = all.iter().filter(|row| row.test == test).collect();
    let (name, definition) = (test.name(), test.definition());
    let mut html = format!(
        "<section id=\"{name}\">\n<h2>{name}</h2>\n<p class=\"small\">Time: {definition}.</p>\n"
    );
    let of_test: Vec<_> = rows.iter().map(|row| (*row).clone()).collect();
    for (_, transport, times) in fits::of_messages(&of_test) {
        let of: Vec<_> = rows.iter().filter(|row| row.transport == transport).copied().collect();
        let _ = writeln!(html, "<h3>over {transport}</h3>");
        // A line needs two sizes.
        if times.len() > 1 {
            let points = times.iter().map(|(bytes, us)| {
                let note = format!("{}: {} \u{b5}s", sizes::name(*bytes), three_digits(*us));
                PlotPoint { x: *bytes as f64, y: *us, note: Some(note) }
            });
            let plot = plot(format!("{name} over {transport}"), points.collect());
            let picture = plot.svg(&format!("{name}-{transport}").replace('+', "-"));
            let _ = writeln!(html, "<div class=\"plots\">\n<figure>\n{picture}</figure>\n</div>");
        }
        html += &percentiles::of_messages(&of);
    }
    html + "</section>\n"
}

/// Times by size.
fn plot(title: String, points: Vec<PlotPoint>) -> Plot {
    Plot {
        title,
        x: PlotAxis {
            label: "size (bytes)",
            scale: AxisScale::Log(2.0),
            tick: |bytes| sizes::name(bytes.round() as usize),
        },
        y: PlotAxis { label: "time of a message", scale: AxisScale::Log(10.0), tick: duration },
        series: vec![Series { class: "s0 measured".to_owned(), points, mark: 0, cut: false }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::messages::row::tests::example;

    #[test]
    fn a_test_has_a_plot_a_transport_and_each_row_its_percentiles() {
        let mut small = example();
        small.bytes = 8;
        let [(name, html)] = &sections(&[small.clone(), example()])[..] else { panic!() };
        assert_eq!(name, "bandwidth");
        assert_eq!((html.matches("<figure>").count(), html.matches("</tr>").count()), (1, 3));
        assert!(html.contains("over tcp") && html.contains("<th>8</th><th>0-2, 1-3</th>"));
        let [(_, alone)] = &sections(&[small])[..] else { panic!() };
        assert!(!alone.contains("<figure>"), "one size is no line");
    }
}
