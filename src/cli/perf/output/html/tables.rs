//! The figures of the plots as tables, and how good the tuner's choices were.

use super::section::is_beyond;
use super::{ceiling_us, median_us, three_digits};
use crate::perf::measure::limits::MachineLimit;
use crate::perf::output::row::PerfRow;
use crate::{sizes, statistics};
use maypole::algorithms::Algorithm;
use std::fmt::Write;

/// A choice is good if it takes at most this many times as long as the fastest algorithm.
const GOOD: f64 = 1.1;

/// Microseconds, measured and predicted: a line for each size, a column for each series. A series
/// is one entry of `--algorithm`: an algorithm, or `None` for `auto`, the tuner's choice.
pub(super) fn table(
    rows: &[&PerfRow],
    series: &[Option<Algorithm>],
    limit: Option<&MachineLimit>,
) -> String {
    let columns: Vec<Option<Algorithm>> = series
        .iter()
        .filter(|one| rows.iter().any(|row| row.point.algorithm == **one))
        .copied()
        .collect();
    let mut html = "<details>\n<summary>figures</summary>\n<div class=\"wide\"><table>\n\
                    <tr><th>size</th>"
        .to_owned();
    for column in &columns {
        let _ = write!(html, "<th>{}</th>", super::series_name(*column));
    }
    if let Some(limit) = limit {
        let _ = write!(html, "<th>{}</th>", limit.name());
    }
    html += "</tr>\n";
    for bytes in sizes_of(rows) {
        let at: Vec<&PerfRow> = rows.iter().filter(|row| row.bytes() == bytes).copied().collect();
        let best = at.iter().filter_map(|row| median_us(row)).fold(f64::INFINITY, f64::min);
        let _ = write!(html, "<tr><th>{}</th>", sizes::name(bytes));
        for column in &columns {
            let row = at.iter().find(|row| row.point.algorithm == *column).copied();
            html += &cell(row, best, limit);
        }
        if let Some(limit) = limit {
            let ceiling = at.first().and_then(|row| ceiling_us(row, limit));
            let _ = write!(html, "<td>{}</td>", ceiling.map_or_else(String::new, three_digits));
        }
        html += "</tr>\n";
    }
    html + "</table></div>\n<p class=\"small\">Microseconds a call: measured, and below it \
            predicted. Bold: the fastest. Framed: the algorithm that the tuner chooses. The column \
            auto shows the tuner's choice as it ran, with the algorithm's name.</p>\n</details>\n"
}

fn cell(row: Option<&PerfRow>, best: f64, limit: Option<&MachineLimit>) -> String {
    let Some((row, us)) = row.and_then(|row| Some((row, median_us(row)?))) else {
        return "<td></td>".to_owned();
    };
    let is_auto = row.point.algorithm.is_none();
    let mut classes = Vec::new();
    if us <= best {
        classes.push("best");
    }
    if !is_auto && row.prediction.is_some_and(|it| it.choice == row.algorithm) {
        classes.push("chosen");
    }
    let mut html = format!("<td class=\"{}\">{}", classes.join(" "), three_digits(us));
    if let Some(prediction) = row.prediction {
        let beyond = limit.is_some_and(|limit| is_beyond(row, prediction.us, limit));
        let mark = if beyond { "&lt; " } else { "" };
        let _ = write!(html, "<small>{mark}{}</small>", three_digits(prediction.us));
    }
    if is_auto {
        let _ = write!(html, "<small>{}</small>", row.algorithm);
    }
    html + "</td>"
}

/// How good the tuner's choices and predictions were, in two sentences.
///
/// Each point counts once, whether its algorithm was requested by name, by `auto` or by both.
pub(super) fn summary(rows: &[PerfRow]) -> String {
    let mut points = 0;
    let mut good = 0;
    let mut worst = 1f64;
    let mut errors: Vec<f64> = Vec::new();
    for (nth, row) in rows.iter().enumerate() {
        let (Some(us), Some(prediction)) = (median_us(row), row.prediction) else { continue };
        let is_repeated = rows[..nth]
            .iter()
            .any(|other| other.is_beside(row) && other.algorithm == row.algorithm);
        if is_repeated {
            continue;
        }
        errors.push((prediction.us / us).max(us / prediction.us));
        if prediction.choice != row.algorithm {
            continue;
        }
        let others = || rows.iter().filter(|it| it.is_beside(row) && it.algorithm != row.algorithm);
        if others().next().is_none() {
            continue;
        }
        let best = others().filter_map(median_us).fold(us, f64::min);
        points += 1;
        good += usize::from(us <= GOOD * best);
        worst = worst.max(us / best);
    }
    let mut sentences = Vec::new();
    if points > 0 {
        let percent = (GOOD - 1.0) * 100.0;
        let worst = three_digits(worst);
        sentences.push(format!(
            "At <b>{good} of {points}</b> points the tuner's choice was within {percent:.0} % of \
             the fastest algorithm; at worst it took {worst} times as long."
        ));
    }
    if let Some(median) = statistics::median(errors) {
        sentences.push(format!("The median prediction was off by a factor of <b>{median:.2}</b>."));
    }
    if sentences.is_empty() { String::new() } else { format!("<p>{}</p>\n", sentences.join(" ")) }
}

/// The sizes of the rows in bytes, ascending, each once.
fn sizes_of(rows: &[&PerfRow]) -> Vec<usize> {
    let mut sizes: Vec<usize> = rows.iter().map(|row| row.bytes()).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::output::prediction::TunerPrediction;
    use crate::perf::output::row::tests::example;

    /// A row of 100 us by two-shot, and one of `us` by the ring, of which the tuner preferred
    /// `choice`.
    fn rows(us: f64, choice: Algorithm) -> [PerfRow; 2] {
        let mut both = [example(), example()];
        both[0].point.algorithm = Some(Algorithm::TwoShot);
        both[1].point.algorithm = Some(Algorithm::Ring);
        both[1].algorithm = Algorithm::Ring;
        for measurement in [&mut both[1].out_of_place, &mut both[1].in_place].into_iter().flatten()
        {
            measurement.time.p50 = us;
        }
        let prediction = Some(TunerPrediction { us: 50.0, choice });
        both.map(|row| PerfRow { prediction, ..row })
    }

    #[test]
    fn good_and_bad_choices_are_counted() {
        let text = summary(&rows(200.0, Algorithm::TwoShot));
        assert!(text.contains("<b>1 of 1</b>"), "{text}");
        assert!(text.contains("1.00 times"), "{text}");
        assert!(text.contains("<b>3.00</b>"), "{text}");
        let text = summary(&rows(200.0, Algorithm::Ring));
        assert!(text.contains("<b>0 of 1</b>"), "{text}");
        assert!(text.contains("2.00 times"), "{text}");
        assert_eq!(summary(&[]), "");
    }

    #[test]
    fn a_choice_that_was_also_named_counts_once() {
        let [named, ring] = rows(200.0, Algorithm::TwoShot);
        let mut auto = named.clone();
        auto.point.algorithm = None;
        let text = summary(&[auto.clone(), ring, named.clone()]);
        assert!(text.contains("<b>1 of 1</b>"), "{text}");
        assert!(text.contains("<b>3.00</b>"), "the median of 2 and 4, not of 2, 4 and 2: {text}");
        // A row alone offers no comparison with the choice.
        assert!(!summary(&[auto, named]).contains("points"));
    }

    #[test]
    fn the_best_and_the_chosen_are_marked() {
        let rows = rows(200.0, Algorithm::Ring);
        let series = [Some(Algorithm::TwoShot), Some(Algorithm::Ring)];
        let html = table(&rows.iter().collect::<Vec<_>>(), &series, None);
        assert!(html.contains("<td class=\"best\">100<small>50.0</small></td>"), "{html}");
        assert!(html.contains("<td class=\"chosen\">200<small>"), "{html}");
    }

    #[test]
    fn a_prediction_that_is_faster_than_the_limit_is_marked() {
        let rows = rows(200.0, Algorithm::Ring);
        let us = vec![(1.0, 60.0), (1e9, 60.0)];
        let limit = MachineLimit { points: us, ..crate::perf::measure::limits::tests::example() };
        let series = [Some(Algorithm::TwoShot)];
        let html = table(&rows.iter().collect::<Vec<_>>(), &series, Some(&limit));
        assert!(html.contains("<small>&lt; 50.0</small>"), "{html}");
    }

    #[test]
    fn auto_has_a_column_of_its_own() {
        let [named, ring] = rows(200.0, Algorithm::Ring);
        let mut auto = ring.clone();
        auto.point.algorithm = None;
        let series = [None, Some(Algorithm::Ring), Some(Algorithm::TwoShot)];
        let html = table(&[&auto, &ring, &named], &series, None);
        assert!(html.contains("<th>auto</th><th>ring</th><th>two-shot</th>"), "{html}");
        assert!(html.contains("<small>50.0</small><small>ring</small></td>"), "{html}");
        assert_eq!(html.matches("class=\"chosen\"").count(), 1, "{html}");
    }
}
