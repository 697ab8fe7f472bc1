//! What changed since an earlier run.

use super::three_digits;
use crate::perf::compare::change::{Comparison, RowChange};
use maypole_pictures::writer::escaped;
use std::fmt::Write;

/// The rows that changed beyond noise, and the other differences between the runs.
pub(super) fn section(comparison: &Comparison) -> String {
    let mut html = "<section id=\"changes\">\n<h2>Changes since an earlier run</h2>\n".to_owned();
    for line in comparison.head() {
        let _ = writeln!(html, "<p>{}</p>", escaped(&line));
    }
    if comparison.changes.is_empty() {
        return html + "</section>\n";
    }
    let (slower, faster): (Vec<_>, Vec<_>) =
        comparison.changes.iter().partition(|change| change.speed.ratio < 1.0);
    for (rows, name, is_open) in [(slower, "slower", true), (faster, "faster", false)] {
        if !rows.is_empty() {
            let open = if is_open { " open" } else { "" };
            let summary = format!("{} rows are {name}", rows.len());
            let _ = writeln!(html, "<details{open}>\n<summary>{summary}</summary>");
            html += &table(&rows, name);
            html += "</details>\n";
        }
    }
    html + "<p class=\"small\">Speed: that of the second run divided by that of the first; \
            below 1 it is slower. Times are lower quartiles. Disturbed: other programs took much \
            of the ranks' cores.</p>\n</section>\n"
}

/// A line for each of the rows.
fn table(rows: &[&RowChange], class: &str) -> String {
    let mut html = format!(
        "<div class=\"wide\"><table class=\"changes {class}\">\n<tr><th>row</th><th>speed</th>\
         <th>interval</th><th>first (\u{b5}s)</th><th>second (\u{b5}s)</th></tr>\n"
    );
    for RowChange { title, before, now, speed, is_disturbed } in rows {
        let mark = if *is_disturbed { " (disturbed)" } else { "" };
        let (title, before, now) = (escaped(title), three_digits(*before), three_digits(*now));
        let _ = writeln!(
            html,
            "<tr><th>{title}{mark}</th><td>{:.3}</td><td>{:.3} to {:.3}</td><td>{before}</td>\
             <td>{now}</td></tr>",
            speed.ratio, speed.low, speed.high
        );
    }
    html + "</table></div>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::compare::interval::RatioInterval;

    #[test]
    fn changes_are_told_with_their_direction() {
        let change = |ratio: f64| RowChange {
            title: format!("row <{ratio}>"),
            before: 1.0,
            now: 1.0 / ratio,
            speed: RatioInterval { ratio, low: ratio, high: ratio },
            is_disturbed: ratio > 1.0,
        };
        let comparison = Comparison {
            title: "first: a & b".to_owned(),
            compared: 3,
            changes: vec![change(0.5), change(2.0)],
            ..Comparison::default()
        };
        let html = section(&comparison);
        assert!(html.contains("<p>first: a &amp; b</p>"), "{html}");
        assert!(html.contains("<tr><th>row &lt;0.5&gt;</th><td>0.500</td>"), "{html}");
        assert!(html.contains("<tr><th>row &lt;2&gt; (disturbed)</th><td>2.000</td>"), "{html}");
        let [slower, faster] = ["1 rows are slower", "1 rows are faster"].map(|it| html.find(it));
        assert!(slower.is_some() && slower < faster, "{html}");
        let same = section(&Comparison { compared: 3, ..Comparison::default() });
        assert!(same.contains("no row changed by 5 %") && !same.contains("<table"), "{same}");
    }
}
