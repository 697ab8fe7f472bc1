//! The result of a search as text and as CSV, one row a trial, the best first.

use crate::run::SearchJournal;
use crate::trial::{TrialFate, TrialOutcome};
use std::fmt::Write;

/// A trial in the result.
#[derive(Clone, Copy, Debug)]
pub struct TrialRow<'a> {
    /// The number of the trial.
    pub trial: usize,
    /// The rung that it ended in, from 0.
    pub rung: usize,
    /// Tokens that a trial sees up to the end of that rung.
    pub tokens: u64,
    /// Its outcome in that rung.
    pub outcome: &'a TrialOutcome,
}

/// All trials: those that came farthest first, of these the lowest loss, of equal ones the lower
/// trial.
pub fn rows(journal: &SearchJournal) -> Vec<TrialRow<'_>> {
    let mut rows: Vec<TrialRow> = Vec::new();
    for trial in 0..journal.space.trials {
        let ended = journal.rungs.iter().enumerate().rev().find_map(|(rung, record)| {
            let tokens = record.tokens;
            record.of(trial).map(|outcome| TrialRow { trial, rung, tokens, outcome })
        });
        rows.extend(ended);
    }
    let loss = |row: &TrialRow| row.outcome.loss.unwrap_or(f64::INFINITY);
    rows.sort_by(|a, b| {
        b.rung.cmp(&a.rung).then(loss(a).total_cmp(&loss(b))).then(a.trial.cmp(&b.trial))
    });
    rows
}

/// The fate of a trial in words: `trained`, or the cause of its end.
pub fn fate(outcome: &TrialOutcome) -> String {
    match &outcome.fate {
        TrialFate::Trained => "trained".to_owned(),
        TrialFate::Diverged => format!("diverged at step {}", outcome.steps),
        TrialFate::Crashed(why) => format!("crashed at step {}: {why}", outcome.steps),
        TrialFate::Refused(why) => format!("refused: {why}"),
    }
}

/// The table.
pub fn text(journal: &SearchJournal) -> String {
    let mut out = format!(
        "{:>5} {:>4} {:>8} {:>9} {:>8} {:>6} {:>5} {:<9} {:>8}\n",
        "trial", "rung", "tokens", "rate", "warm-up", "width", "rows", "shape", "loss"
    );
    for row in rows(journal) {
        let settings = journal.space.settings(row.trial);
        let loss = row.outcome.loss.map_or_else(|| "-".to_owned(), |loss| format!("{loss:.4}"));
        let why = fate(row.outcome);
        let why = if why == "trained" { String::new() } else { format!("  {why}") };
        let _ = writeln!(
            out,
            "{:>5} {:>4} {:>8} {:>9.2e} {:>8.2} {:>6} {:>5} {:<9} {loss:>8}{why}",
            row.trial,
            row.rung,
            row.tokens,
            settings.rate,
            settings.warm_up,
            settings.width,
            settings.rows,
            settings.shape.name()
        );
    }
    out
}

/// The table as CSV, with a line of names. The fate is quoted.
pub fn csv(journal: &SearchJournal) -> String {
    let mut out = "trial,rung,tokens,steps,rate,warm_up,width,rows,shape,loss,fate\n".to_owned();
    for row in rows(journal) {
        let settings = journal.space.settings(row.trial);
        let loss = row.outcome.loss.map_or_else(String::new, |loss| loss.to_string());
        let why = fate(row.outcome).replace('"', "\"\"");
        let _ = writeln!(
            out,
            "{},{},{},{},{},{},{},{},{},{loss},\"{why}\"",
            row.trial,
            row.rung,
            row.tokens,
            row.outcome.steps,
            settings.rate,
            settings.warm_up,
            settings.width,
            settings.rows,
            settings.shape.name()
        );
    }
    out
}
