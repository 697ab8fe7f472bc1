//! The rows that changed beyond noise.

use super::interval::{RatioInterval, lower_quartile};
use super::rows::ResultRow;
use serde::Serialize;

/// A row that changed by less is not reported: two starts of the same program differ by as much.
pub(crate) const LEAST: f64 = 0.05;
/// The probability that a comparison of equal programs names any row.
const ERROR: f64 = 0.05;

/// A row that changed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RowChange {
    pub(crate) title: String,
    /// Microseconds before, or by the first program, and now, or by the second: the lower quartile of
    /// the samples, or the median of the rounds.
    pub(crate) before: f64,
    pub(crate) now: f64,
    /// Speed now divided by speed before: below 1 the row is slower.
    #[serde(flatten)]
    pub(crate) speed: RatioInterval,
    /// Other programs took much of the ranks' cores in one of the runs, so the change may be theirs.
    #[serde(rename = "disturbed")]
    pub(crate) is_disturbed: bool,
}

/// What changed between two runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) title: String,
    /// Other differences between the runs.
    pub(crate) notes: Vec<String>,
    /// How many rows both runs have.
    pub(crate) compared: usize,
    /// How many rows only one of them has.
    pub(crate) alone: usize,
    /// The slowest first.
    pub(crate) changes: Vec<RowChange>,
}

impl Comparison {
    /// Compares the samples of `before` with those of `now`.
    pub(crate) fn of(before: &[ResultRow], now: &[ResultRow]) -> Self {
        let pairs: Vec<_> = now
            .iter()
            .filter_map(|now| Some((before.iter().find(|before| before.is_like(now))?, now)))
            .collect();
        let alone = before.len() + now.len() - 2 * pairs.len().min(before.len());
        let error = error_of_row(pairs.len());
        let change = |(before, now): &(&ResultRow, &ResultRow)| {
            let speed = RatioInterval::of_quartiles(&before.samples, &now.samples, error)?;
            let title = now.title();
            let is_disturbed = before.is_disturbed || now.is_disturbed;
            let [before, now] = [before, now].map(|row| lower_quartile(row.samples.clone()));
            Some(RowChange { title, before: before?, now: now?, speed, is_disturbed })
        };
        Self::sorted(pairs.len(), alone, pairs.iter().filter_map(change).collect())
    }

    /// Compares two programs that were started in turn: rows of each round, by the first and by the
    /// second program.
    pub(crate) fn of_rounds(rounds: &[(Vec<ResultRow>, Vec<ResultRow>)]) -> Self {
        let Some((first, second)) = rounds.first() else { return Self::default() };
        let find = |rows: &[ResultRow], like: &ResultRow| {
            rows.iter().find(|row| row.is_like(like)).map(|row| row.us)
        };
        let both: Vec<_> = first
            .iter()
            .filter_map(|row| {
                let times = rounds
                    .iter()
                    .map(|(first, second)| Some((find(first, row)?, find(second, row)?)));
                Some((row, times.collect::<Option<Vec<(f64, f64)>>>()?))
            })
            .collect();
        let error = error_of_row(both.len());
        let change = |(row, times): &(&ResultRow, Vec<(f64, f64)>)| {
            let ratios: Vec<f64> = times.iter().map(|(before, now)| before / now).collect();
            let speed = RatioInterval::of_ratios(&ratios, error)?;
            let middle = |times: Vec<f64>| crate::statistics::median(times).unwrap_or_default();
            let before = middle(times.iter().map(|(before, _)| *before).collect());
            let now = middle(times.iter().map(|(_, now)| *now).collect());
            // Both programs of a round were disturbed alike.
            Some(RowChange { title: row.title(), before, now, speed, is_disturbed: false })
        };
        let alone = (first.len() + second.len()).saturating_sub(2 * both.len());
        Self::sorted(both.len(), alone, both.iter().filter_map(change).collect())
    }

    fn sorted(compared: usize, alone: usize, mut changes: Vec<RowChange>) -> Self {
        changes.retain(|change| change.speed.is_change(LEAST));
        changes.sort_by(|a, b| a.speed.ratio.total_cmp(&b.speed.ratio));
        Self { compared, alone, changes, ..Self::default() }
    }

    /// How many rows are slower than `least` times the speed before, beyond noise. Rows that other
    /// programs disturbed are not counted.
    pub(crate) fn slower(&self, least: f64) -> usize {
        let is_slower = |change: &&RowChange| change.speed.ratio < least && !change.is_disturbed;
        self.changes.iter().filter(is_slower).count()
    }

    /// What was compared and how much of it changed, in sentences.
    pub(crate) fn head(&self) -> Vec<String> {
        let Self { title, compared, changes, .. } = self;
        let mut lines = vec![title.clone()];
        lines.extend(self.notes.iter().cloned());
        if self.alone > 0 {
            lines.push(format!("{} rows are in one of them alone", self.alone));
        }
        let least = LEAST * 100.0;
        let (disturbed, all) = (self.disturbed(), changes.len());
        lines.push(match all - disturbed {
            0 if all == 0 => format!(
                "no row changed by {least} % or more beyond noise; {compared} were compared"
            ),
            count => format!(
                "{count} of {compared} rows changed by {least} % or more beyond noise, and \
                 {disturbed} that were disturbed"
            ),
        });
        lines
    }

    /// How many of the changes may be those of other programs.
    fn disturbed(&self) -> usize {
        self.changes.iter().filter(|change| change.is_disturbed).count()
    }

    /// The lines about the changed rows.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("# {}", self.head().join("\n# "));
        if self.changes.is_empty() {
            return text;
        }
        text += &format!(
            "\n# speed: that of the second divided by that of the first, below 1 it is slower; the \
             interval holds\n#        it with a probability of {} % over all rows together\n\
             # {:>6} {:>15} {:>11} {:>11}  row",
            (1.0 - ERROR) * 100.0,
            "speed",
            "interval",
            "first (us)",
            "second (us)"
        );
        for RowChange { title, before, now, speed, is_disturbed } in &self.changes {
            let mark = if *is_disturbed { " (disturbed)" } else { "" };
            let interval = format!("{:.3} to {:.3}", speed.low, speed.high);
            text += &format!(
                "\n  {:>6.3} {interval:>15} {before:>11.3} {now:>11.3}  {title}{mark}",
                speed.ratio
            );
        }
        if self.disturbed() > 0 {
            text += "\n# disturbed: other programs took much of the ranks' cores; compare in turn \
                     (--alternate)";
        }
        text
    }
}

/// The probability of an error in one of `rows` rows with which any row has an error with the
/// probability [`ERROR`] at most (Bonferroni).
fn error_of_row(rows: usize) -> f64 {
    ERROR / rows.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(bytes: usize, samples: &[f64]) -> ResultRow {
        let object = json!({
            "collective": "all_reduce",
            "bytes": bytes,
            "time_us": { "p50": crate::statistics::median(samples.to_vec()).unwrap() },
            "samples_us": samples,
        });
        ResultRow::of(&object).unwrap()
    }

    fn samples(middle: f64) -> Vec<f64> {
        (0..50).map(|nth| middle * (1.0 + f64::from(nth * 29 % 50) / 1000.0)).collect()
    }

    #[test]
    fn only_rows_that_changed_are_told() {
        let before = [row(8, &samples(10.0)), row(16, &samples(20.0)), row(32, &samples(5.0))];
        let now = [row(8, &samples(11.5)), row(16, &samples(20.2)), row(64, &samples(5.0))];
        let comparison = Comparison::of(&before, &now);
        assert_eq!((comparison.compared, comparison.alone), (2, 2));
        let [change] = &comparison.changes[..] else { panic!("{comparison:?}") };
        assert!((change.speed.ratio - 10.0 / 11.5).abs() < 0.01, "{change:?}");
        assert_eq!((comparison.slower(0.95), comparison.slower(0.8)), (1, 0));
        let mut disturbed = now.clone();
        disturbed[0].is_disturbed = true;
        let disturbed = Comparison::of(&before, &disturbed);
        assert_eq!((disturbed.changes.len(), disturbed.slower(0.95)), (1, 0));
        assert!(disturbed.text().contains("of 8 bytes (disturbed)"), "{}", disturbed.text());
        let text = comparison.text();
        assert!(text.contains("1 of 2 rows changed") && text.contains("of 8 bytes"), "{text}");
        let same = Comparison::of(&before, &before);
        assert!(same.changes.is_empty() && same.text().contains("no row changed"), "{same:?}");
    }

    #[test]
    fn rounds_in_turn_are_compared_pair_by_pair() {
        // The machine slows down from round to round, and the second program by 15 % each time.
        let round = |nth: u32| {
            let us = 10.0 * f64::from(nth + 1);
            (vec![row(8, &[us])], vec![row(8, &[us * 1.15])])
        };
        let comparison = Comparison::of_rounds(&(0..7).map(round).collect::<Vec<_>>());
        let [change] = &comparison.changes[..] else { panic!("{comparison:?}") };
        assert!((change.speed.ratio - 1.0 / 1.15).abs() < 1e-9, "{change:?}");
        assert!(Comparison::of_rounds(&[]).changes.is_empty());
    }
}
