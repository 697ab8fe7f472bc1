//! What the plots show, as figures, and what they come to.

use super::{ceiling, three, us};
use crate::perf::measure::limits::Limit;
use crate::perf::output::row::Row;
use crate::sizes;
use maypole::algorithms::Algorithm;
use std::fmt::Write;

/// A choice that takes at most so many times as long as the best is a good one.
const GOOD: f64 = 1.1;

/// Sizes down, algorithms across: microseconds, measured and predicted.
pub(crate) fn table(rows: &[&Row], algorithms: &[Algorithm], limit: Option<&Limit>) -> String {
    let algorithms: Vec<_> =
        algorithms.iter().filter(|one| rows.iter().any(|row| row.algorithm == **one)).collect();
    let mut html =
        "<details>\n<summary>figures</summary>\n<div class=\"wide\"><table>\n<tr><th>size</th>"
            .to_owned();
    algorithms.iter().for_each(|algorithm| html += &format!("<th>{algorithm}</th>"));
    if let Some(limit) = limit {
        let _ = write!(html, "<th>{}</th>", limit.name());
    }
    html += "</tr>\n";
    for bytes in sizes_of(rows) {
        let at: Vec<&Row> = rows.iter().filter(|row| row.bytes() == bytes).copied().collect();
        let best = at.iter().filter_map(|row| us(row)).fold(f64::INFINITY, f64::min);
        let _ = write!(html, "<tr><th>{}</th>", sizes::name(bytes));
        for algorithm in &algorithms {
            html += &cell(at.iter().find(|row| row.algorithm == **algorithm).copied(), best);
        }
        if let Some(limit) = limit {
            let ceiling = at.first().and_then(|row| ceiling(row, limit));
            let _ = write!(html, "<td>{}</td>", ceiling.map_or_else(String::new, three));
        }
        html += "</tr>\n";
    }
    html + "</table></div>\n<p class=\"small\">Microseconds, measured and below predicted. Bold: the fastest. Framed: the \
            tuner's choice.</p>\n</details>\n"
}

fn cell(row: Option<&Row>, best: f64) -> String {
    let Some((row, us)) = row.and_then(|row| Some((row, us(row)?))) else {
        return "<td></td>".to_owned();
    };
    let mut classes = Vec::new();
    if us <= best {
        classes.push("best");
    }
    if row.prediction.is_some_and(|said| said.choice == row.algorithm) {
        classes.push("chosen");
    }
    let predicted = row
        .prediction
        .map_or_else(String::new, |said| format!("<small>{}</small>", three(said.us)));
    format!("<td class=\"{}\">{}{predicted}</td>", classes.join(" "), three(us))
}

/// How good the tuner's choices and predictions were, in two sentences.
pub(crate) fn verdict(rows: &[Row]) -> String {
    let (mut points, mut good, mut worst) = (0, 0, 1f64);
    let mut errors: Vec<f64> = Vec::new();
    for row in rows {
        let (Some(us), Some(said)) = (us(row), row.prediction) else { continue };
        errors.push((said.us / us).max(us / said.us));
        let peers = || rows.iter().filter(|other| other.is_beside(row));
        if said.choice != row.algorithm || peers().count() < 2 {
            continue;
        }
        let best = peers().filter_map(super::us).fold(f64::INFINITY, f64::min);
        (points, good, worst) =
            (points + 1, good + usize::from(us <= GOOD * best), worst.max(us / best));
    }
    errors.sort_by(f64::total_cmp);
    let mut text = String::new();
    if points > 0 {
        let percent = (GOOD - 1.0) * 100.0;
        let _ = write!(
            text,
            "<p>At <b>{good} of {points}</b> points the tuner's choice was within {percent:.0} % of the fastest algorithm; at \
             worst it took {} times as long. ",
            three(worst)
        );
    }
    if let Some(median) = errors.get(errors.len() / 2) {
        let start = if text.is_empty() { "<p>" } else { "" };
        let _ = write!(
            text,
            "{start}Predictions were off by a factor of <b>{median:.2}</b> in the median."
        );
    }
    if text.is_empty() { text } else { text + "</p>\n" }
}

/// Ascending, each once.
fn sizes_of(rows: &[&Row]) -> Vec<usize> {
    let mut sizes: Vec<usize> = rows.iter().map(|row| row.bytes()).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::output::prediction::Prediction;
    use crate::perf::output::row::tests::example;

    /// A row of 100 us by two-shot, and one of `us` by the ring, of which the tuner preferred
    /// `choice`.
    fn rows(us: f64, choice: Algorithm) -> [Row; 2] {
        let mut both = [example(), example()];
        both[1].algorithm = Algorithm::Ring;
        for place in [&mut both[1].apart, &mut both[1].same].into_iter().flatten() {
            place.time.p50 = us;
        }
        both.map(|row| Row { prediction: Some(Prediction { us: 50.0, choice }), ..row })
    }

    #[test]
    fn good_choices_are_told_from_bad_ones() {
        let text = verdict(&rows(200.0, Algorithm::TwoShot));
        assert!(
            text.contains("<b>1 of 1</b>")
                && text.contains("1.00 times")
                && text.contains("<b>4.00</b>"),
            "{text}"
        );
        let text = verdict(&rows(200.0, Algorithm::Ring));
        assert!(text.contains("<b>0 of 1</b>") && text.contains("2.00 times"), "{text}");
        assert_eq!(verdict(&[]), "");
    }

    #[test]
    fn the_best_and_the_chosen_are_marked() {
        let rows = rows(200.0, Algorithm::Ring);
        let html =
            table(&rows.iter().collect::<Vec<_>>(), &[Algorithm::TwoShot, Algorithm::Ring], None);
        assert!(html.contains("<td class=\"best\">100<small>50.0</small></td>"), "{html}");
        assert!(html.contains("<td class=\"chosen\">200<small>"), "{html}");
    }
}
